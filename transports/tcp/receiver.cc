#include "transports/tcp/receiver.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <vector>

namespace tutti::tcp {

size_t Receiver::gather(iovec* pieces, size_t room) {
  size_t used = 0;
  straight_ = 0;
  expected_ = nullptr;
  uint64_t done = done_;
  for (uint32_t i = 0; i < messages_left_; ++i, done = 0) {
    std::byte* start = inbox_.place(frame_.channel, number_ + i, frame_.bytes) + done;
    const uint64_t bytes = frame_.bytes - done;
    if (used > 0 && static_cast<std::byte*>(pieces[used - 1].iov_base) + pieces[used - 1].iov_len == start) {
      pieces[used - 1].iov_len += bytes;
    } else if (used < room) {
      pieces[used++] = {start, bytes};
    } else {
      return used;
    }
    straight_ += bytes;
  }
  if (room - used >= 3) expected_ = expected_place();
  if (expected_ != nullptr) {
    pieces[used++] = {buffer_.data() + end_, kHeaderBytes - end_};
    pieces[used++] = {expected_, frame_.bytes};
    pieces[used++] = {buffer_.data() + kHeaderBytes, buffer_.size() - kHeaderBytes};
  } else if (used < room) {
    pieces[used++] = {buffer_.data() + end_, buffer_.size() - end_};
  }
  return used;
}

/// Null: expect nothing. A message that fits the buffer comes with one read anyway.
std::byte* Receiver::expected_place() const {
  if (!steady_ || frame_.bytes + kHeaderBytes <= kBufferBytes) return nullptr;
  return inbox_.expected_place(frame_.channel, number_ + messages_left_, frame_.bytes);
}

/// Whether a frame continues the current one: next number, same size.
bool Receiver::continues(const Frame& frame) const {
  return frame.kind == FrameKind::kData && frame.channel == frame_.channel && frame.bytes == frame_.bytes &&
         frame.number == ((number_ + messages_left_) & flag::kNumberMask);
}

Status Receiver::take(size_t bytes) {
  const size_t straight = std::min<uint64_t>(bytes, straight_);
  straight_ = 0;
  pass(straight);
  bytes -= straight;
  if (expected_ != nullptr && end_ + bytes > kHeaderBytes) return take_expected(bytes);
  end_ += bytes;
  return parse(buffer_.data(), end_);
}

Status Receiver::take_from(std::span<const std::byte> bytes) {
  if (end_ > 0) {
    const size_t missing = std::min(kHeaderBytes - end_, bytes.size());
    std::memcpy(buffer_.data() + end_, bytes.data(), missing);
    end_ += missing;
    bytes = bytes.subspan(missing);
    TUTTI_TRY(parse(buffer_.data(), end_));
  }
  return bytes.empty() ? Status::ok() : parse(bytes.data(), bytes.size());
}

/// A whole header has come, with bytes at the expected message's destination.
Status Receiver::take_expected(size_t bytes) {
  const size_t behind = bytes - (kHeaderBytes - end_);
  const size_t placed = std::min<size_t>(behind, frame_.bytes);
  const std::byte* buffered = buffer_.data() + kHeaderBytes;  // what follows that message
  const Result<Frame> frame = decode(buffer_.data(), limits_);
  if (frame.is_ok() && continues(*frame)) {
    TUTTI_TRY(begin_frame(buffer_.data()));
    [[maybe_unused]] const std::byte* place = inbox_.place(frame_.channel, number_, frame_.bytes);
    assert(place == expected_);
    pass(placed);
    return parse(buffered, behind - placed);
  }
  std::vector<std::byte> all(buffer_.begin(), buffer_.begin() + kHeaderBytes);
  all.insert(all.end(), expected_, expected_ + placed);
  all.insert(all.end(), buffered, buffered + (behind - placed));
  return parse(all.data(), all.size());
}

/// The beginning of a header stays in the buffer.
Status Receiver::parse(const std::byte* bytes, size_t count) {
  const std::byte* end = bytes + count;
  while (bytes < end) {
    const auto left = static_cast<size_t>(end - bytes);
    if (messages_left_ > 0) {
      const uint64_t chunk = std::min<uint64_t>(left, frame_.bytes - done_);
      std::memcpy(inbox_.place(frame_.channel, number_, frame_.bytes) + done_, bytes, chunk);
      bytes += chunk;
      pass(chunk);
    } else if (left >= kHeaderBytes) {
      TUTTI_TRY(begin_frame(bytes));
      bytes += kHeaderBytes;
    } else {
      break;
    }
  }
  end_ = static_cast<size_t>(end - bytes);
  std::memmove(buffer_.data(), bytes, end_);
  return Status::ok();
}

Status Receiver::begin_frame(const std::byte* header) {
  if (has_ended_) return {Code::kPeerLost, "a frame behind the end"};
  Result<Frame> frame = decode(header, limits_);
  TUTTI_TRY(frame.status());
  has_ended_ = frame->kind == FrameKind::kEnd;
  if (has_ended_) return Status::ok();
  if (!outbox_.accept_credit(frame->channel, frame->credit, may_be_late_)) {
    return Status(Code::kPeerLost, format("a credit up to %u on channel %u, more than was sent",
                                          frame->credit, frame->channel));
  }
  if (frame->kind == FrameKind::kCredit) return Status::ok();
  Result<uint64_t> first = inbox_.claim(*frame);
  TUTTI_TRY(first.status());
  ++frame_count_;
  steady_ = !may_be_late_ && continues(*frame);
  frame_ = *frame;
  number_ = *first;
  messages_left_ = frame->count;
  done_ = 0;
  if (frame_.bytes == 0) {
    while (messages_left_ > 0) publish_one();
  }
  return Status::ok();
}

/// Payload bytes have reached their destinations.
void Receiver::pass(uint64_t bytes) {
  while (bytes > 0) {
    const uint64_t chunk = std::min<uint64_t>(bytes, frame_.bytes - done_);
    done_ += chunk;
    bytes -= chunk;
    if (done_ == frame_.bytes) publish_one();
  }
}

void Receiver::publish_one() {
  inbox_.publish(frame_.channel, number_, frame_.signature, frame_.bytes);
  ++number_;
  --messages_left_;
  done_ = 0;
}

void Receiver::withdraw() {
  for (uint32_t i = 0; i < messages_left_; ++i) {
    inbox_.move_to_slot(frame_.channel, number_ + i, frame_.bytes, i == 0 ? done_ : 0);
  }
}

}  // namespace tutti::tcp
