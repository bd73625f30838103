// ConnectionPair: two ranks of one process whose links are carried by TCP connections, over sockets or over
// scripted streams, in one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "tests/engine/raw_links.h"
#include "tests/transports/traffic.h"
#include "transports/tcp/tcp_connection.h"

namespace tutti::test {

using Streams = std::vector<std::unique_ptr<tcp::Stream>>;

enum class Wire : uint8_t { kUnix, kLoopback };

/// Both ends of a connected socket. `buffer_bytes`: of the kernel; 0: its choice.
struct SocketPair {
  std::array<FileDescriptor, 2> ends;
};
SocketPair connect_pair(Wire wire, uint32_t buffer_bytes = 0);
/// The same as streams of a connection.
struct StreamPair {
  std::array<Streams, 2> ends;
};
StreamPair connect_streams(Wire wire, uint32_t count, uint32_t buffer_bytes = 0);

/// One rank's side: rings, links, offers, connection.
class Side final : public TrafficSide {
 public:
  /// Every link's first message has number `first_number`.
  Side(uint32_t peer, const RingShape& shape, uint32_t channels, uint64_t first_number);

  void connect(Streams streams, tcp::TcpOptions options);

  uint32_t channel_count() const override { return static_cast<uint32_t>(send_.size()); }
  SendLink& send(uint32_t channel) override { return send_[channel]; }
  RecvLink& recv(uint32_t channel) override { return recv_[channel]; }
  PostedReceive& offer(uint32_t channel) override { return offers_[channel]; }
  Transport* transport() override { return nullptr; }
  tcp::TcpConnection& connection() override { return *connection_; }

 private:
  uint32_t peer_;
  RingShape shape_;
  std::deque<RingMemory> memory_;
  std::vector<SendLink> send_;
  std::vector<RecvLink> recv_;
  std::vector<PostedReceive> offers_;
  std::vector<ChannelRings> channels_;
  std::unique_ptr<tcp::TcpConnection> connection_;
};

struct PairOptions {
  RingShape shape{.slots = 8, .slot_bytes = 1024};
  uint32_t channels = 5;
  uint64_t first_number = 0;
  uint64_t in_place_bytes = 65536;
  uint16_t epoch = 3;
};

/// The peer of rank 0 is 1 and the other way round.
struct ConnectionPair {
  ConnectionPair(const PairOptions& options, Streams first, Streams second);
  Side& side(uint32_t rank) { return rank == 0 ? first : second; }

  Side first;
  Side second;
};

}  // namespace tutti::test
