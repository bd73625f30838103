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

Bytes message_bytes(uint64_t seed, uint32_t from, uint32_t channel, uint64_t number, size_t count) {
  SimRandom random(seed ^ number << 16 ^ uint64_t{channel} << 8 ^ from);
  Bytes bytes(count);
  uint64_t word = 0;
  for (size_t i = 0; i < count; ++i, word >>= 8) {
    if (i % 8 == 0) word = random.next();
    bytes[i] = static_cast<std::byte>(word);
  }
  return bytes;
}

Traffic::Traffic(ConnectionPair& pair, uint64_t seed, uint64_t messages_per_channel, bool slow_reader)
    : pair_(pair),
      seed_(seed),
      first_(pair.first.send(0).next),
      messages_(messages_per_channel),
      slow_reader_(slow_reader),
      random_(seed),
      directions_(2 * pair.first.channel_count()),
      left_(messages_per_channel * 2 * pair.first.channel_count()) {}

size_t Traffic::size_of(uint32_t from, uint32_t channel, uint64_t number) const {
  SimRandom random(seed_ ^ number << 20 ^ uint64_t{channel} << 10 ^ from << 5);
  const uint64_t most = pair_.first.send(0).slot_bytes;
  switch (random.below(5)) {
    case 0: return 0;
    case 1: return 8;
    case 2: return random.below(kInlineBytes + 2);
    case 3: return most;
    default: return random.below(most + 1);
  }
}

bool Traffic::turn(uint32_t rank) {
  bool moved = false;
  for (uint32_t channel = 0; channel < pair_.first.channel_count(); ++channel) {
    for (uint64_t i = random_.below(12); i > 0 && send_one(rank, channel); --i) moved = true;
    if (slow_reader_ && !random_.one_in(8)) continue;
    for (uint64_t i = random_.below(12); i > 0 && receive_one(rank, channel); --i) moved = true;
    take_back(rank, channel);
  }
  moved |= pair_.side(rank).connection().advance();
  return moved;
}

bool Traffic::send_one(uint32_t rank, uint32_t channel) {
  SendLink& link = pair_.side(rank).send(channel);
  if (link.next == first_ + messages_ || !link.can_write()) return false;
  const size_t size = size_of(rank, channel, link.next);
  Bytes bytes = message_bytes(seed_, rank, channel, link.next, size);
  const auto signature = static_cast<uint16_t>(channel * 7 + link.next / 16);
  if (size > kInlineBytes && random_.one_in(3)) {
    Direction& direction = directions_[rank * pair_.first.channel_count() + channel];
    direction.leases.push_back({link.next, std::move(bytes)});
    link.commit_reference(signature, size, direction.leases.back().bytes.data(), Carriage::kReference);
  } else {
    std::copy(bytes.begin(), bytes.end(), link.span(size));
    link.commit(signature, size);
  }
  most_ahead_ = std::max(most_ahead_, link.next - pair_.side(1 - rank).recv(channel).next);
  return true;
}

/// Overwrites what the network has given back: if it still sends it, the reader gets something wrong.
void Traffic::take_back(uint32_t rank, uint32_t channel) {
  const uint64_t released = pair_.side(rank).send(channel).released();
  auto& leases = directions_[rank * pair_.first.channel_count() + channel].leases;
  while (!leases.empty() && leases.front().number < released) {
    std::fill(leases.front().bytes.begin(), leases.front().bytes.end(), std::byte{0xee});
    leases.pop_front();
  }
}

bool Traffic::receive_one(uint32_t rank, uint32_t channel) {
  Side& side = pair_.side(rank);
  RecvLink& link = side.recv(channel);
  if (link.next == first_ + messages_) return false;
  const uint32_t from = 1 - rank;
  Bytes& target = directions_[from * pair_.first.channel_count() + channel].target;
  const size_t size = size_of(from, channel, link.next);
  const auto signature = static_cast<uint16_t>(channel * 7 + link.next / 16);
  const uint64_t word = link.word();
  if ((word & flag::kAgreedMask) != flag::make(link.next, signature, size)) {
    if ((word & flag::kNumberMask) == ((link.next + 1) & flag::kNumberMask) && failure_.empty()) {
      failure_ = format("rank %u, channel %u, message %llu: another word came", rank, channel,
                        static_cast<unsigned long long>(link.next));
    }
    if (random_.one_in(2) && side.offer(channel).first != link.next) {
      target.assign(size, std::byte{0});
      side.offer(channel) = {.first = link.next,
                             .address = target.data(),
                             .bytes = size,
                             .slice_bytes = std::max<size_t>(1, size)};
    }
    return false;
  }
  const std::byte* span = link.span(word);
  const Bytes expected = message_bytes(seed_, from, channel, link.next, size);
  if (!std::equal(expected.begin(), expected.end(), span) && failure_.empty()) {
    failure_ = format("rank %u, channel %u, message %llu of %zu bytes: wrong content", rank, channel,
                      static_cast<unsigned long long>(link.next), size);
  }
  if (flag::carriage(word) == Carriage::kReference) {
    if (span != target.data() && failure_.empty()) failure_ = "a reference to what was not offered";
    ++direct_count_;
  }
  link.release(word);
  --left_;
  return true;
}

}  // namespace tutti::test
