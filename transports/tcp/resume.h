// Resume: what both ends of a torn stream tell each other over the new socket, before its first byte: who
// they are, and how much each has received. Then each sends again what the other lacks.
//
//   both    hello   40 bytes: "tuttirsm", ranks of sender and receiver, epoch and stream, bytes received,
//                   bytes sent
//   both    ready   8 bytes, when the hello has come
//
// An end that has the other's ready knows that the other stays with this socket. Until then it forgets
// nothing: the other may still close the socket unread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/result.h"
#include "transports/tcp/stream.h"

namespace tutti::tcp {

inline constexpr size_t kResumeBytes = 40;

struct Resume {
  uint32_t from = 0;  ///< rank
  uint32_t to = 0;
  uint16_t epoch = 0;
  uint16_t stream = 0;  ///< number of the two ranks' stream
  uint64_t received = 0;
  uint64_t sent = 0;

  friend bool operator==(const Resume&, const Resume&) = default;
};

std::array<std::byte, kResumeBytes> encode(const Resume& resume);
/// Reads the answer to `mine` from an untrusted peer. `kept`: the first byte that this end can still send.
/// Errors: kPeerLost, with what is wrong.
Result<Resume> decode(std::span<const std::byte, kResumeBytes> bytes, const Resume& mine, uint64_t kept);

/// The exchange, without blocking.
class Greeting {
 public:
  enum class Outcome : uint8_t {
    kGoesOn,
    kDone,
    kBroke,  ///< the socket is torn again
    kWrong,  ///< the peer broke the protocol
  };

  Greeting(const Resume& mine, uint64_t kept) : mine_(mine), kept_(kept), out_(encode(mine)) {}

  /// The TLS handshake of `stream` comes first.
  Outcome advance(Stream& stream);
  /// Reads what is left in a torn socket. Returns whether all of the exchange had come.
  bool complete(Stream& stream);
  /// After kDone, or where complete() is true.
  const Resume& theirs() const { return theirs_; }
  /// Why it broke or is wrong.
  const Status& failure() const { return failure_; }
  /// Bytes that this end writes.
  static constexpr uint64_t written_bytes() { return kResumeBytes + kReadyBytes; }

 private:
  static constexpr size_t kReadyBytes = 8;
  Outcome read(Stream& stream);
  Outcome write(Stream& stream);
  Outcome broke(const char* what, ssize_t error);

  Resume mine_;
  uint64_t kept_;
  Resume theirs_;
  bool is_secure_ = false;
  bool has_hello_ = false;
  bool has_ready_ = false;
  std::array<std::byte, kResumeBytes> out_;
  size_t out_bytes_ = kResumeBytes;
  size_t out_done_ = 0;
  bool owes_ready_ = true;
  std::array<std::byte, kResumeBytes> in_{};
  size_t in_done_ = 0;
  Status failure_;
};

}  // namespace tutti::tcp
