#include "net/handshake.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/version.h"
#include "net/wire.h"

namespace tutti {
namespace {

// Layouts, in bytes. The last character of the magic is the version of the handshake.
//   Challenge: magic 8, nonce 32, version 4, zero 4
//   Response:  magic 8, tag 16, nonce 32, purpose 4, from 4, to 4, channel 4, version 4, zero 4, proof 32
//   Confirm:   magic 8, result 4, version 4, proof 32
constexpr std::string_view kMagic = "TUTTI-H1";
constexpr size_t kResponseProofAt = kResponseBytes - sizeof(Mac);
constexpr size_t kConfirmProofAt = kConfirmBytes - sizeof(Mac);
constexpr std::string_view kConnectorLabel = "tutti connector";
constexpr std::string_view kAcceptorLabel = "tutti acceptor";

template <size_t kBytes>
std::span<std::byte, 4> field(std::array<std::byte, kBytes>& message, size_t at) {
  return std::span<std::byte, 4>(message.data() + at, 4);
}
template <size_t kBytes>
uint32_t number(const std::array<std::byte, kBytes>& message, size_t at) {
  return get_u32(std::span<const std::byte, 4>(message.data() + at, 4));
}

void put_magic(std::span<std::byte> message) {
  std::memcpy(message.data(), kMagic.data(), kMagic.size());
}
bool has_magic(std::span<const std::byte> message) {
  return std::memcmp(message.data(), kMagic.data(), kMagic.size()) == 0;
}

/// The proof over a label and all messages so far.
Mac prove(const Key& key, std::string_view label, std::initializer_list<std::span<const std::byte>> said) {
  std::vector<std::byte> message;
  message.reserve(256);
  const auto name = std::as_bytes(std::span(label));
  message.insert(message.end(), name.begin(), name.end());
  for (const auto part : said) message.insert(message.end(), part.begin(), part.end());
  return authenticate(key, message);
}

Status refusal(HandshakeResult result, uint32_t version) {
  switch (result) {
    case HandshakeResult::kAccepted: return Status::ok();
    case HandshakeResult::kNotProved:
      return {Code::kInvalidArgument, "it refused the key: the unique id or TUTTI_KEY differs there"};
    case HandshakeResult::kVersion:
      return {Code::kVersionMismatch,
              format("it runs tutti version %u, this is version %u: run one version on "
                     "all ranks",
                     version, kVersionCode)};
    case HandshakeResult::kWrongRank: return {Code::kInvalidUsage, "another rank of this job listens there"};
    case HandshakeResult::kUnexpected:
      return {Code::kInvalidUsage,
              "it refused the connection: it expects none from this rank, or has one already (do two "
              "processes have the same rank?)"};
  }
  return {Code::kMismatch, format("it sent the unknown result %u", static_cast<unsigned>(result))};
}

}  // namespace

bool HandshakeBuffers::take(std::span<const std::byte> bytes) {
  assert(bytes.size() <= wanted_);
  std::copy(bytes.begin(), bytes.end(), in_.begin() + static_cast<std::ptrdiff_t>(in_bytes_));
  in_bytes_ += bytes.size();
  wanted_ -= bytes.size();
  return wanted_ == 0 && !bytes.empty();
}

std::span<std::byte> HandshakeBuffers::begin_output(size_t bytes) {
  out_bytes_ = bytes;
  out_done_ = 0;
  return std::span(out_).first(bytes);
}

std::array<std::byte, kFarewellBytes> farewell_of(const Credentials& credentials) {
  std::array<std::byte, kFarewellBytes> farewell{};
  put_magic(farewell);
  std::copy(credentials.tag.begin(), credentials.tag.end(), farewell.begin() + 8);
  return farewell;
}

bool AcceptorHandshake::is_given_up() const {
  return equal_secrets(taken(), farewell_of(credentials_));
}

ConnectorHandshake::ConnectorHandshake(const Credentials& credentials, const Claim& claim, const Nonce& nonce)
    : credentials_(credentials), claim_(claim), nonce_(nonce) {
  expect(kChallengeBytes);
}

Status ConnectorHandshake::feed(std::span<const std::byte> bytes) {
  if (!take(bytes)) return Status::ok();
  return responded_ ? conclude() : respond();
}

Status ConnectorHandshake::respond() {
  std::copy_n(in_.begin(), challenge_.size(), challenge_.begin());
  if (!has_magic(challenge_)) {
    return {Code::kMismatch, "what listens there is not tutti, or has another handshake"};
  }
  put_magic(response_);
  std::copy(credentials_.tag.begin(), credentials_.tag.end(), response_.begin() + 8);
  std::copy(nonce_.begin(), nonce_.end(), response_.begin() + 24);
  put_u32(field(response_, 56), static_cast<uint32_t>(claim_.purpose));
  put_u32(field(response_, 60), claim_.from);
  put_u32(field(response_, 64), claim_.to);
  put_u32(field(response_, 68), claim_.channel);
  put_u32(field(response_, 72), kVersionCode);
  const Mac proof =
      prove(credentials_.key, kConnectorLabel, {challenge_, std::span(response_).first(kResponseProofAt)});
  std::copy(proof.begin(), proof.end(), response_.begin() + kResponseProofAt);
  std::copy(response_.begin(), response_.end(), begin_output(kResponseBytes).begin());
  responded_ = true;
  expect(kConfirmBytes);
  return Status::ok();
}

Status ConnectorHandshake::conclude() {
  const std::span<const std::byte> confirm = std::span(in_).first(kConfirmBytes);
  if (!has_magic(confirm)) return {Code::kMismatch, "what listens there is not tutti"};
  const auto result = static_cast<HandshakeResult>(number(in_, 8));
  const Mac proof =
      prove(credentials_.key, kAcceptorLabel, {challenge_, response_, confirm.first(kConfirmProofAt)});
  const bool proved = equal_secrets(proof, confirm.subspan(kConfirmProofAt));
  if (!proved && result != HandshakeResult::kNotProved) {
    return {Code::kInvalidArgument,
            "what listens there does not know the key: the unique id or TUTTI_KEY differs there"};
  }
  refusal_is_final_ = proved && result != HandshakeResult::kAccepted && result != HandshakeResult::kWrongRank;
  TUTTI_TRY(refusal(result, number(in_, 12)));
  done_ = true;
  return Status::ok();
}

AcceptorHandshake::AcceptorHandshake(const Credentials& credentials, const Nonce& nonce, Judge judge)
    : credentials_(credentials), judge_(std::move(judge)) {
  put_magic(challenge_);
  std::copy(nonce.begin(), nonce.end(), challenge_.begin() + 8);
  put_u32(field(challenge_, 40), kVersionCode);
  std::copy(challenge_.begin(), challenge_.end(), begin_output(kChallengeBytes).begin());
  expect(kResponseBytes);
}

Status AcceptorHandshake::feed(std::span<const std::byte> bytes) {
  if (!take(bytes)) return Status::ok();
  const Mac proof =
      prove(credentials_.key, kConnectorLabel, {challenge_, std::span(in_).first(kResponseProofAt)});
  const bool is_ours = equal_secrets(credentials_.tag, std::span(in_).subspan(8, credentials_.tag.size()));
  if (!is_ours || !equal_secrets(proof, std::span(in_).subspan(kResponseProofAt))) {
    return refuse(HandshakeResult::kNotProved,
                  {Code::kInvalidArgument, "does not know the key of this bootstrap"});
  }
  // From here on, the sender is known to hold the key.
  claim_ = {.purpose = static_cast<Purpose>(number(in_, 56)),
            .from = number(in_, 60),
            .to = number(in_, 64),
            .channel = number(in_, 68)};
  const uint32_t version = number(in_, 72);
  if (version != kVersionCode) {
    return refuse(HandshakeResult::kVersion,
                  {Code::kVersionMismatch,
                   format("rank %u runs tutti version %u, this is %u", claim_.from, version, kVersionCode)});
  }
  const HandshakeResult result = judge_(claim_);
  if (result != HandshakeResult::kAccepted) {
    return refuse(result,
                  {Code::kInvalidUsage,
                   format("rank %u knows the key but its connection (purpose %u, channel %u, to rank %u) "
                          "is not awaited",
                          claim_.from, static_cast<unsigned>(claim_.purpose), claim_.channel, claim_.to)});
  }
  confirm(HandshakeResult::kAccepted);
  done_ = true;
  return Status::ok();
}

Status AcceptorHandshake::refuse(HandshakeResult result, Status why) {
  confirm(result);
  return why;
}

void AcceptorHandshake::confirm(HandshakeResult result) {
  std::array<std::byte, kConfirmBytes> message{};
  put_magic(message);
  put_u32(field(message, 8), static_cast<uint32_t>(result));
  put_u32(field(message, 12), kVersionCode);
  // A stranger gets no proof: this rank must not sign what a stranger chooses.
  if (result != HandshakeResult::kNotProved) {
    const Mac proof =
        prove(credentials_.key, kAcceptorLabel, {challenge_, in_, std::span(message).first(kConfirmProofAt)});
    std::copy(proof.begin(), proof.end(), message.begin() + kConfirmProofAt);
  }
  std::copy(message.begin(), message.end(), begin_output(kConfirmBytes).begin());
}

}  // namespace tutti
