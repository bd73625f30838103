// FrameStream: what is kept of the bytes sent, and streams whose socket is replaced.
#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "transports/tcp/frame_stream.h"

namespace tutti::tcp {
namespace {

/// So many bytes without a credit make a busy stream ask the kernel. A question costs 0.9 us.
constexpr uint64_t kUnaskedBytes = 512 * 1024;
/// Copied at a time: 2 us of work.
constexpr uint64_t kCopyBytes = kHeaderBytes + 64 * 1024;
/// Short references are copied while no more than this is on its way: the caches hold the copies, and few
/// questions are needed.
constexpr uint64_t kCopiesBytes = 3 * kCopyBytes;
/// If more than kCopyBytes have not arrived, the peer gets time to confirm them: so many turns, 5 us.
constexpr uint32_t kVainAsks = 8;

}  // namespace

/// What the peer's credits cover has arrived.
void FrameStream::note_credits() {
  for (; credited_ != sending_; ++credited_) {
    const Queued& queued = at(credited_);
    if (queued.frame.count == 0) continue;
    if (!outbox_.has_arrived(queued.frame)) return;
    arrived_ = std::max(arrived_, queued.end);
  }
}

/// After a write. Where credits come in time, nobody asks.
void FrameStream::ask_at_times() {
  vain_asks_ = 0;
  const size_t many = queue_.size() / 4;
  const bool has_much = held_ != sending_ && written_ - std::max(arrived_, asked_) >= kUnaskedBytes;
  const bool has_many = sending_ - first_ >= many && sending_ - asked_frame_ >= many;
  if (has_much || has_many) ask_confirmed();
}

void FrameStream::ask_confirmed() {
  asked_ = written_;
  asked_frame_ = sending_;
  const uint64_t confirmed = stream_->confirmed_bytes();
  if (confirmed > greeting_bytes_)
    arrived_ = std::clamp(base_ + confirmed - greeting_bytes_, arrived_, written_);
}

bool FrameStream::free_memory() {
  if (way_ != WayState::kOpen) return false;
  const bool is_full = end_ - first_ >= queue_.size() / 2;
  if (!is_full && (held_ == sending_ || !outbox_.owes_memory())) return false;
  const uint64_t before = arrived_;
  ask_confirmed();
  retire();
  const bool moved = arrived_ != before;
  vain_asks_ = moved ? 0 : vain_asks_ + 1;
  if (vain_asks_ < kVainAsks && written_ - arrived_ > kCopyBytes) return moved;
  // A frame that has arrived, or is copied, waits only for the kernel to let go of its memory.
  if (held_ == sending_ || at(held_).end <= arrived_ || is_copied(at(held_))) return moved;
  copy(at(held_));
  retire();
  return true;
}

/// Copies references that have just been written, if little else is on its way. The call that sent them ends
/// before the peer confirms them. Now the caches hold them: copied by free_memory(), an all_reduce of 64 KiB
/// took 6 to 10 % longer (docs/measurements/torn_sockets.md).
void FrameStream::copy_short(Queued& queued) {
  if (queued.frame.bytes > kCopyBytes || Outbox::is_packed(queued.frame.message_bytes)) return;
  if (!outbox_.refers(queued.frame)) return;
  if (written_ - arrived_ > kCopiesBytes) {
    ask_confirmed();
    retire();
  }
  if (written_ - arrived_ <= kCopiesBytes && queued.end > arrived_) copy(queued);
}

/// Copies what has not arrived of a frame, up to kCopyBytes at a time.
void FrameStream::copy(Queued& queued) {
  const uint64_t begin = queued.end - queued.frame.bytes;
  const uint64_t arrived = arrived_ - std::min(arrived_, begin);
  if (queued.copy.empty() || arrived > queued.copied_from + queued.copy.size()) {
    if (queued.copy.empty() && !spare_.empty()) {
      queued.copy = std::move(spare_.back());
      spare_.pop_back();
    }
    queued.copy.clear();
    queued.copied_from = arrived;
  }
  for (uint64_t left = kCopyBytes; left > 0 && !is_copied(queued);) {
    iovec piece{};
    outbox_.gather(queued.frame, queued.copied_from + queued.copy.size(), &piece, 1);
    const auto* from = static_cast<const std::byte*>(piece.iov_base);
    const uint64_t bytes = std::min<uint64_t>(piece.iov_len, left);
    queued.copy.insert(queued.copy.end(), from, from + bytes);
    left -= bytes;
  }
}

uint64_t FrameStream::unconfirmed_bytes() const {
  const std::lock_guard lock(mutex_);
  return torn_bytes_ ? *torn_bytes_ : stream_->unconfirmed_bytes();
}

/// The socket is torn. Reads what has come: the peer's host has confirmed it.
void FrameStream::break_way(std::string reason) {
  if (way_ == WayState::kOpen) torn_ns_ = now_ns();
  const bool closed = has_closed_;
  const bool was_greeting = way_ == WayState::kGreeting;
  way_ = on_event(way_, WayEvent::kBroke);
  stream_->close();
  bool is_read = !was_greeting;
  if (was_greeting && greeting_->complete(*stream_)) {
    // The peer has gone on with this socket.
    resume(greeting_->theirs());
    is_read = true;
  }
  if (is_read) read_rest();
  stream_->forget();
  has_closed_ = closed;
  if (state() == PeerState::kOpen) reason_ = std::move(reason);
  const std::lock_guard lock(mutex_);
  torn_bytes_ = std::max(written_, repeats_) - arrived_;
}

void FrameStream::read_rest() {
  for (bool all = false;;) {
    const ReceiveEvent event = read_some(all);
    if (event == ReceiveEvent::kInterrupted) continue;
    if (event == ReceiveEvent::kNothing || event == ReceiveEvent::kEnd || event == ReceiveEvent::kFailed)
      return;
    receive_ = on_event(receive_, event).state;
    if (event == ReceiveEvent::kMalformed || receiver_.has_ended()) break;
  }
  if (receiver_.has_ended()) receive_ = on_event(receive_, ReceiveEvent::kEnd).state;
}

std::vector<OutFrame> FrameStream::take_unsent() {
  std::vector<OutFrame> frames;
  if (wants_end_) return frames;  // the end belongs to this stream
  const uint64_t begun = std::max(written_, repeats_);
  uint32_t whole = sending_;
  while (whole != end_ && at(whole).end - at(whole).frame.bytes < begun) ++whole;
  for (uint32_t index = whole; index != end_; ++index) {
    frames.push_back(at(index).frame);
    queued_bytes_ -= at(index).frame.bytes;
    queued_end_ -= at(index).frame.bytes;
  }
  end_ = whole;
  return frames;
}

void FrameStream::renew(std::unique_ptr<Stream> stream) {
  greeting_.emplace(Resume{.from = ends_.from,
                           .to = ends_.to,
                           .epoch = ends_.epoch,
                           .stream = ends_.stream,
                           .received = received_bytes_,
                           .sent = std::max(written_, repeats_)},
                    arrived_);
  way_ = on_event(way_, WayEvent::kSocket);
  for (uint32_t index = first_; index != end_; ++index) at(index).in_place = false;
  completed_early_.clear();
  completed_ = in_place_writes_ = 0;
  const std::lock_guard lock(mutex_);
  stream_ = std::move(stream);
}

bool FrameStream::greet() {
  if (way_ != WayState::kGreeting) return false;
  switch (greeting_->advance(*stream_)) {
    case Greeting::Outcome::kGoesOn: return false;
    case Greeting::Outcome::kDone:
      way_ = on_event(way_, WayEvent::kResumed);
      resume(greeting_->theirs());
      break;
    case Greeting::Outcome::kBroke: break_way(std::string(greeting_->failure().text())); break;
    case Greeting::Outcome::kWrong:
      reason_ = std::string(greeting_->failure().text());
      receive_ = on_event(receive_, ReceiveEvent::kMalformed).state;
      break;
  }
  return true;
}

/// Both ends stay with the socket.
void FrameStream::resume(const Resume& theirs) {
  repeats_ = std::max(written_, repeats_);
  base_ = theirs.received;
  greeting_bytes_ = Greeting::written_bytes();
  repeated_bytes_ = repeats_ - base_;
  send_from(base_);
  in_place_ = stream_->can_write_in_place();
  lone_writes_ = silent_reads_ = 0;
  rest_waits_ = unacknowledged_ = false;
  if (send_ == SendState::kFull || has_said_end_) send_ = SendState::kReady;
  wants_end_ = wants_end_ || has_said_end_;
  has_said_end_ = false;
  note_repeated();
}

/// All before `position` has arrived, and nothing else. Continues there.
void FrameStream::send_from(uint64_t position) {
  queued_bytes_ += written_ - position;
  written_ = arrived_ = asked_ = position;
  sending_ = held_ = credited_ = first_;
  while (sending_ != end_ && at(sending_).end <= position) ++sending_;
  sent_bytes_ = sending_ == end_ ? 0 : position - (at(sending_).end - at(sending_).frame.bytes);
  asked_frame_ = sending_;
  retire();
}

/// What was lost on the way is with the network again.
void FrameStream::note_repeated() {
  if (written_ < repeats_) return;
  const std::lock_guard lock(mutex_);
  torn_bytes_.reset();
}

void FrameStream::give_up(const std::string& why) {
  way_ = on_event(way_, WayEvent::kGivenUp);
  if (!why.empty()) reason_ += "; " + why;
  // A live peer that gives up a socket also closes it: only a peer that has gone has ended.
  const bool is_end = why.empty() && has_closed_ && !receiver_.inside();
  receive_ = on_event(receive_, is_end ? ReceiveEvent::kEnd : ReceiveEvent::kFailed).state;
  let_go();
}

/// Nothing will be sent again.
void FrameStream::let_go() {
  send_from(std::max(written_, repeats_));
  const std::lock_guard lock(mutex_);
  torn_bytes_.reset();
}

}  // namespace tutti::tcp
