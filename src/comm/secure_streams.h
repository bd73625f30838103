// SecureStreams: TLS for the data connections of one rank, set up with all its peers at once: whoever comes
// first, no order of ranks can deadlock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/result.h"
#include "net/crypto.h"
#include "transports/tcp/tls_stream.h"

namespace tutti {

struct SecureOptions {
  uint32_t rank = 0;  ///< this one
  Key key{};          ///< of the communicator; each connection gets one of its own from it
  uint64_t deadline_ns = 0;
  /// Readable when `check` has something to do; what other ranks say of the set-up meanwhile.
  int bootstrap_fd = -1;
  std::function<Status()> check;
};

class SecureStreams {
 public:
  /// Errors: kSystemError (no TLS 1.3).
  static Result<std::unique_ptr<SecureStreams>> create(const SecureOptions& options);

  /// TLS over `inner`, which is connection `channel` to `peer`. Not usable before shake_hands().
  Result<std::unique_ptr<tcp::Stream>> wrap(uint32_t peer, uint32_t channel,
                                            std::unique_ptr<tcp::Stream> inner);
  /// Blocks until all that was wrapped is ready. Errors: kPeerLost naming rank and address, kTimeout naming
  /// who has not answered, and what `check` says.
  Status shake_hands();

 private:
  struct Pending {
    uint32_t peer = 0;
    tcp::TlsStream* stream = nullptr;
  };
  explicit SecureStreams(const SecureOptions& options) : options_(options) {}
  Status advance();
  Status late() const;

  SecureOptions options_;
  std::shared_ptr<tcp::TlsContext> context_;
  std::vector<Pending> pending_;
};

}  // namespace tutti
