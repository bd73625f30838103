// Fuzz target: the handshake, both roles. Whatever bytes come, in whatever pieces: no stranger gets through,
// nothing is read beyond the messages; and a holder of the key may claim what it likes.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "net/handshake.h"

namespace {

using namespace tutti;

constexpr Claim kClaim{.purpose = Purpose::kTree, .from = 5, .to = 4, .channel = 0};

/// Feeds pieces whose lengths come from the data; true when the side let the stranger in.
template <class Side>
bool feed_all(Side& side, std::span<const std::byte> bytes) {
  while (!bytes.empty() && side.wanted() > 0) {
    const size_t piece = std::to_integer<size_t>(bytes[0]) % 64 + 1;
    const size_t count = std::min({piece, bytes.size(), side.wanted()});
    if (!side.feed(bytes.first(count))) break;
    bytes = bytes.subspan(count);
  }
  if (side.output().size() > kResponseBytes) std::abort();
  return side.is_done();
}

/// A response with a true proof over whatever it says: what a rank of another version or with wrong ideas may
/// send.
void feed_proved(AcceptorHandshake& acceptor, const Credentials& credentials,
                 std::span<const std::byte> said) {
  std::vector<std::byte> response(kResponseBytes);
  std::copy_n(said.begin(), std::min(said.size(), kResponseBytes - sizeof(Mac)), response.begin());
  constexpr std::string_view kLabel = "tutti connector";
  std::vector<std::byte> covered(kLabel.size());
  std::memcpy(covered.data(), kLabel.data(), kLabel.size());
  const auto challenge = acceptor.output();
  covered.insert(covered.end(), challenge.begin(), challenge.end());
  covered.insert(covered.end(), response.begin(), response.end() - sizeof(Mac));
  const Mac proof = authenticate(credentials.key, covered);
  std::copy(proof.begin(), proof.end(), response.end() - sizeof(Mac));
  const bool accepted = acceptor.feed(response).is_ok();
  if (accepted != acceptor.is_done() || acceptor.output().size() != kConfirmBytes) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t data_bytes) {
  if (data_bytes == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, data_bytes)).subspan(1);
  const Credentials credentials = credentials_from_text("a secret of the fuzzer", "fuzz");
  AcceptorHandshake acceptor(credentials, Nonce{}, [](const Claim& claim) {
    return claim.purpose == Purpose::kTree ? HandshakeResult::kAccepted : HandshakeResult::kUnexpected;
  });
  ConnectorHandshake connector(credentials, kClaim, Nonce{});
  switch (data[0] % 3) {
    case 0:
      if (feed_all(acceptor, bytes)) std::abort();
      break;
    case 1: {
      // A true greeting first, so that the second message is reached.
      if (data[0] % 2 == 0 && !connector.feed(acceptor.output())) std::abort();
      if (feed_all(connector, bytes)) std::abort();
      break;
    }
    default: feed_proved(acceptor, credentials, bytes); break;
  }
  return 0;
}
