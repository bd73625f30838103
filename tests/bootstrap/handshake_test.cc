// The handshake as a pure machine: who knows the key gets through, nobody else does, and nothing that was
// said on one connection is worth anything on another.
#include "net/handshake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/version.h"
#include "net/wire.h"

namespace tutti {
namespace {

using Bytes = std::vector<std::byte>;

Nonce nonce_of(int seed) {
  Nonce nonce{};
  for (size_t i = 0; i < nonce.size(); ++i)
    nonce[i] = static_cast<std::byte>(seed * 31 + static_cast<int>(i));
  return nonce;
}

Credentials credentials_of(const char* secret) {
  return credentials_from_text(secret, "the tests");
}

constexpr Claim kClaim{.purpose = Purpose::kTree, .from = 5, .to = 4, .channel = 3};

HandshakeResult accept_all(const Claim&) {
  return HandshakeResult::kAccepted;
}

Bytes output_of(HandshakeBuffers& side) {
  const auto output = side.output();
  Bytes bytes(output.begin(), output.end());
  side.sent(bytes.size());
  return bytes;
}

/// Two sides and what went between them.
struct Pair {
  explicit Pair(const char* connector_key = "key", const char* acceptor_key = "key",
                AcceptorHandshake::Judge judge = accept_all)
      : connector(credentials_of(connector_key), kClaim, nonce_of(1)),
        acceptor(credentials_of(acceptor_key), nonce_of(2), std::move(judge)) {}

  /// Runs to the end, handing over `piece` bytes at a time.
  void run(size_t piece = 1000) {
    for (int turn = 0; turn < 2; ++turn) {
      from_acceptor.push_back(output_of(acceptor));
      connector_status = hand_over(from_acceptor.back(), connector, piece);
      if (!connector_status) return;
      from_connector.push_back(output_of(connector));
      if (turn == 0) acceptor_status = hand_over(from_connector.back(), acceptor, piece);
    }
  }

  template <class Side>
  static Status hand_over(const Bytes& bytes, Side& side, size_t piece) {
    for (size_t at = 0; at < bytes.size();) {
      const size_t count = std::min({piece, bytes.size() - at, side.wanted()});
      if (count == 0) return {Code::kInternal, "more bytes than were wanted"};
      TUTTI_TRY(side.feed(std::span(bytes).subspan(at, count)));
      at += count;
    }
    return Status::ok();
  }

  ConnectorHandshake connector;
  AcceptorHandshake acceptor;
  std::vector<Bytes> from_connector;
  std::vector<Bytes> from_acceptor;
  Status connector_status;
  Status acceptor_status;
};

TEST(HandshakeTest, HoldersOfTheKeyMeetHoweverTheBytesCome) {
  for (const size_t piece : {1u, 7u, 47u, 1000u}) {
    Pair pair;
    pair.run(piece);
    EXPECT_TRUE(pair.connector_status.is_ok()) << pair.connector_status.text();
    EXPECT_TRUE(pair.acceptor_status.is_ok()) << pair.acceptor_status.text();
    EXPECT_TRUE(pair.connector.is_done());
    EXPECT_TRUE(pair.acceptor.is_done());
    EXPECT_EQ(pair.acceptor.claim(), kClaim);
    EXPECT_EQ(pair.connector.wanted(), 0u);
    EXPECT_EQ(pair.acceptor.wanted(), 0u);
  }
}

TEST(HandshakeTest, AWrongKeyIsRefusedAndTheClaimNeverLookedAt) {
  bool asked = false;
  Pair pair("one key", "another key", [&](const Claim&) {
    asked = true;
    return HandshakeResult::kAccepted;
  });
  pair.run();
  EXPECT_EQ(pair.acceptor_status.code(), Code::kInvalidArgument);
  EXPECT_EQ(pair.connector_status.code(), Code::kInvalidArgument);
  EXPECT_FALSE(pair.acceptor.is_done());
  EXPECT_FALSE(pair.connector.is_done());
  EXPECT_FALSE(pair.connector.refusal_is_final());
  EXPECT_FALSE(asked);
}

// Goal: one key may serve several meetings: who comes to another one than it asked for is refused.
TEST(HandshakeTest, AnotherMeetingIsRefused) {
  Credentials other = credentials_of("key");
  other.tag[0] ^= std::byte{1};
  ConnectorHandshake connector(other, kClaim, nonce_of(1));
  AcceptorHandshake acceptor(credentials_of("key"), nonce_of(2), accept_all);
  ASSERT_TRUE(connector.feed(output_of(acceptor)).is_ok());
  EXPECT_EQ(acceptor.feed(output_of(connector)).code(), Code::kInvalidArgument);
}

// Goal: an acceptor that accepts everybody without knowing the key gains nothing.
TEST(HandshakeTest, AnAcceptorWithoutTheKeyIsRefused) {
  Pair pair;
  const Bytes challenge = output_of(pair.acceptor);
  ASSERT_TRUE(pair.connector.feed(challenge).is_ok());
  Bytes confirm(kConfirmBytes);
  std::memcpy(confirm.data(), challenge.data(), 8);
  EXPECT_EQ(pair.connector.feed(confirm).code(), Code::kInvalidArgument);
  EXPECT_FALSE(pair.connector.is_done());
}

// Goal: every byte of the messages is covered: the change of any bit is refused by one of the two.
TEST(HandshakeTest, NoBitCanBeChangedOnTheWay) {
  for (size_t bit = 0; bit < 8 * (kChallengeBytes + kResponseBytes + kConfirmBytes); ++bit) {
    Pair pair;
    size_t left = bit;
    const auto damage = [&](Bytes bytes) {
      if (left < 8 * bytes.size()) bytes[left / 8] ^= static_cast<std::byte>(1u << (left % 8));
      left -= 8 * bytes.size();  // wraps: the later messages are left alone
      return bytes;
    };
    Status connector = pair.connector.feed(damage(output_of(pair.acceptor)));
    if (connector) (void)pair.acceptor.feed(damage(output_of(pair.connector))).is_ok();
    if (connector) connector = pair.connector.feed(damage(output_of(pair.acceptor)));
    EXPECT_FALSE(connector.is_ok()) << "bit " << bit;
    EXPECT_FALSE(pair.connector.is_done()) << "bit " << bit;
  }
}

TEST(HandshakeTest, ARecordedHelloIsWorthNothing) {
  Pair recorded;
  recorded.run();
  ASSERT_TRUE(recorded.acceptor.is_done());
  AcceptorHandshake later(credentials_of("key"), nonce_of(3), accept_all);
  output_of(later);
  EXPECT_EQ(later.feed(recorded.from_connector[0]).code(), Code::kInvalidArgument);
  EXPECT_FALSE(later.is_done());
  // And a recorded listener cannot fool a new connector.
  ConnectorHandshake connector(credentials_of("key"), kClaim, nonce_of(4));
  ASSERT_TRUE(connector.feed(recorded.from_acceptor[0]).is_ok());
  EXPECT_FALSE(connector.feed(recorded.from_acceptor[1]).is_ok());
}

// Goal: a proof of one role is not one of the other.
// Method: a stranger sends the listener's greeting on to another rank as its own, and that rank's answer back
// to the listener as a confirmation; and one that echoes what it gets.
TEST(HandshakeTest, AReflectedMessageProvesNothing) {
  ConnectorHandshake connector(credentials_of("key"), kClaim, nonce_of(1));
  AcceptorHandshake acceptor(credentials_of("key"), nonce_of(2), accept_all);
  ASSERT_TRUE(connector.feed(output_of(acceptor)).is_ok());
  const Bytes response = output_of(connector);
  EXPECT_FALSE(connector.feed(std::span(response).first(kConfirmBytes)).is_ok());
  Bytes echo(kResponseBytes);
  AcceptorHandshake other(credentials_of("key"), nonce_of(5), accept_all);
  const Bytes challenge = output_of(other);
  std::copy(challenge.begin(), challenge.end(), echo.begin());
  EXPECT_FALSE(other.feed(echo).is_ok());
}

TEST(HandshakeTest, ARefusalIsProvedAndNamed) {
  for (const auto result : {HandshakeResult::kWrongRank, HandshakeResult::kUnexpected}) {
    Pair pair("key", "key", [result](const Claim&) { return result; });
    pair.run();
    EXPECT_EQ(pair.acceptor_status.code(), Code::kInvalidUsage);
    EXPECT_NE(pair.acceptor_status.text().find("rank 5"), std::string_view::npos);
    EXPECT_EQ(pair.connector_status.code(), Code::kInvalidUsage);
    EXPECT_EQ(pair.connector.refusal_is_final(), result == HandshakeResult::kUnexpected)
        << "another address may do";
  }
}

// Goal: ranks of different versions learn so from each other, by proved messages.
TEST(HandshakeTest, AnotherVersionIsNamedOnBothSides) {
  Pair pair;
  const Bytes challenge = output_of(pair.acceptor);
  ASSERT_TRUE(pair.connector.feed(challenge).is_ok());
  Bytes response = output_of(pair.connector);
  // The connector as another version would have written it: version at 72, proof over all before it.
  put_u32(std::span<std::byte, 4>(response.data() + 72, 4), kVersionCode + 1);
  const std::string label = "tutti connector";
  Bytes said(label.size());
  std::memcpy(said.data(), label.data(), label.size());
  said.insert(said.end(), challenge.begin(), challenge.end());
  said.insert(said.end(), response.begin(), response.end() - sizeof(Mac));
  const Mac proof = authenticate(credentials_of("key").key, said);
  std::copy(proof.begin(), proof.end(), response.end() - sizeof(Mac));
  const Status status = pair.acceptor.feed(response);
  EXPECT_EQ(status.code(), Code::kVersionMismatch);
  EXPECT_NE(status.text().find(std::to_string(kVersionCode + 1)), std::string_view::npos) << status.text();
  EXPECT_FALSE(pair.acceptor.output().empty());
}

TEST(HandshakeTest, OtherServersAreRecognised) {
  ConnectorHandshake connector(credentials_of("key"), kClaim, nonce_of(1));
  const std::string banner = "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3 and so on";
  const Status status = connector.feed(std::as_bytes(std::span(banner)).first(kChallengeBytes));
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_TRUE(connector.output().empty());
}

TEST(CredentialsTest, TextsAndPurposesGiveDifferentKeys) {
  const Credentials one = credentials_from_text("secret", "host:1");
  EXPECT_EQ(one.key, credentials_from_text("secret", "host:1").key);
  EXPECT_NE(one.key, credentials_from_text("secret", "host:2").key);
  EXPECT_NE(one.key, credentials_from_text("Secret", "host:1").key);
  EXPECT_NE(one.tag, credentials_from_text("secret", "host:2").tag);
}

// Source of the vector: RFC 4231, test case 3 is of a 20-byte key; ours are 32 bytes, so the key is padded
// with zeros, which HMAC does itself with a short key.
TEST(CredentialsTest, TheDigestIsHmacSha256) {
  Key key{};
  std::fill_n(key.begin(), 20, std::byte{0xaa});
  const Bytes data(50, std::byte{0xdd});
  const Mac mac = authenticate(key, data);
  EXPECT_EQ(mac[0], std::byte{0x77});
  EXPECT_EQ(mac[1], std::byte{0x3e});
  EXPECT_EQ(mac[2], std::byte{0xa9});
  EXPECT_EQ(mac[31], std::byte{0xfe});
}

}  // namespace
}  // namespace tutti
