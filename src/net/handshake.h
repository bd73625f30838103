// Handshake: how the two ends of a new connection prove to each other that they know the key of the
// bootstrap, before either parses anything else.
//
//   acceptor  -> connector   Challenge: a fresh nonce
//   connector -> acceptor    Response: who I am, whom I seek, what for, a fresh nonce, HMAC of all so far
//   acceptor  -> connector   Confirm: the decision, HMAC of all so far
//
// The acceptor reads one message of fixed size, and looks at nothing but its proof until that holds: it tells
// a stranger nothing but a random number. The proofs of the two directions are labelled, and cover both
// nonces, the roles, both ranks, the purpose and the channel: a recorded or reflected message, or one made
// for another connection, proves nothing. Pure: bytes in, bytes out; the sockets are in acceptor.h and
// connector.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "core/result.h"
#include "net/crypto.h"

namespace tutti {

/// What a connection is for.
enum class Purpose : uint32_t {
  kRendezvous = 1,  ///< a rank asks the rendezvous for its parent
  kTree = 2,        ///< a rank and its parent in the tree
  kData = 3,        ///< two ranks of a communicator; `channel` counts the connections of the pair
  kInspect = 4,     ///< tutti-inspect asks a process what its ranks are doing; no ranks
};

/// Instead of a rank: the process that serves the rendezvous.
inline constexpr uint32_t kBootstrapServer = UINT32_MAX;

/// What the connecting side says of the connection.
struct Claim {
  Purpose purpose = Purpose::kRendezvous;
  uint32_t from = 0;  ///< rank that connects
  uint32_t to = 0;    ///< rank it seeks, or kBootstrapServer
  uint32_t channel = 0;
  bool operator==(const Claim&) const = default;
};

/// What the acceptor has decided.
enum class HandshakeResult : uint32_t {
  kAccepted = 0,
  kNotProved = 1,   ///< the proof does not fit the key; itself without proof
  kVersion = 2,     ///< the two sides run different versions of tutti
  kWrongRank = 3,   ///< another rank listens here than the one sought
  kUnexpected = 4,  ///< such a connection is not awaited, or is there already
};

inline constexpr size_t kChallengeBytes = 48;
inline constexpr size_t kResponseBytes = 112;
inline constexpr size_t kConfirmBytes = 48;

/// The bytes of one direction that both roles share: a message under way in, a message under way out.
class HandshakeBuffers {
 public:
  /// Bytes still missing of the message that is awaited; 0: none is. A driver reads no more than this, so
  /// that what follows the handshake stays in the socket.
  size_t wanted() const { return wanted_; }
  /// What is to be sent; call `sent` with how much of it was.
  std::span<const std::byte> output() const {
    return std::span(out_).subspan(out_done_, out_bytes_ - out_done_);
  }
  void sent(size_t bytes) { out_done_ += bytes; }

 protected:
  void expect(size_t bytes) {
    wanted_ = bytes;
    in_bytes_ = 0;
  }
  /// Takes bytes in (at most `wanted`); true when the message is whole.
  bool take(std::span<const std::byte> bytes);
  std::span<std::byte> begin_output(size_t bytes);

  std::array<std::byte, kResponseBytes> in_{};

 private:
  std::array<std::byte, kResponseBytes> out_{};
  size_t in_bytes_ = 0;
  size_t wanted_ = 0;
  size_t out_bytes_ = 0;
  size_t out_done_ = 0;
};

/// The side that connects.
class ConnectorHandshake : public HandshakeBuffers {
 public:
  ConnectorHandshake(const Credentials& credentials, const Claim& claim, const Nonce& nonce);

  /// Takes at most wanted() bytes that came. Errors end the handshake: kMismatch: what listens is not tutti
  /// or of another handshake; kVersionMismatch; kInvalidArgument: the key was refused; kInvalidUsage: the
  /// connection was refused. The texts do not name the address: the driver does.
  Status feed(std::span<const std::byte> bytes);
  /// The other side has proved itself and accepted.
  bool is_done() const { return done_; }
  /// Whether a failure was proved to come from a holder of the key that listens for the rank sought: asking
  /// again will not help.
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

/// The side that listens.
class AcceptorHandshake : public HandshakeBuffers {
 public:
  /// Asked once, after the proof: whether such a connection is awaited.
  using Judge = std::function<HandshakeResult(const Claim&)>;

  AcceptorHandshake(const Credentials& credentials, const Nonce& nonce, Judge judge);

  /// Takes at most wanted() bytes that came. Errors: kInvalidArgument: nothing was proved; kVersionMismatch,
  /// kInvalidUsage: proved, but refused. output() then tells the other side; send it as far as it goes, and
  /// close.
  Status feed(std::span<const std::byte> bytes);
  /// The other side has proved itself and is accepted; output() may have to be sent still.
  bool is_done() const { return done_; }
  const Claim& claim() const { return claim_; }

 private:
  Status refuse(HandshakeResult verdict, Status why);
  void confirm(HandshakeResult verdict);

  Credentials credentials_;
  Judge judge_;
  std::array<std::byte, kChallengeBytes> challenge_{};
  Claim claim_;
  bool done_ = false;
};

}  // namespace tutti
