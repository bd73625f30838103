#include "transports/tcp/receiver.h"

#include <algorithm>
#include <cstring>

namespace tutti::tcp {

size_t Receiver::gather(iovec* pieces, size_t room) {
  size_t used = 0;
  straight_ = 0;
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
  if (used < room) pieces[used++] = {buffer_.data() + end_, buffer_.size() - end_};
  return used;
}

Status Receiver::take(size_t bytes) {
  const size_t straight = std::min<uint64_t>(bytes, straight_);
  straight_ = 0;
  pass(straight);
  end_ += bytes - straight;
  size_t begin = 0;
  while (begin < end_) {
    if (messages_left_ > 0) {
      const uint64_t chunk = std::min<uint64_t>(end_ - begin, frame_.bytes - done_);
      std::memcpy(inbox_.place(frame_.channel, number_, frame_.bytes) + done_, buffer_.data() + begin, chunk);
      begin += chunk;
      pass(chunk);
    } else if (end_ - begin >= kHeaderBytes) {
      TUTTI_TRY(begin_frame(buffer_.data() + begin));
      begin += kHeaderBytes;
    } else {
      break;
    }
  }
  std::memmove(buffer_.data(), buffer_.data() + begin, end_ - begin);
  end_ -= begin;
  return Status::ok();
}

Status Receiver::begin_frame(const std::byte* header) {
  Result<Frame> frame = decode(header, limits_);
  TUTTI_TRY(frame.status());
  if (!outbox_.accept_credit(frame->channel, frame->credit, may_be_late_)) {
    return Status(Code::kPeerLost, format("a credit up to %u on channel %u, more than was sent",
                                          frame->credit, frame->channel));
  }
  if (frame->kind == FrameKind::kCredit) return Status::ok();
  Result<uint64_t> first = inbox_.claim(*frame);
  TUTTI_TRY(first.status());
  ++frame_count_;
  frame_ = *frame;
  number_ = *first;
  messages_left_ = frame->count;
  done_ = 0;
  if (frame_.bytes == 0) {
    while (messages_left_ > 0) publish_one();
  }
  return Status::ok();
}

/// Payload bytes have come to their places.
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
