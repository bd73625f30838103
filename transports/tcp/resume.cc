#include "transports/tcp/resume.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::tcp {
namespace {

constexpr uint64_t kMagic = 0x6d73726974747574;  // "tuttirsm"
constexpr uint64_t kReady = 0x7964726974747574;  // "tuttirdy"

using Words = std::array<uint64_t, kResumeBytes / sizeof(uint64_t)>;

Status wrong(const char* what, uint64_t value, uint64_t expected) {
  return {Code::kPeerLost,
          format("it resumes with %s %llu (here: %llu)", what, static_cast<unsigned long long>(value),
                 static_cast<unsigned long long>(expected))};
}

}  // namespace

std::array<std::byte, kResumeBytes> encode(const Resume& resume) {
  const Words words = {kMagic, resume.from | static_cast<uint64_t>(resume.to) << 32,
                       resume.epoch | static_cast<uint64_t>(resume.stream) << 16, resume.received,
                       resume.sent};
  std::array<std::byte, kResumeBytes> bytes{};
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

Result<Resume> decode(std::span<const std::byte, kResumeBytes> bytes, const Resume& mine, uint64_t kept) {
  Words words{};
  std::memcpy(words.data(), bytes.data(), bytes.size());
  const Resume theirs{.from = static_cast<uint32_t>(words[1]),
                      .to = static_cast<uint32_t>(words[1] >> 32),
                      .epoch = static_cast<uint16_t>(words[2]),
                      .stream = static_cast<uint16_t>(words[2] >> 16),
                      .received = words[3],
                      .sent = words[4]};
  if (words[0] != kMagic) return wrong("the word", words[0], kMagic);
  if (words[2] >> 32 != 0) return wrong("reserved bits", words[2] >> 32, 0);
  if (theirs.from != mine.to) return wrong("rank", theirs.from, mine.to);
  if (theirs.to != mine.from) return wrong("peer", theirs.to, mine.from);
  if (theirs.epoch != mine.epoch) return wrong("epoch", theirs.epoch, mine.epoch);
  if (theirs.stream != mine.stream) return wrong("stream", theirs.stream, mine.stream);
  if (theirs.sent < mine.received) return wrong("sent bytes", theirs.sent, mine.received);
  if (theirs.received > mine.sent) return wrong("received bytes", theirs.received, mine.sent);
  if (theirs.received < kept)
    return wrong("received bytes, fewer than its host has confirmed,", theirs.received, kept);
  return theirs;
}

Greeting::Outcome Greeting::broke(const char* what, ssize_t error) {
  failure_ = error == 0 ? Status(Code::kPeerLost, "it closed the new connection")
                        : system_error(what, static_cast<int>(-error));
  return error == -EBADMSG ? Outcome::kWrong : Outcome::kBroke;
}

Greeting::Outcome Greeting::write(Stream& stream) {
  while (out_done_ < out_bytes_) {
    const iovec piece{out_.data() + out_done_, out_bytes_ - out_done_};
    const ssize_t done = stream.write(&piece, 1, false);
    if (done == -EAGAIN || done == -EINTR || done == -ENOBUFS) return Outcome::kGoesOn;
    if (done < 0) return broke("sending", done);
    out_done_ += static_cast<size_t>(done);
  }
  return Outcome::kDone;
}

/// kDone: both messages have come.
Greeting::Outcome Greeting::read(Stream& stream) {
  while (!has_ready_) {
    const size_t wanted = has_hello_ ? kReadyBytes : kResumeBytes;
    const iovec piece{in_.data() + in_done_, wanted - in_done_};
    const ssize_t done = stream.read(&piece, 1);
    if (done == -EAGAIN || done == -EINTR) return Outcome::kGoesOn;
    if (done <= 0) return broke("receiving", done);
    in_done_ += static_cast<size_t>(done);
    if (in_done_ < wanted) continue;
    in_done_ = 0;
    if (has_hello_) {
      has_ready_ = std::memcmp(in_.data(), &kReady, kReadyBytes) == 0;
      if (!has_ready_) failure_ = {Code::kPeerLost, "it resumes without being ready"};
      if (!has_ready_) return Outcome::kWrong;
      continue;
    }
    const auto theirs = decode(in_, mine_, kept_);
    failure_ = theirs.status();
    if (!theirs) return Outcome::kWrong;
    theirs_ = *theirs;
    has_hello_ = true;
  }
  return Outcome::kDone;
}

Greeting::Outcome Greeting::advance(Stream& stream) {
  if (!is_secure_) {
    const auto done = stream.shake_hands();
    failure_ = done.status();
    if (!done) return Outcome::kBroke;
    if (!*done) return Outcome::kGoesOn;
    is_secure_ = true;
  }
  Outcome sent = write(stream);
  if (sent == Outcome::kBroke || sent == Outcome::kWrong) return sent;
  const Outcome came = read(stream);
  if (came == Outcome::kBroke || came == Outcome::kWrong) return came;
  if (has_hello_ && owes_ready_ && sent == Outcome::kDone) {
    owes_ready_ = false;
    std::memcpy(out_.data(), &kReady, kReadyBytes);
    out_done_ = 0;
    out_bytes_ = kReadyBytes;
    sent = write(stream);
    if (sent == Outcome::kBroke || sent == Outcome::kWrong) return sent;
  }
  return came == Outcome::kDone && sent == Outcome::kDone && !owes_ready_ ? Outcome::kDone : Outcome::kGoesOn;
}

bool Greeting::complete(Stream& stream) {
  return is_secure_ && !owes_ready_ && read(stream) == Outcome::kDone;
}

}  // namespace tutti::tcp
