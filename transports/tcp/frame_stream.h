// FrameStream: one stream to the peer: its queue of frames, its receiver and its states.
//
// A renewable stream outlives its socket. When the socket is torn, the stream reads what has come, and waits.
// With another socket both ends tell each other how much they have received (Resume), and each sends the rest
// again. Whatever else the peer sends, or a changed TLS record, ends the stream for good.
//
// So frames stay in the queue until they have arrived: a credit covers them, or the peer's kernel has
// confirmed them. Headers and packed payloads lie in memory of the outbox, which is used again when credits
// cover the whole frame. Other payloads stay in their slots, or are copied if they are references. Long
// references are first given time to arrive.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transports/tcp/inbox.h"
#include "transports/tcp/outbox.h"
#include "transports/tcp/receiver.h"
#include "transports/tcp/resume.h"
#include "transports/tcp/states.h"
#include "transports/tcp/stream.h"

namespace tutti::tcp {

struct FrameStreamOptions {
  FrameLimits limits;
  bool may_be_late = false;
  /// Writes of at least this size avoid the copy, where the stream can.
  uint64_t in_place_bytes = UINT64_MAX;
  bool is_renewable = false;
  Resume ends = {};  ///< ranks, epoch and number of the stream
};

class FrameStream {
 public:
  /// `arrivals` counts the rank's data frames on all connections, this one included, and wraps.
  FrameStream(std::unique_ptr<Stream> stream, Inbox& inbox, Outbox& outbox, const FrameStreamOptions& options,
              uint32_t& arrivals);

  /// Whether to queue another frame here now.
  bool has_room() const {
    return send_ == SendState::kReady && queued_bytes_ < kQueueBytesMost && way_ == WayState::kOpen &&
           !wants_end_ && end_ - first_ + 1 < queue_.size();  // one place is left for the end
  }
  bool has_batch() const { return queued_bytes_ >= kBatchBytes || end_ - sending_ >= kBatchFrames; }
  /// Whether bytes need another turn of this rank to arrive.
  bool has_unsent() const { return has_to_write() || (way_ != WayState::kOpen && arrived_ != written_); }
  /// Whether there are unsent bytes, other than a remainder that waits for a later write to fill a burst.
  bool wants_flush() const { return way_ == WayState::kOpen && has_to_write() && !rest_waits_; }
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
  /// The peer's host does not answer.
  void tear(std::string reason);

  // A renewable stream:

  /// If the engine waits for memory of sent frames, asks the kernel what has arrived, and copies some of the
  /// rest. True if there was any.
  bool free_memory();
  WayState way() const { return way_; }
  uint64_t torn_ns() const { return torn_ns_; }
  /// Queued frames of which nothing has been written, for other streams.
  std::vector<OutFrame> take_unsent();
  /// As tear(), where the peer has seen that the socket is torn.
  void abandon() { break_way("the peer has given up the connection"); }
  /// Whether renew() may follow: torn, and the kernel has let go of all memory.
  bool is_waiting() const { return way_ == WayState::kTorn && completed_ == in_place_writes_; }
  /// Uses another socket.
  void renew(std::unique_ptr<Stream> stream);
  /// Goes on with Resume. True if the state changed.
  bool greet();
  /// No other socket comes. `why`: empty if the peer is gone.
  void give_up(const std::string& why);
  /// Nothing will be sent again: the engine has all memory that the network does not use.
  void let_go();
  /// Bytes that the last resume sent again.
  uint64_t repeated_bytes() const { return repeated_bytes_; }

  SendState send_state() const { return send_; }
  ReceiveState receive_state() const { return receive_; }
  PeerState state() const { return combined_state(send_, receive_); }
  const std::string& reason() const { return reason_; }
  const Stream& stream() const { return *stream_; }
  /// As Connection::unconfirmed_bytes. Any thread.
  uint64_t unconfirmed_bytes() const;

 private:
  static constexpr uint64_t kQueueBytesMost = 256 * 1024;
  static constexpr uint64_t kBatchBytes = 128 * 1024;
  static constexpr uint32_t kBatchFrames = 24;

  struct Queued {
    OutFrame frame;
    uint64_t end = 0;  ///< position behind the frame
    bool in_place = false;
    bool is_complete = false;  ///< the engine has its memory back
    uint32_t writes = 0;       ///< in_place: done after so many completed writes without a copy
    std::array<std::byte, kHeaderBytes> head;  ///< of a credit, or the end
    uint64_t copied_from = 0;                  ///< offset in the frame
    std::vector<std::byte> copy = {};          ///< of its bytes from there on, so far
  };
  static bool is_copied(const Queued& queued) {
    return queued.copied_from + queued.copy.size() == queued.frame.bytes;
  }
  Queued& at(uint32_t index) { return queue_[index & (queue_.size() - 1)]; }

  bool has_to_write() const { return sending_ != end_; }
  SendEvent write_some(bool may_stay, bool more_follows);
  size_t gather(const Queued& queued, uint64_t skip, iovec* pieces, size_t room) const;
  SendEvent refusal(int error, bool in_place);
  uint64_t rest_of(uint64_t bytes) const;
  void choose_hold(uint64_t bytes);
  void acknowledge();
  ReceiveEvent read_some(bool& all);
  void account(uint64_t bytes, bool in_place);
  bool may_receive() const;
  void complete(Queued& queued);
  void retire();
  void drop();
  bool only_credits_unsent();
  /// Whether another socket may take the place of this one: not once the peer has said that it ends.
  bool may_renew() const { return is_renewable_ && !receiver_.has_ended(); }
  void say_end();
  bool must_stay(const Queued& queued) const;
  void note_credits();
  void ask_at_times();
  void ask_confirmed();
  void copy_short(Queued& queued);
  void copy(Queued& queued);
  void send_from(uint64_t position);
  void note_repeated();
  void break_way(std::string reason);
  void read_rest();
  void resume(const Resume& theirs);

  std::unique_ptr<Stream> stream_;
  mutable std::mutex mutex_;  ///< held to exchange stream_, and by other threads
  /// Not confirmed when the socket was torn, until they are sent again. Guarded by mutex_.
  std::optional<uint64_t> torn_bytes_;
  Outbox& outbox_;
  Receiver receiver_;
  SendState send_ = SendState::kReady;
  ReceiveState receive_ = ReceiveState::kBetween;
  std::string reason_;

  // Frames in order of queueing: [first_, sending_) are sent, [sending_, end_) are not. The engine has all
  // memory of [first_, held_), which may not have arrived. Indices wrap.
  std::vector<Queued> queue_;
  uint32_t first_ = 0;
  uint32_t held_ = 0;
  uint32_t sending_ = 0;
  uint32_t end_ = 0;
  uint64_t sent_bytes_ = 0;  ///< of the frame at sending_
  uint64_t queued_bytes_ = 0;
  bool rest_waits_ = false;  ///< the last write ended with a burst, and the unsent bytes do not fill another

  bool is_renewable_;
  Resume ends_;
  WayState way_ = WayState::kOpen;
  // Positions count the bytes of the stream over all its sockets.
  uint64_t queued_end_ = 0;
  uint64_t written_ = 0;
  uint64_t arrived_ = 0;  ///< all before has arrived; of a stream that is not renewable: written_
  uint64_t repeats_ = 0;  ///< bytes before this position were written before
  uint64_t base_ = 0;     ///< of the socket's first byte behind the greeting
  uint64_t asked_ = 0;    ///< written_ when the kernel was asked last
  uint64_t received_bytes_ = 0;
  uint64_t greeting_bytes_ = 0;
  uint32_t credited_ = 0;     ///< frames of the queue before this one need no look at their credits
  uint32_t asked_frame_ = 0;  ///< sending_ when the kernel was asked last
  uint32_t vain_asks_ = 0;    ///< since the last write or confirmation
  std::vector<std::vector<std::byte>> spare_;  ///< memory for copies
  std::optional<Greeting> greeting_;
  uint64_t torn_ns_ = 0;
  uint64_t repeated_bytes_ = 0;
  bool has_closed_ = false;  ///< the torn socket was closed by the peer
  bool wants_end_ = false;   ///< the end is queued or sent, and the socket is still to be told
  bool has_said_end_ = false;

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
