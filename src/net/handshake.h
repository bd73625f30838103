// Handshake: how both ends of a new connection prove that they know the bootstrap's key, before either parses
// anything else.
//
//   acceptor  -> connector   Challenge: a fresh nonce
//   connector -> acceptor    Response: who connects to whom, what for, a fresh nonce, HMAC of all so far
//   acceptor  -> connector   Confirm: the decision, HMAC of all so far
//
// The acceptor reads one message of fixed size and checks its proof first. A stranger learns only a random
// number. Both proofs are labelled and cover both nonces, roles and ranks, the purpose and the channel. So
// recorded, reflected or diverted messages prove nothing. Pure: bytes in, bytes out. The sockets are in
// acceptor.h and connector.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "core/result.h"
#include "net/crypto.h"

namespace tutti {

enum class Purpose : uint32_t {
  kRendezvous = 1,  ///< a rank asks the rendezvous for its parent
  kTree = 2,        ///< a rank and its parent
  kData = 3,        ///< two ranks; `channel` numbers their connections
  kInspect = 4,     ///< tutti-inspect asks what the ranks are doing; no ranks
};

/// In place of a rank: the process that serves the rendezvous.
inline constexpr uint32_t kBootstrapServer = UINT32_MAX;

/// What the connecting side says.
struct Claim {
  Purpose purpose = Purpose::kRendezvous;
  uint32_t from = 0;
  uint32_t to = 0;  ///< rank sought, or kBootstrapServer
  uint32_t channel = 0;
  bool operator==(const Claim&) const = default;
};

enum class HandshakeResult : uint32_t {
  kAccepted = 0,
  kNotProved = 1,  ///< this answer carries no proof
  kVersion = 2,
  kWrongRank = 3,   ///< another rank listens here
  kUnexpected = 4,  ///< not expected, or exists already
};

inline constexpr size_t kChallengeBytes = 48;
inline constexpr size_t kResponseBytes = 112;
inline constexpr size_t kConfirmBytes = 48;

/// What a connector sends when it gives up an attempt before its response, for instance because another
/// address was faster: the beginning of a response. The acceptor then knows the attempt for one of a rank.
/// This proves nothing and changes nothing but the log.
inline constexpr size_t kFarewellBytes = 24;
std::array<std::byte, kFarewellBytes> farewell_of(const Credentials& credentials);

/// One message in, one message out.
class HandshakeBuffers {
 public:
  /// Missing bytes of the expected message; 0: none. Read no more: later bytes belong to the connection's
  /// user.
  size_t wanted() const { return wanted_; }
  /// Call `sent` for the bytes that were sent.
  std::span<const std::byte> output() const {
    return std::span(out_).subspan(out_done_, out_bytes_ - out_done_);
  }
  void sent(size_t bytes) { out_done_ += bytes; }

 protected:
  void expect(size_t bytes) {
    wanted_ = bytes;
    in_bytes_ = 0;
  }
  /// Takes at most `wanted` bytes. True if the message is complete.
  bool take(std::span<const std::byte> bytes);
  /// The part of the expected message that has come.
  std::span<const std::byte> taken() const { return std::span(in_).first(in_bytes_); }
  std::span<std::byte> begin_output(size_t bytes);

  std::array<std::byte, kResponseBytes> in_{};

 private:
  std::array<std::byte, kResponseBytes> out_{};
  size_t in_bytes_ = 0;
  size_t wanted_ = 0;
  size_t out_bytes_ = 0;
  size_t out_done_ = 0;
};

class ConnectorHandshake : public HandshakeBuffers {
 public:
  ConnectorHandshake(const Credentials& credentials, const Claim& claim, const Nonce& nonce);

  /// Takes at most wanted() bytes. Errors end the handshake: kMismatch (not tutti, or another handshake),
  /// kVersionMismatch, kInvalidArgument (the key was refused), kInvalidUsage (the connection was refused).
  /// The caller adds the address to the text.
  Status feed(std::span<const std::byte> bytes);
  /// The other side has proved itself and accepted.
  bool is_done() const { return done_; }
  bool has_responded() const { return responded_; }
  /// The failure was proved to come from the right listener: do not try again.
  bool refusal_is_final() const { return refusal_is_final_; }

 private:
  Status respond();
  Status conclude();

  Credentials credentials_;
  Claim claim_;
  Nonce nonce_;
  std::array<std::byte, kChallengeBytes> challenge_{};
  std::array<std::byte, kResponseBytes> response_{};
  bool responded_ = false;
  bool done_ = false;
  bool refusal_is_final_ = false;
};

class AcceptorHandshake : public HandshakeBuffers {
 public:
  /// Called once, after the proof: whether this connection is expected.
  using Judge = std::function<HandshakeResult(const Claim&)>;

  AcceptorHandshake(const Credentials& credentials, const Nonce& nonce, Judge judge);

  /// Takes at most wanted() bytes. Errors: kInvalidArgument (nothing was proved); kVersionMismatch,
  /// kInvalidUsage (proved, but refused). output() then holds the refusal: send it, and close.
  Status feed(std::span<const std::byte> bytes);
  /// The other side has proved itself and is accepted. output() may still hold bytes to send.
  bool is_done() const { return done_; }
  /// The other side has sent a farewell.
  bool is_given_up() const;
  const Claim& claim() const { return claim_; }

 private:
  Status refuse(HandshakeResult result, Status why);
  void confirm(HandshakeResult result);

  Credentials credentials_;
  Judge judge_;
  std::array<std::byte, kChallengeBytes> challenge_{};
  Claim claim_;
  bool done_ = false;
};

}  // namespace tutti
