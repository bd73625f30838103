// Microbenchmark of the TCP connection against plain sockets, over loopback, in one run.
//
// pingpong: 8 bytes to the peer and back. stream: 1 MiB a call, over 1 or 2 connections; the writer refers to
// its buffer or copies into slots, the reader posts its buffer or copies out of slots. `raw`: a polling loop
// of send(2) and recv(2). threads:1 compares the work, whatever else the machine does; threads:2 needs two
// free cores. Compare the `best` lines, interleaved by --benchmark_enable_random_interleaving=true.
#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "perf/micro/ends.h"
#include "tests/engine/raw_links.h"
#include "transports/tcp/tcp_connection.h"

namespace tutti {
namespace {

constexpr size_t kStreamBytes = 1 << 20;
constexpr size_t kPingBytes = 8;

void check(bool good, const char* what) {
  if (good) return;
  std::perror(what);
  std::exit(1);
}

struct Sockets {
  FileDescriptor ends[2];
};

Sockets connect_loopback() {
  Sockets sockets;
  const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  check(::bind(listener.get(), generic, bytes) == 0 && ::listen(listener.get(), 1) == 0 &&
            ::getsockname(listener.get(), generic, &bytes) == 0,
        "listen");
  sockets.ends[0] = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  check(::connect(sockets.ends[0].get(), generic, bytes) == 0, "connect");
  sockets.ends[1] = FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const int on = 1;
  for (const FileDescriptor& end : sockets.ends) {
    check(::setsockopt(end.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "TCP_NODELAY");
  }
  return sockets;
}

// ---- sockets alone

/// A stream of calls over several sockets, used in turn; no turn waits.
class RawEnds {
 public:
  explicit RawEnds(size_t connections) : read_bytes_(kStreamBytes), write_bytes_(kStreamBytes) {
    for (size_t i = 0; i < connections; ++i) sockets_.push_back(connect_loopback());
  }
  /// Moves as much of one call's bytes as possible. True when all have moved.
  bool write(size_t bytes) { return turn(0, written_, write_bytes_.data(), bytes); }
  bool read(size_t bytes) { return turn(1, read_, read_bytes_.data(), bytes); }

 private:
  struct Position {
    size_t done = 0;
  };
  bool turn(int end, Position& at, std::byte* memory, size_t bytes) {
    const size_t share = bytes / sockets_.size();
    while (at.done < bytes) {
      const size_t index = at.done / share;
      const size_t left = (index + 1) * share - at.done;
      const int fd = sockets_[index].ends[end].get();
      const ssize_t moved = end == 0 ? ::send(fd, memory + at.done, left, MSG_NOSIGNAL | MSG_DONTWAIT)
                                     : ::recv(fd, memory + at.done, left, MSG_DONTWAIT);
      if (moved < 0) {
        check(errno == EAGAIN, "socket");
        return false;
      }
      at.done += static_cast<size_t>(moved);
    }
    at.done = 0;
    return true;
  }

  std::vector<Sockets> sockets_;
  std::vector<std::byte> read_bytes_;
  std::vector<std::byte> write_bytes_;
  Position read_;
  Position written_;
};

// ---- the connection

constexpr RingShape kShape;

struct Side {
  test::RingMemory outgoing{kShape};
  test::RingMemory incoming{kShape};
  PostedReceive offer;
  ChannelRings channel{.outgoing = outgoing.bytes(), .incoming = incoming.bytes(), .offer = &offer};
  SendLink send = SendLink::at(outgoing.bytes(), kShape);
  RecvLink recv = RecvLink::at(incoming.bytes(), kShape, 0);
  std::unique_ptr<tcp::TcpConnection> connection;

  void connect(std::vector<std::unique_ptr<tcp::Stream>> streams) {
    tcp::TcpOptions options;
    options.shape = kShape;
    connection = std::make_unique<tcp::TcpConnection>(std::span(&channel, 1), std::move(streams), options);
  }
  bool arrived() const { return (recv.word() & flag::kNumberMask) == ((recv.next + 1) & flag::kNumberMask); }
};

struct Pair {
  explicit Pair(size_t connections) {
    std::vector<std::unique_ptr<tcp::Stream>> streams[2];
    for (size_t i = 0; i < connections; ++i) {
      Sockets sockets = connect_loopback();
      for (int end = 0; end < 2; ++end) {
        auto stream = tcp::make_socket_stream(std::move(sockets.ends[end]), {});
        check(stream.is_ok(), "make_socket_stream");
        streams[end].push_back(std::move(*stream));
      }
    }
    for (int end = 0; end < 2; ++end) sides[end].connect(std::move(streams[end]));
  }
  Side sides[2];
};

/// How a stream travels.
struct Way {
  bool by_reference;  ///< the writer refers to its buffer, else copies into slots
  bool direct;        ///< the reader posts its buffer, else copies out of slots
};

/// The same calls through connections.
class ConnectionEnds {
 public:
  ConnectionEnds(size_t connections, const Way& way)
      : pair_(connections), way_(way), read_bytes_(kStreamBytes), write_bytes_(kStreamBytes) {}

  bool write(size_t bytes) {
    Side& side = pair_.sides[0];
    while (written_ < bytes && side.send.can_write()) {
      const size_t part = std::min<size_t>(bytes - written_, kShape.slot_bytes);
      if (way_.by_reference && part > kInlineBytes) {
        side.send.commit_reference(0, part, write_bytes_.data() + written_);
      } else {
        std::memcpy(side.send.span(part), write_bytes_.data() + written_, part);
        side.send.commit(0, part);
      }
      written_ += part;
    }
    side.connection->advance();
    if (written_ < bytes || !side.connection->drained() || !side.send.references_returned()) return false;
    written_ = 0;
    return true;
  }

  bool read(size_t bytes) {
    Side& side = pair_.sides[1];
    if (way_.direct && read_ == 0) {
      side.offer = {.first = side.recv.next,
                    .address = read_bytes_.data(),
                    .bytes = bytes,
                    .slice_bytes = kShape.slot_bytes};
    }
    side.connection->advance();
    while (read_ < bytes && side.arrived()) {
      const uint64_t word = side.recv.word();
      const std::byte* from = side.recv.span(word);
      if (from != read_bytes_.data() + read_) {
        std::memcpy(read_bytes_.data() + read_, from, flag::bytes(word));
      }
      read_ += flag::bytes(word);
      side.recv.release(word);
    }
    if (read_ < bytes) return false;
    read_ = 0;
    return true;
  }

 private:
  Pair pair_;
  Way way_;
  std::vector<std::byte> read_bytes_;
  std::vector<std::byte> write_bytes_;
  size_t read_ = 0;
  size_t written_ = 0;
};

// ---- runs

template <class Ends>
void stream_one_thread(benchmark::State& state, Ends& ends) {
  for (auto _ : state) {
    for (bool written = false, read = false; !written || !read;) {
      written = written || ends.write(kStreamBytes);
      read = read || ends.read(kStreamBytes);
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kStreamBytes));
}

template <class Ends>
void stream_two_threads(benchmark::State& state, Ends& ends) {
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done.load(std::memory_order_relaxed)) ends.read(kStreamBytes);
  });
  for (auto _ : state) {
    while (!ends.write(kStreamBytes)) {
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kStreamBytes));
  done = true;
  reader.join();
}

void register_all() {
  constexpr int kRoundTrips = 300;
  constexpr int kStreams = 40;
  using State = benchmark::State;
  add("pingpong/raw/threads:1", kRoundTrips, [](State& state) {
    RawEnds there(1);
    RawEnds back(1);
    pingpong_one_thread(state, there, back, kPingBytes);
  });
  add("pingpong/raw/threads:2", kRoundTrips, [](State& state) {
    RawEnds there(1);
    RawEnds back(1);
    pingpong_two_threads(state, there, back, kPingBytes);
  });
  for (const size_t connections : {1, 2}) {
    const std::string suffix = "/connections:" + std::to_string(connections);
    add("pingpong/connection/threads:1" + suffix, kRoundTrips, [=](State& state) {
      ConnectionEnds there(connections, {});
      ConnectionEnds back(connections, {});
      pingpong_one_thread(state, there, back, kPingBytes);
    });
    add("pingpong/connection/threads:2" + suffix, kRoundTrips, [=](State& state) {
      ConnectionEnds there(connections, {});
      ConnectionEnds back(connections, {});
      pingpong_two_threads(state, there, back, kPingBytes);
    });
    add("stream/raw/threads:1" + suffix, kStreams, [=](State& state) {
      RawEnds ends(connections);
      stream_one_thread(state, ends);
    });
    add("stream/raw/threads:2" + suffix, kStreams, [=](State& state) {
      RawEnds ends(connections);
      stream_two_threads(state, ends);
    });
    for (const Way way : {Way{true, true}, Way{false, true}, Way{true, false}, Way{false, false}}) {
      const std::string ways = std::string(way.by_reference ? "/referred" : "/copied") +
                               (way.direct ? "/direct" : "/slots") + suffix;
      add("stream/connection/threads:1" + ways, kStreams, [=](State& state) {
        ConnectionEnds ends(connections, way);
        stream_one_thread(state, ends);
      });
      add("stream/connection/threads:2" + ways, kStreams, [=](State& state) {
        ConnectionEnds ends(connections, way);
        stream_two_threads(state, ends);
      });
    }
  }
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  tutti::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
