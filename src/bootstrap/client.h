// BootstrapClient: a rank's part in a bootstrap, for a caller that waits: join, all_gather, fail. It drives a
// BootstrapNode on an event loop of its own, and where the rank itself serves the rendezvous, that too.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/blobs.h"
#include "bootstrap/node.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/stop.h"
#include "bootstrap/unique_id.h"
#include "core/result.h"
#include "net/endpoint.h"
#include "net/event_loop.h"

namespace tutti {

/// Where the rendezvous is, and what ranks prove themselves with.
struct BootstrapAddress {
  Credentials credentials;
  FileDescriptor local;             ///< a connection to the rendezvous over a Unix socket; or
  std::vector<Endpoint> endpoints;  ///< or
  HostPort name;                    ///< resolved when `endpoints` is empty
  /// Whoever serves it may come later than this rank: tried until the deadline.
  bool patient = false;
  /// Set where this rank serves the rendezvous itself, as long as it takes part. When the bootstrap fails,
  /// the failing call returns when all ranks have heard why: after kStayMs at most, and not past the
  /// deadline.
  std::optional<Listener> serve;
};

/// The rendezvous of an id on the network; it listens already. Errors: kInvalidArgument: the id is of one
/// host only.
Result<BootstrapAddress> bootstrap_address_of(const UniqueId& id);

/// The rendezvous "tutti://host:port", which rank 0 serves: there the port is opened on all addresses. The
/// key comes from `secret` (Config::key). Errors: kInvalidArgument (the text; no secret), kSystemError (the
/// port is taken).
Result<BootstrapAddress> bootstrap_address_of_url(std::string_view url, std::string_view secret, bool serve);

struct BootstrapClientOptions {
  uint32_t rank_count = 0;
  uint32_t rank = 0;
  uint64_t deadline_ns = 0;
  ListenOptions listen;
  BootstrapStop* stop = nullptr;  ///< may be null; outlives the bootstrap
};

class BootstrapClient {
 public:
  /// Connects and introduces this rank. Blocks until the rendezvous knows it. Errors: kInvalidArgument
  /// (rank taken, counts differ, key refused), kVersionMismatch, kPeerLost (naming every address and why),
  /// kTimeout, kSystemError, kAborted.
  static Result<BootstrapClient> join(BootstrapAddress point, const BootstrapClientOptions& options);
  ~BootstrapClient();
  BootstrapClient(BootstrapClient&&) noexcept;
  BootstrapClient& operator=(BootstrapClient&&) = delete;

  /// Every rank's blob, by rank. Blocks until all have called it; the `last` one ends the bootstrap. Errors:
  /// as BootstrapNode::all_gather, kAborted.
  Result<Blobs> all_gather(std::span<const std::byte> blob, bool last);

  /// The ranks meet over the network. May become true in the first all_gather, which fails then and is to be
  /// called again.
  bool is_network() const;

  /// Tells all ranks that this one gives up, and why. Blocks for a second at most, or stays
  /// (BootstrapAddress::serve).
  void fail(const Status& why);

  /// For a caller that waits for something else meanwhile: readable when check() has something to do.
  int descriptor() const;
  /// Deals with what has come, without waiting. Errors: what `fail` said on another rank; kAborted.
  Status check();

 private:
  BootstrapClient() = default;
  Status end(const Status& why);
  void stay(const Status& why);
  void run_until(const std::function<bool()>& done);
  void run_until_late(uint64_t late_ns, const std::function<bool()>& done);

  /// In one allocation of their own: callbacks point at them while the client is moved.
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tutti
