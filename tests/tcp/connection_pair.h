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
#include "transports/sim/sim.h"
#include "transports/tcp/tcp_connection.h"

namespace tutti::test {

using Bytes = std::vector<std::byte>;
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
class Side {
 public:
  /// Every link's first message has number `first_number`.
  Side(uint32_t peer, const RingShape& shape, uint32_t channels, uint64_t first_number);

  void connect(Streams streams, tcp::TcpOptions options);

  uint32_t channel_count() const { return static_cast<uint32_t>(send_.size()); }
  SendLink& send(uint32_t channel) { return send_[channel]; }
  RecvLink& recv(uint32_t channel) { return recv_[channel]; }
  PostedReceive& offer(uint32_t channel) { return offers_[channel]; }
  tcp::TcpConnection& connection() { return *connection_; }

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

/// The bytes of a message, from who and which it is.
Bytes message_bytes(uint64_t seed, uint32_t from, uint32_t channel, uint64_t number, size_t bytes);

/// Random messages in both directions on all channels: sizes, carriages (inline, slot, reference), offers,
/// and when each side takes its turn come from a seed. Contents are checked on arrival; what was referred to
/// is overwritten the moment it is given back.
class Traffic {
 public:
  Traffic(ConnectionPair& pair, uint64_t seed, uint64_t messages_per_channel, bool slow_reader = false);

  /// One turn of one side. False when it had nothing to do.
  bool turn(uint32_t rank);
  bool complete() const { return left_ == 0; }
  /// What was wrong first; empty: nothing.
  const std::string& failure() const { return failure_; }
  uint64_t direct_count() const { return direct_count_; }
  uint64_t most_ahead() const { return most_ahead_; }

 private:
  struct Lease {
    uint64_t number;
    Bytes bytes;
  };
  struct Direction {
    std::deque<Lease> leases;  ///< of the sender
    Bytes target;              ///< of the reader
  };
  size_t size_of(uint32_t from, uint32_t channel, uint64_t number) const;
  bool send_one(uint32_t rank, uint32_t channel);
  bool receive_one(uint32_t rank, uint32_t channel);
  void take_back(uint32_t rank, uint32_t channel);

  ConnectionPair& pair_;
  uint64_t seed_;
  uint64_t first_;
  uint64_t messages_;
  bool slow_reader_;
  SimRandom random_;
  std::vector<Direction> directions_;  ///< by sender, channel
  uint64_t left_;
  uint64_t direct_count_ = 0;
  uint64_t most_ahead_ = 0;  ///< of a writer before its reader, in messages
  std::string failure_;
};

}  // namespace tutti::test
