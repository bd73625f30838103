// Outbox: the outgoing rings to one peer as frames, and what the peer has said about its room.
//
// A message leaves the ring in three steps: taken into a frame (when the peer has a slot for it), sent, and
// given back to the engine (when the network needs its memory no more).
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transports/connection.h"
#include "transports/tcp/frame.h"

namespace tutti::tcp {

/// A frame on its way out.
struct OutFrame {
  uint32_t channel = 0;
  uint32_t count = 0;  ///< messages; 0: a credit
  uint64_t first = 0;  ///< number of the first one
  uint64_t bytes = 0;  ///< of the frame, with its header
  uint32_t message_bytes = 0;
};

class Outbox {
 public:
  Outbox(std::span<const ChannelRings> channels, const RingShape& shape, uint16_t epoch);

  uint32_t channel_count() const { return static_cast<uint32_t>(channels_.size()); }
  /// Payload bytes of a ready channel's next message.
  uint32_t next_bytes(uint32_t channel) const;
  /// Whether the channel's next message is there and the peer has room for it.
  bool ready(uint32_t channel) const;
  /// Makes a frame of a ready channel: its next messages, as many as are alike, up to `payload_bytes_most` or
  /// one. `credit`: what it says about the incoming ring.
  OutFrame take(uint32_t channel, uint64_t payload_bytes_most, uint64_t credit);
  /// Whether three quarters of a window or more are out: by then a peer that keeps up has said, at the half,
  /// what it has given back.
  bool needs_credit() const;
  /// Whether a credit can be made: the channel's last one has left.
  bool credit_free(uint32_t channel) const { return !channels_[channel].credit_queued; }
  OutFrame make_credit(uint32_t channel, uint64_t credit);

  /// Puts where the frame's bytes from `skip` on lie into at most `room` pieces; how many it used. All of the
  /// rest if that is less than `room`.
  size_t gather(const OutFrame& frame, uint64_t skip, iovec* pieces, size_t room) const;
  /// The network needs the frame's memory no more.
  void complete(const OutFrame& frame);

  /// The peer has given back so many messages. False: more than were sent, or less than before where
  /// `may_be_late` (frames of several connections overtake each other) does not explain it.
  bool accept_credit(uint32_t channel, uint32_t credit, bool may_be_late);
  /// Whether a committed message is still in the ring.
  bool has_waiting() const;

 private:
  /// Payloads up to this size are copied behind their header, so that there is one piece to write: a second
  /// one costs as much as copying 1 KiB (measured with `sendmsg`: 512 bytes in two pieces 4.5 us, in one 4.2;
  /// 2 KiB 4.55 and 4.45).
  static constexpr uint32_t kPackedBytes = 1024;
  static constexpr size_t kHeadBytes = kHeaderBytes + kPackedBytes;
  struct Channel {
    const Cell* cells = nullptr;
    Credit* credit = nullptr;
    const std::byte* slots = nullptr;
    uint64_t taken = 0;     ///< messages below are in frames
    uint64_t released = 0;  ///< messages below were given back to the engine
    uint64_t limit = 0;     ///< messages below have room at the peer
    bool credit_queued = false;
    std::byte credit_head[kHeaderBytes];
    std::vector<std::byte> heads;      ///< kHeadBytes by slot; a frame's lies at its first slot
    std::vector<uint8_t> is_complete;  ///< by slot, from `released` on
  };

  bool arrived(const Channel& channel, uint64_t number, uint64_t& word) const;
  const std::byte* payload(const Channel& channel, uint64_t number) const;
  static bool is_packed(uint32_t message_bytes) { return message_bytes <= kPackedBytes; }

  std::vector<Channel> channels_;
  uint32_t mask_;
  uint32_t slot_bytes_;
  uint16_t epoch_;
};

}  // namespace tutti::tcp
