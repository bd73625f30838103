#include "transports/rdma/control.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "transports/rdma/hello.h"

namespace tutti::rdma {
namespace {

constexpr uint16_t kMagic = 0x7472;
constexpr uint32_t kNumberMask = 0xffffff;
constexpr size_t kReadBytes = 16384;
/// Memory of so many written bytes is used again: rarely enough that moving the rest costs little.
constexpr size_t kMostWrittenBytes = 64 * 1024;

/// As it travels.
struct Head {
  uint16_t magic;
  uint8_t kind;
  uint8_t index;
  uint32_t turn;
  uint32_t word;
  uint32_t bytes;
};
static_assert(sizeof(Head) == kControlBytes);

struct ResumeWords {
  uint32_t sent;
  uint32_t received;
  uint32_t usable_rails;
  uint32_t has_lost_rail;
};
static_assert(sizeof(ResumeWords) == kResumeBytes);

bool has_length(ControlKind kind, uint32_t bytes) {
  switch (kind) {
    case ControlKind::kHello: return bytes == kHelloBytes;
    case ControlKind::kJoined:
    case ControlKind::kUp:
    case ControlKind::kBroken: return bytes == 0;
    case ControlKind::kResume: return bytes == kResumeBytes;
    case ControlKind::kPiece: return bytes <= kPieceBytes;
  }
  return false;
}

}  // namespace

std::array<std::byte, kControlBytes> encode(const Control& control) {
  const Head head{.magic = kMagic,
                  .kind = static_cast<uint8_t>(control.kind),
                  .index = static_cast<uint8_t>(control.index),
                  .turn = control.turn,
                  .word = control.word,
                  .bytes = control.bytes};
  std::array<std::byte, kControlBytes> bytes{};
  std::memcpy(bytes.data(), &head, sizeof(head));
  return bytes;
}

Result<Control> decode_control(std::span<const std::byte, kControlBytes> bytes) {
  Head head{};
  std::memcpy(&head, bytes.data(), sizeof(head));
  const auto kind = static_cast<ControlKind>(head.kind);
  if (head.magic != kMagic || head.index >= kMostRails || !has_length(kind, head.bytes)) {
    return Status(Code::kPeerLost,
                  format("it sent a control message with mark %u, kind %u, index %u and %u bytes", head.magic,
                         head.kind, head.index, head.bytes));
  }
  return Control{
      .kind = kind, .index = head.index, .turn = head.turn, .word = head.word, .bytes = head.bytes};
}

std::array<std::byte, kResumeBytes> encode(const Resume& resume) {
  const ResumeWords words{.sent = resume.sent,
                          .received = resume.received,
                          .usable_rails = resume.usable_rails,
                          .has_lost_rail = resume.has_lost_rail ? 1u : 0u};
  std::array<std::byte, kResumeBytes> bytes{};
  std::memcpy(bytes.data(), &words, sizeof(words));
  return bytes;
}

Result<Resume> decode_resume(std::span<const std::byte> bytes) {
  ResumeWords words{};
  if (bytes.size() != sizeof(words)) return Status(Code::kPeerLost, "it resumes a lane in too few words");
  std::memcpy(&words, bytes.data(), sizeof(words));
  const bool is_valid = words.sent <= kNumberMask && words.received <= kNumberMask &&
                        words.usable_rails < 1u << kMostRails && words.has_lost_rail <= 1;
  if (!is_valid) return Status(Code::kPeerLost, "it resumes a lane with numbers out of range");
  return Resume{.sent = words.sent,
                .received = words.received,
                .usable_rails = words.usable_rails,
                .has_lost_rail = words.has_lost_rail == 1};
}

void ControlSocket::send(Control control, std::span<const std::byte> payload) {
  control.bytes = static_cast<uint32_t>(payload.size());
  // A socket that never empties must not keep all that it has taken.
  if (written_ >= kMostWrittenBytes) {
    unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(written_));
    written_ = 0;
  }
  const auto head = encode(control);
  unsent_.insert(unsent_.end(), head.begin(), head.end());
  unsent_.insert(unsent_.end(), payload.begin(), payload.end());
  flush();
}

bool ControlSocket::flush() {
  bool moved = false;
  while (has_unsent()) {
    const ssize_t done = ::send(socket_.get(), unsent_.data() + written_, unsent_.size() - written_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      // The end of the socket's other direction tells what happened.
      if (done < 0 && errno != EAGAIN) written_ = unsent_.size();
      break;
    }
    written_ += static_cast<size_t>(done);
    moved = true;
  }
  if (!has_unsent()) {
    unsent_.clear();
    written_ = 0;
  }
  return moved;
}

/// Reads what has come; false: nothing.
bool ControlSocket::fill() {
  input_.erase(input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(parsed_));
  parsed_ = 0;
  const size_t have = input_.size();
  input_.resize(have + kReadBytes);
  const ssize_t done = ::recv(socket_.get(), input_.data() + have, kReadBytes, MSG_DONTWAIT);
  const int error = errno;
  input_.resize(have + static_cast<size_t>(done > 0 ? done : 0));
  if (done > 0) return true;
  if (done == 0 || (error != EAGAIN && error != EINTR)) has_ended_ = true;
  return false;
}

Result<ControlSocket::Input> ControlSocket::next(Control& control, std::span<const std::byte>& payload) {
  for (;;) {
    const std::span<const std::byte> rest = std::span<const std::byte>(input_).subspan(parsed_);
    if (rest.size() >= kControlBytes) {
      auto decoded = decode_control(rest.first<kControlBytes>());
      TUTTI_TRY(decoded.status());
      if (rest.size() >= kControlBytes + decoded->bytes) {
        control = *decoded;
        payload = rest.subspan(kControlBytes, decoded->bytes);
        parsed_ += kControlBytes + decoded->bytes;
        return Input::kMessage;
      }
    }
    if (has_ended_) return Input::kEnd;
    if (!fill()) return has_ended_ ? Input::kEnd : Input::kNothing;
  }
}

}  // namespace tutti::rdma
