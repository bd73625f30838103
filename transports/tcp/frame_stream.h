// FrameStream: one stream to the peer: frames queued for it, frames coming from it, and its states.
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
  /// `in_place_bytes`: writes of at least this size are made without copy, where the stream can. `arrivals`:
  /// data frames that have come over all connections of the rank, wrapping; counted here, too.
  FrameStream(std::unique_ptr<Stream> stream, Inbox& inbox, Outbox& outbox, const FrameLimits& limits,
              bool may_be_late, uint64_t in_place_bytes, uint32_t& arrivals);

  /// Whether another frame should be queued here rather than elsewhere or later.
  bool has_room() const { return send_ == SendState::kReady && queued_bytes_ < kQueueBytesMost; }
  /// Whether what is queued is worth a write.
  bool has_batch() const { return queued_bytes_ >= kBatchBytes || end_ - sending_ >= kBatchFrames; }
  bool has_unsent() const { return sending_ != end_; }
  /// has_unsent(), and it is not the end of a long write that waits for what may follow it.
  bool wants_flush() const { return has_unsent() && !rest_waits_; }
  /// That end waits no longer.
  void release_rest() { rest_waits_ = false; }
  void queue(const OutFrame& frame);
  /// Writes what is queued, as far as the stream takes it; a long write up to the end of a burst
  /// (Stream::burst_bytes), where more follows or nobody has answered since the last one. True when it took
  /// anything, or its state changed.
  bool flush(bool more_follows);

  /// Reads what is there, up to a bound that lets the engine work while the data is in the cache. True when
  /// bytes came or the state changed.
  bool receive();
  /// Whether receive() may bring anything: a stream that was silent the last times is not asked each time.
  bool worth_reading();
  /// Takes reports of writes without copy. True when there were any.
  bool collect_completions();

  /// The rank is about to sleep until something comes; the next worth_reading() is true.
  void prepare_wait();
  void withdraw() { receiver_.withdraw(); }
  /// Nothing more will be queued; !has_unsent().
  void finish();
  void tear(std::string reason);

  SendState send_state() const { return send_; }
  ReceiveState receive_state() const { return receive_; }
  PeerState state() const { return combined_state(send_, receive_); }
  /// What happened, when state() is kTorn.
  const std::string& reason() const { return reason_; }
  const Stream& stream() const { return *stream_; }

 private:
  static constexpr uint64_t kQueueBytesMost = 256 * 1024;
  static constexpr uint64_t kBatchBytes = 128 * 1024;
  static constexpr uint32_t kBatchFrames = 24;

  struct Queued {
    OutFrame frame;
    bool in_place = false;
    uint32_t writes = 0;  ///< in_place: done when so many writes without copy are completed
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

  // Frames in the order of queueing: [first_, sending_) are sent, [sending_, end_) are not. Wrapping.
  std::vector<Queued> queue_;
  uint32_t first_ = 0;
  uint32_t sending_ = 0;
  uint32_t end_ = 0;
  uint64_t sent_bytes_ = 0;    ///< of the frame at sending_
  uint64_t queued_bytes_ = 0;  ///< unsent
  bool rest_waits_ = false;    ///< the last write ended with a burst, and what is unsent does not fill one

  uint64_t in_place_bytes_;
  bool in_place_;                 ///< writes without copy gain something here
  uint32_t in_place_writes_ = 0;  ///< made so far
  uint32_t completed_ = 0;        ///< of them: all below
  std::vector<std::pair<uint32_t, uint32_t>> completed_early_;

  uint32_t silent_reads_ = 0;
  uint32_t& arrivals_;
  uint32_t seen_arrivals_ = 0;   ///< at the last write
  uint32_t lone_writes_ = 0;     ///< small ones since then, at most kStreamWrites: small ones are held
  bool unacknowledged_ = false;  ///< something has come since what was sent or acknowledged last
  uint64_t came_ns_ = 0;         ///< when
};

}  // namespace tutti::tcp
