// Outbox: the outgoing rings to one peer as frames, and the peer's credits. A message is taken into a frame
// when the peer has a slot for it, then sent, and released to the engine when the network no longer needs its
// memory.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transports/connection.h"
#include "transports/device_span.h"
#include "transports/tcp/frame.h"

namespace tutti::tcp {

struct OutFrame {
  uint32_t channel = 0;
  uint32_t count = 0;  ///< messages; 0: a credit
  uint64_t first = 0;
  uint64_t bytes = 0;  ///< of the frame with its header
  uint32_t message_bytes = 0;
};

class Outbox {
 public:
  Outbox(std::span<const ChannelRings> channels, const RingShape& shape, uint16_t epoch);

  uint32_t channel_count() const { return static_cast<uint32_t>(channels_.size()); }
  uint32_t next_bytes(uint32_t channel) const;
  /// Of a ready channel's next message.
  uint64_t next_number(uint32_t channel) const { return channels_[channel].taken; }
  const std::byte* next_payload(uint32_t channel) const {
    return payload(channels_[channel], channels_[channel].taken);
  }
  /// Whether the next message is committed and the peer has room for it.
  bool ready(uint32_t index) const {
    const Channel& channel = channels_[index];
    uint64_t word = 0;
    return channel.taken < channel.limit && arrived(channel, channel.taken, word);
  }
  /// Makes a frame of a ready channel's next messages: those that are alike, up to `payload_bytes_most`, at
  /// least one. `credit`: of the incoming ring.
  OutFrame take(uint32_t channel, uint64_t payload_bytes_most, uint64_t credit);
  /// Whether three quarters of a ring are out without a credit. A peer that keeps up reports at the half.
  bool needs_credit() const;
  /// Whether the channel's last credit frame has left.
  bool credit_free(uint32_t channel) const { return !channels_[channel].credit_queued; }
  OutFrame make_credit(uint32_t channel, uint64_t credit);

  /// Describes the frame's bytes from `skip` on in at most `room` pieces. Returns how many. Fewer than `room`
  /// reach the frame's end.
  size_t gather(const OutFrame& frame, uint64_t skip, iovec* pieces, size_t room) const;
  /// The network no longer needs the frame's memory.
  void complete(const OutFrame& frame);

  /// Takes the peer's credit. False if it exceeds the messages sent, or goes back. It may go back with
  /// `may_be_late`, because frames of several connections overtake each other.
  bool accept_credit(uint32_t channel, uint32_t credit, bool may_be_late);
  bool has_waiting() const {
    uint64_t word = 0;
    for (const Channel& channel : channels_) {
      if (arrived(channel, channel.taken, word)) return true;
    }
    return false;
  }

  /// Whether the peer's credits show that all messages of this frame have arrived.
  bool has_arrived(const OutFrame& frame) const {
    return channels_[frame.channel].limit - (mask_ + 1) >= frame.first + frame.count;
  }
  /// Whether a message from this frame's first on is a reference.
  bool refers(const OutFrame& frame) const { return channels_[frame.channel].references > frame.first; }
  /// Whether the engine waits, or soon waits, for memory of sent messages: for a reference, or for a slot.
  bool owes_memory() const;

  /// Whether payloads of this size travel behind their header, in memory of the outbox. Others lie in slots
  /// or where a reference says.
  static bool is_packed(uint32_t message_bytes) { return message_bytes <= kPackedBytes; }

 private:
  /// Payloads up to this size are copied behind their header. A second piece costs as much as copying 1 KiB
  /// (`sendmsg` of 512 bytes: two pieces 4.5 us, one 4.2; of 2 KiB: 4.55 and 4.45).
  static constexpr uint32_t kPackedBytes = kMostPackedBytes;
  static constexpr size_t kHeadBytes = kHeaderBytes + kPackedBytes;
  struct Channel {
    const Cell* cells = nullptr;
    Credit* credit = nullptr;
    const std::byte* slots = nullptr;
    uint64_t taken = 0;       ///< messages below are in frames
    uint64_t released = 0;    ///< messages below were released to the engine
    uint64_t limit = 0;       ///< messages below have room at the peer
    uint64_t references = 0;  ///< messages below may be references
    bool credit_queued = false;
    std::byte credit_head[kHeaderBytes];
    /// kHeadBytes for each message of two rings; a frame begins in its first message's. A credit may cover
    /// the first of a run only, and lets a message a ring later be taken: the run must still lie here.
    std::vector<std::byte> heads;
    std::vector<uint8_t> is_complete;  ///< per slot, from `released` on
  };

  bool arrived(const Channel& channel, uint64_t number, uint64_t& word) const {
    word = load_shared(channel.cells[number & mask_].word, std::memory_order_acquire);
    return (word & flag::kNumberMask) == ((number + 1) & flag::kNumberMask);
  }
  const std::byte* payload(const Channel& channel, uint64_t number) const;
  uint64_t head_mask() const { return 2 * uint64_t{mask_} + 1; }

  std::vector<Channel> channels_;
  uint32_t mask_;
  uint32_t slot_bytes_;
  uint16_t epoch_;
};

}  // namespace tutti::tcp
