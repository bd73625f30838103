// Traffic: random messages between two ranks, whatever carries them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "transports/connection.h"
#include "transports/sim/sim.h"
#include "transports/transport.h"

namespace tutti::test {

using Bytes = std::vector<std::byte>;

/// The bytes of a message, which follow from its sender, channel and number.
Bytes message_bytes(uint64_t seed, uint32_t from, uint32_t channel, uint64_t number, size_t bytes);

/// One rank's links to the other one, and the connection that carries them.
class TrafficSide {
 public:
  virtual ~TrafficSide() = default;
  virtual uint32_t channel_count() const = 0;
  virtual SendLink& send(uint32_t channel) = 0;
  virtual RecvLink& recv(uint32_t channel) = 0;
  virtual PostedReceive& offer(uint32_t channel) = 0;
  virtual Connection& connection() = 0;
  /// Null: the side has no transport any more.
  virtual Transport* transport() = 0;
};

/// Random messages in both directions on all channels. A seed decides sizes, carriages (inline, slot, and
/// reference where the link allows it), posted receives, and when each side takes its turn. Three seeds of
/// four register the memory with transports that read registered buffers. Contents are
/// checked on arrival. Referenced memory is overwritten the moment the connection has returned it.
class Traffic {
 public:
  Traffic(TrafficSide& first, TrafficSide& second, uint64_t seed, uint64_t messages_per_channel,
          bool slow_reader = false);
  ~Traffic();
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

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
    std::span<std::byte> bytes;
  };
  struct Direction {
    Bytes source;              ///< of the sender: the place of a message is that of its slot
    std::deque<Lease> leases;  ///< of the source
    Bytes target;              ///< of the reader
  };
  void register_buffer(TrafficSide& side, Bytes& buffer);
  size_t size_of(uint32_t from, uint32_t channel, uint64_t number) const;
  bool send_one(uint32_t rank, uint32_t channel);
  bool receive_one(uint32_t rank, uint32_t channel);
  void take_back(uint32_t rank, uint32_t channel);

  TrafficSide& side(uint32_t rank) { return rank == 0 ? first_side_ : second_side_; }

  TrafficSide& first_side_;
  TrafficSide& second_side_;
  uint32_t channels_;
  uint64_t slots_;
  uint64_t slot_bytes_;
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
  std::vector<std::pair<TrafficSide*, MemoryHandle>> registered_;
};

}  // namespace tutti::test
