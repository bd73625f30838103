// FrameStream: one stream to the peer: its queue of frames, its receiver and its states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transports/tcp/inbox.h"
#include "transports/tcp/outbox.h"
#include "transports/tcp/receiver.h"
#include "transports/tcp/states.h"
#include "transports/tcp/stream.h"

namespace tutti::tcp {

class FrameStream {
 public:
  /// Writes of at least `in_place_bytes` avoid the copy, where the stream can. `arrivals` counts the rank's
  /// data frames on all connections, this one included, and wraps.
  FrameStream(std::unique_ptr<Stream> stream, Inbox& inbox, Outbox& outbox, const FrameLimits& limits,
              bool may_be_late, uint64_t in_place_bytes, uint32_t& arrivals);

  /// Whether to queue another frame here now.
  bool has_room() const { return send_ == SendState::kReady && queued_bytes_ < kQueueBytesMost; }
  bool has_batch() const { return queued_bytes_ >= kBatchBytes || end_ - sending_ >= kBatchFrames; }
  bool has_unsent() const { return sending_ != end_; }
  /// Whether there are unsent bytes, other than a remainder that waits for a later write to fill a burst.
  bool wants_flush() const { return has_unsent() && !rest_waits_; }
  /// Lets the remainder go.
  void release_rest() { rest_waits_ = false; }
  void queue(const OutFrame& frame);
  /// Writes until the stream takes no more. A long write stops at the end of a burst (Stream::burst_bytes) if
  /// more follows, or if no data frame has come since the last write. True if bytes were written or the state
  /// changed.
  bool flush(bool more_follows);

  /// Reads what has come, up to a bound, so that the engine works while the data is in the cache. True if
  /// bytes came or the state changed.
  bool receive();
  /// Whether to call receive(). A silent stream is not asked each time.
  bool worth_reading();
  /// Takes reports of writes without a copy. True if there were any.
  bool collect_completions();

  /// Call it before the rank sleeps. The next worth_reading() is true.
  void prepare_wait();
  void withdraw() { receiver_.withdraw(); }
  /// Nothing more will be queued. Requires !has_unsent().
  void finish();
  void tear(std::string reason);

  SendState send_state() const { return send_; }
  ReceiveState receive_state() const { return receive_; }
  PeerState state() const { return combined_state(send_, receive_); }
  const std::string& reason() const { return reason_; }
  const Stream& stream() const { return *stream_; }

 private:
  static constexpr uint64_t kQueueBytesMost = 256 * 1024;
  static constexpr uint64_t kBatchBytes = 128 * 1024;
  static constexpr uint32_t kBatchFrames = 24;

  struct Queued {
    OutFrame frame;
    bool in_place = false;
    uint32_t writes = 0;  ///< in_place: done after so many completed writes without a copy
  };
  Queued& at(uint32_t index) { return queue_[index & (queue_.size() - 1)]; }

  SendEvent write_some(bool may_stay, bool more_follows);
  uint64_t rest_of(uint64_t bytes) const;
  void choose_hold(uint64_t bytes);
  void acknowledge();
  ReceiveEvent read_some(bool& all);
  void account(uint64_t bytes, bool in_place);
  bool may_receive() const;
  void retire();
  void drop();
  bool only_credits_unsent();

  std::unique_ptr<Stream> stream_;
  Outbox& outbox_;
  Receiver receiver_;
  SendState send_ = SendState::kReady;
  ReceiveState receive_ = ReceiveState::kBetween;
  std::string reason_;

  // Frames in order of queueing: [first_, sending_) are sent, [sending_, end_) are not. Indices wrap.
  std::vector<Queued> queue_;
  uint32_t first_ = 0;
  uint32_t sending_ = 0;
  uint32_t end_ = 0;
  uint64_t sent_bytes_ = 0;
  uint64_t queued_bytes_ = 0;
  bool rest_waits_ = false;  ///< the last write ended with a burst, and the unsent bytes do not fill another

  uint64_t in_place_bytes_;
  bool in_place_;  ///< writes without a copy still gain something
  uint32_t in_place_writes_ = 0;
  uint32_t completed_ = 0;  ///< in-place writes below are completed
  std::vector<std::pair<uint32_t, uint32_t>> completed_early_;

  uint32_t silent_reads_ = 0;
  uint32_t& arrivals_;
  uint32_t seen_arrivals_ = 0;  ///< at the last write
  uint32_t lone_writes_ =
      0;  ///< small writes without an arrival between; at kStreamWrites, small writes are held
  bool unacknowledged_ = false;  ///< something has come since the last write or acknowledgement
  uint64_t came_ns_ = 0;
};

}  // namespace tutti::tcp
