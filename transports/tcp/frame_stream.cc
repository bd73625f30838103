#include "transports/tcp/frame_stream.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "core/clock.h"

namespace tutti::tcp {
namespace {

constexpr size_t kPieces = 64;  ///< in one write or read
constexpr int kReadsMost = 8;   ///< in one receive()
/// After kSilentReads reads without data, only every kSilentStep-th read is made. A refused read costs 0.2
/// us, a look at a peer's rings 0.02 us.
constexpr uint32_t kSilentReads = 64;
constexpr uint32_t kSilentStep = 8;
/// Writes of this size end with a burst. So the last 300 bytes of a 256 KiB frame need no packet and
/// acknowledgement of their own: a stream of such frames is 9 % faster on loopback.
constexpr uint64_t kLongBytes = 128 * 1024;

/// After so many small writes without an arrival, small writes wait for each other (Stream::hold_small). On
/// loopback a packet costs 4 us, and 4 KiB in it cost 1 us.
constexpr uint32_t kStreamWrites = 4;
constexpr uint64_t kSmallBytes = kHeaderBytes + 32 * 1024;
/// After reading something and then nothing for so long, a stream acknowledges: the peer may hold data back.
/// Earlier acknowledgements only make more packets (after 2 us instead of 6: 10 % slower).
constexpr uint64_t kSilenceNs = 6000;

void shorten(iovec* pieces, size_t& used, uint64_t bytes) {
  while (bytes >= pieces[used - 1].iov_len) bytes -= pieces[--used].iov_len;
  pieces[used - 1].iov_len -= bytes;
}

}  // namespace

FrameStream::FrameStream(std::unique_ptr<Stream> stream, Inbox& inbox, Outbox& outbox,
                         const FrameStreamOptions& options, uint32_t& arrivals)
    : stream_(std::move(stream)),
      outbox_(outbox),
      receiver_(inbox, outbox, options.limits, options.may_be_late),
      // Every message of every ring, a credit for every channel, and the end. Twice, for credits that have
      // not arrived.
      queue_(std::bit_ceil(2 * (size_t{options.limits.channels} * (options.limits.slots + 1) + 1))),
      is_renewable_(options.is_renewable),
      ends_(options.ends),
      in_place_bytes_(options.in_place_bytes),
      in_place_(stream_->can_write_in_place()),
      arrivals_(arrivals) {}

void FrameStream::queue(const OutFrame& frame) {
  queued_bytes_ += frame.bytes;
  queued_end_ += frame.bytes;
  Queued& queued = at(end_++);
  queued.frame = frame;
  queued.end = queued_end_;
  queued.in_place = queued.is_complete = false;
  queued.copy.clear();
  queued.copied_from = 0;
  if (frame.count != 0) return;
  iovec head{};
  outbox_.gather(frame, 0, &head, 1);
  std::memcpy(queued.head.data(), head.iov_base, kHeaderBytes);
}

bool FrameStream::flush(bool more_follows) {
  if (way_ != WayState::kOpen) return false;
  const SendState before = send_;
  if (before != SendState::kReady && before != SendState::kFull) {
    drop();
    return false;
  }
  bool moved = false;
  bool may_stay = true;
  rest_waits_ = false;
  while (wants_flush()) {
    const SendEvent event = write_some(may_stay, more_follows);
    moved = moved || event == SendEvent::kTookAll || event == SendEvent::kTookSome;
    const SendMove move = on_event(send_, event);
    send_ = move.state;
    may_stay = move.action != SendAction::kRetryCopied;
    if (move.action == SendAction::kDrop) drop();
    if (move.action == SendAction::kWait) break;
  }
  if (wants_end_ && !has_to_write()) say_end();
  return moved || send_ != before;
}

SendEvent FrameStream::write_some(bool may_stay, bool more_follows) {
  iovec pieces[kPieces];
  size_t used = 0;
  uint64_t skip = sent_bytes_;
  for (uint32_t index = sending_; index != end_ && used < kPieces; ++index, skip = 0) {
    used += gather(at(index), skip, pieces + used, kPieces - used);
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < used; ++i) bytes += pieces[i].iov_len;
  const uint64_t rest = more_follows || arrivals_ == seen_arrivals_ ? rest_of(bytes) : 0;
  if (rest != 0) shorten(pieces, used, rest);
  bytes -= rest;
  const bool in_place = may_stay && in_place_ && bytes >= in_place_bytes_;
  choose_hold(bytes);
  const ssize_t done = stream_->write(pieces, used, in_place);
  if (done >= 0) {
    if (lone_writes_ < kStreamWrites) unacknowledged_ = false;  // the acknowledgement went with it
    account(static_cast<uint64_t>(done), in_place);
    if (static_cast<uint64_t>(done) != bytes) return SendEvent::kTookSome;
    rest_waits_ = rest != 0;
    return SendEvent::kTookAll;
  }
  return refusal(static_cast<int>(-done), in_place);
}

size_t FrameStream::gather(const Queued& queued, uint64_t skip, iovec* pieces, size_t room) const {
  const std::byte* bytes = nullptr;
  if (queued.frame.count == 0) {
    bytes = queued.head.data() + skip;
  } else if (is_copied(queued)) {
    bytes = queued.copy.data() + (skip - queued.copied_from);
  } else {
    return outbox_.gather(queued.frame, skip, pieces, room);
  }
  pieces[0] = {const_cast<std::byte*>(bytes), queued.frame.bytes - skip};  // the kernel only reads them
  return 1;
}

SendEvent FrameStream::refusal(int error, bool in_place) {
  if (error == EAGAIN) return SendEvent::kNoRoom;
  if (error == EINTR) return SendEvent::kInterrupted;
  if (error == ENOBUFS) return in_place ? SendEvent::kNoBuffers : SendEvent::kNoRoom;
  if (may_renew() && error != EBADMSG) {
    break_way(std::string(system_error("sending", error).text()));
    return SendEvent::kNoRoom;
  }
  if ((error == EPIPE || error == ECONNRESET) && only_credits_unsent()) return SendEvent::kPeerClosed;
  reason_ = std::string(system_error("sending", error).text());
  return SendEvent::kFailed;
}

/// Bytes to leave for the next write.
uint64_t FrameStream::rest_of(uint64_t bytes) const {
  if (bytes < kLongBytes) return 0;
  const uint64_t burst = stream_->burst_bytes();
  return burst == 0 || burst > bytes ? 0 : bytes % burst;
}

/// Decides before a write of `bytes` whether small writes are held.
void FrameStream::choose_hold(uint64_t bytes) {
  const bool is_stream = bytes <= kSmallBytes && arrivals_ == seen_arrivals_;
  seen_arrivals_ = arrivals_;
  if (!is_stream) {
    if (lone_writes_ == kStreamWrites) stream_->hold_small(false);
    lone_writes_ = 0;
  } else if (lone_writes_ < kStreamWrites && ++lone_writes_ == kStreamWrites) {
    stream_->hold_small(true);
  }
}

void FrameStream::acknowledge() {
  stream_->acknowledge();
  unacknowledged_ = false;
}

void FrameStream::account(uint64_t bytes, bool in_place) {
  if (in_place) ++in_place_writes_;
  queued_bytes_ -= bytes;
  written_ += bytes;
  if (!is_renewable_) arrived_ = written_;
  const bool repeats = written_ - bytes < repeats_;
  while (bytes > 0) {
    Queued& queued = at(sending_);
    const uint64_t part = std::min(bytes, queued.frame.bytes - sent_bytes_);
    sent_bytes_ += part;
    bytes -= part;
    if (in_place) {
      queued.in_place = true;
      queued.writes = in_place_writes_;
    }
    if (sent_bytes_ == queued.frame.bytes) {
      if (queued.frame.count == 0) complete(queued);  // another credit may be queued
      if (is_renewable_) copy_short(queued);
      ++sending_;
      sent_bytes_ = 0;
    }
  }
  if (repeats) note_repeated();
  if (is_renewable_) ask_at_times();
  retire();
}

void FrameStream::complete(Queued& queued) {
  if (!queued.is_complete) outbox_.complete(queued.frame);
  queued.is_complete = true;
}

/// Releases in order the memory of frames that the network no longer needs, and forgets what has arrived.
void FrameStream::retire() {
  if (is_renewable_) note_credits();
  for (; held_ != sending_ && !must_stay(at(held_)); ++held_) complete(at(held_));
  for (; first_ != held_ && at(first_).end <= arrived_; ++first_) {
    if (!at(first_).copy.empty()) spare_.push_back(std::exchange(at(first_).copy, {}));
  }
  if (static_cast<int32_t>(first_ - credited_) > 0) credited_ = first_;
}

/// Whether the engine cannot have this frame's memory yet.
bool FrameStream::must_stay(const Queued& queued) const {
  if (queued.in_place && static_cast<int32_t>(completed_ - queued.writes) < 0) return true;
  return queued.end > arrived_ && !is_copied(queued) && !Outbox::is_packed(queued.frame.message_bytes);
}

bool FrameStream::collect_completions() {
  if (completed_ == in_place_writes_) return false;
  bool moved = false;
  Completion completion;
  while (completed_ != in_place_writes_ && stream_->next_completion(completion)) {
    moved = true;
    if (completion.copied) in_place_ = false;
    completed_early_.emplace_back(completion.first, completion.last);
    for (size_t i = 0; i < completed_early_.size();) {
      if (completed_early_[i].first != completed_) {
        ++i;
        continue;
      }
      completed_ = completed_early_[i].second + 1;
      completed_early_[i] = completed_early_.back();
      completed_early_.pop_back();
      i = 0;
    }
  }
  if (moved) retire();
  return moved;
}

bool FrameStream::only_credits_unsent() {
  for (uint32_t index = sending_; index != end_; ++index) {
    if (at(index).frame.count != 0) return false;
  }
  return true;
}

/// Unsent credits are forgotten, unsent messages lost. Sent frames are released as usual.
void FrameStream::drop() {
  for (uint32_t index = sending_; index != end_; ++index) {
    if (at(index).frame.count == 0) complete(at(index));
  }
  end_ = sending_;
  sent_bytes_ = queued_bytes_ = 0;
  queued_end_ = written_;
}

bool FrameStream::may_receive() const {
  if (way_ != WayState::kOpen) return false;
  return receive_ == ReceiveState::kBetween || receive_ == ReceiveState::kInside;
}

bool FrameStream::worth_reading() {
  if (!may_receive()) return false;
  return silent_reads_ < kSilentReads || ++silent_reads_ % kSilentStep == 0;
}

bool FrameStream::receive() {
  if (!may_receive()) return false;
  const ReceiveState before = receive_;
  bool moved = false;
  for (int i = 0; i < kReadsMost; ++i) {
    bool all = false;
    const ReceiveEvent event = read_some(all);
    const bool came = event == ReceiveEvent::kWhole || event == ReceiveEvent::kPart;
    moved = moved || came;
    if (may_renew() && (event == ReceiveEvent::kFailed || event == ReceiveEvent::kEnd)) {
      break_way(reason_.empty() ? "it closed the connection" : reason_);
      return true;
    }
    const ReceiveMove move = on_event(receive_, event);
    receive_ = move.state;
    if (receiver_.has_ended()) receive_ = on_event(receive_, ReceiveEvent::kEnd).state;
    if (move.action == ReceiveAction::kWait || (came && !all)) break;
  }
  if (moved) {
    unacknowledged_ = true;
    came_ns_ = now_ns();
    if (held_ != sending_) retire();
  } else if (unacknowledged_ && now_ns() - came_ns_ >= kSilenceNs) {
    acknowledge();
  }
  silent_reads_ = moved ? 0 : silent_reads_ + (silent_reads_ < kSilentReads ? 1 : 0);
  return moved || receive_ != before;
}

void FrameStream::prepare_wait() {
  silent_reads_ = 0;
  acknowledge();
}

/// `all`: the read brought as many bytes as asked for.
ReceiveEvent FrameStream::read_some(bool& all) {
  iovec pieces[kPieces];
  const size_t used = receiver_.gather(pieces, kPieces);
  uint64_t bytes = 0;
  for (size_t i = 0; i < used; ++i) bytes += pieces[i].iov_len;
  const ssize_t done = stream_->read(pieces, used);
  if (done > 0) {
    const uint32_t frame_count = receiver_.frame_count();
    received_bytes_ += static_cast<uint64_t>(done);
    all = static_cast<uint64_t>(done) == bytes;
    if (Status taken = receiver_.take(static_cast<size_t>(done)); !taken.is_ok()) {
      reason_ = "it sent " + std::string(taken.text());
      return ReceiveEvent::kMalformed;
    }
    arrivals_ += receiver_.frame_count() - frame_count;
    return receiver_.inside() ? ReceiveEvent::kPart : ReceiveEvent::kWhole;
  }
  has_closed_ = done == 0;
  if (done == 0) {
    reason_ = receiver_.inside() ? "it closed the connection in the middle of a frame" : "";
    return ReceiveEvent::kEnd;
  }
  const int error = static_cast<int>(-done);
  if (error == EAGAIN) return ReceiveEvent::kNothing;
  if (error == EINTR) return ReceiveEvent::kInterrupted;
  reason_ = std::string(system_error("receiving", error).text());
  return error == EBADMSG ? ReceiveEvent::kMalformed : ReceiveEvent::kFailed;
}

void FrameStream::finish() {
  if (!may_renew()) return say_end();
  queue({.bytes = kHeaderBytes});
  Queued& end = at(end_ - 1);
  encode({.kind = FrameKind::kEnd, .epoch = ends_.epoch}, end.head.data());
  end.is_complete = true;  // it is no channel's credit
  wants_end_ = true;
  flush(false);
}

void FrameStream::say_end() {
  wants_end_ = false;
  has_said_end_ = true;
  const SendMove move = on_event(send_, SendEvent::kFinish);
  send_ = move.state;
  if (move.action == SendAction::kSayEnd) stream_->finish();
}

void FrameStream::tear(std::string reason) {
  if (may_renew()) return break_way(std::move(reason));
  reason_ = std::move(reason);
  receive_ = on_event(receive_, ReceiveEvent::kFailed).state;
}

}  // namespace tutti::tcp
