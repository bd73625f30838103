#include "tests/tcp/connection_pair.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace tutti::test {

SocketPair connect_pair(Wire wire, uint32_t buffer_bytes) {
  const auto bound = [&](int fd) {
    const int bytes = static_cast<int>(buffer_bytes);
    if (bytes == 0) return;
    EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
    EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)), 0);
    // Segments that fit: loopback's own are larger than such a buffer, and would wait for timers.
    const int segment_bytes = 536;
    if (wire == Wire::kLoopback) {
      EXPECT_EQ(::setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment_bytes, sizeof(segment_bytes)), 0);
    }
  };
  SocketPair pair;
  if (wire == Wire::kUnix) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    for (int i = 0; i < 2; ++i) {
      pair.ends[i] = FileDescriptor(fds[i]);
      bound(fds[i]);
    }
    return pair;
  }
  FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  bound(listener.get());  // before the handshake, which agrees on the window's scale
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(listener.get(), generic, bytes), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), generic, &bytes), 0);
  pair.ends[0] = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  bound(pair.ends[0].get());
  EXPECT_EQ(::connect(pair.ends[0].get(), generic, bytes), 0);
  pair.ends[1] = FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_TRUE(pair.ends[1].is_open());
  return pair;
}

StreamPair connect_streams(Wire wire, uint32_t count, uint32_t buffer_bytes) {
  StreamPair pair;
  for (uint32_t i = 0; i < count; ++i) {
    SocketPair sockets = connect_pair(wire, buffer_bytes);
    for (int end = 0; end < 2; ++end) {
      auto stream = tcp::make_socket_stream(std::move(sockets.ends[end]), {});
      EXPECT_TRUE(stream.is_ok()) << stream.status().text();
      pair.ends[end].push_back(std::move(*stream));
    }
  }
  // The peer may have them in another order.
  std::reverse(pair.ends[1].begin(), pair.ends[1].end());
  return pair;
}

Side::Side(uint32_t peer, const RingShape& shape, uint32_t channels, uint64_t first_number)
    : peer_(peer), shape_(shape), offers_(channels) {
  for (uint32_t i = 0; i < channels; ++i) {
    RingMemory& outgoing = memory_.emplace_back(shape);
    RingMemory& incoming = memory_.emplace_back(shape);
    channels_.push_back({.outgoing = outgoing.bytes(), .incoming = incoming.bytes(), .offer = &offers_[i]});
    send_.push_back(SendLink::at(outgoing.bytes(), shape));
    recv_.push_back(RecvLink::at(incoming.bytes(), shape, 0));
    send_.back().peer = recv_.back().peer = peer;
    send_.back().same_process = true;
    recv_.back().offer = &offers_[i];
    if (first_number == 0) continue;
    SendLink incoming_writer = SendLink::at(incoming.bytes(), shape);
    RecvLink outgoing_reader = RecvLink::at(outgoing.bytes(), shape, 0);
    begin_at(outgoing, shape, first_number, send_.back(), outgoing_reader);
    begin_at(incoming, shape, first_number, incoming_writer, recv_.back());
  }
}

void Side::connect(Streams streams, tcp::TcpOptions options) {
  options.peer = peer_;
  options.shape = shape_;
  connection_ = std::make_unique<tcp::TcpConnection>(channels_, std::move(streams), options);
}

ConnectionPair::ConnectionPair(const PairOptions& options, Streams first_streams, Streams second_streams)
    : first(1, options.shape, options.channels, options.first_number),
      second(0, options.shape, options.channels, options.first_number) {
  tcp::TcpOptions connection;
  connection.epoch = options.epoch;
  connection.in_place_bytes = options.in_place_bytes;
  if (!first_streams.empty()) first.connect(std::move(first_streams), connection);
  if (!second_streams.empty()) second.connect(std::move(second_streams), connection);
}

}  // namespace tutti::test
