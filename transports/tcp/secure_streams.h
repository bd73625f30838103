// SecureStreams: TLS for the data connections of one rank. All handshakes run at once, so no order can
// deadlock.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/result.h"
#include "transports/tcp/tls_stream.h"
#include "transports/transport.h"

namespace tutti::tcp {

class SecureStreams {
 public:
  /// Errors: kSystemError (no TLS 1.3).
  static Result<std::unique_ptr<SecureStreams>> create(uint32_t rank, DeriveKey derive_key);

  /// TLS over `inner`, connection `channel` to `peer`. Usable after its handshake.
  Result<std::unique_ptr<Stream>> wrap(uint32_t peer, uint32_t channel, std::unique_ptr<Stream> inner);
  /// shake_hands() includes this stream, which wrap() has made.
  void await(uint32_t peer, Stream& stream) { pending_.push_back({peer, &stream}); }
  /// Blocks until all awaited streams are ready. Errors: kPeerLost, with rank and address; kTimeout, with the
  /// silent ranks; errors of watch.check.
  Status shake_hands(const SetUpWatch& watch);

 private:
  struct Pending {
    uint32_t peer = 0;
    Stream* stream = nullptr;
  };
  SecureStreams(uint32_t rank, DeriveKey derive_key) : rank_(rank), derive_key_(std::move(derive_key)) {}
  Status advance();
  Status late() const;

  uint32_t rank_;
  DeriveKey derive_key_;
  std::shared_ptr<TlsContext> context_;
  std::vector<Pending> pending_;
};

}  // namespace tutti::tcp
