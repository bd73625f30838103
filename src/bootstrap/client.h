// BootstrapClient: a blocking rank's part in a bootstrap: join, all_gather, fail. It drives a BootstrapNode
// on its own event loop, and the rendezvous if this rank serves it.
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

/// Where the rendezvous is, and the ranks' credentials.
struct BootstrapAddress {
  Credentials credentials;
  FileDescriptor local;             ///< a connection over a Unix socket
  std::vector<Endpoint> endpoints;  ///< or its addresses
  HostPort name;                    ///< or its name, if `endpoints` is empty
  /// The server may start later than this rank: try until the deadline.
  bool patient = false;
  /// Set if this rank serves the rendezvous while it takes part. A failing call then returns once all ranks
  /// have heard why: after kStayMs at most, and not past the deadline.
  std::optional<Listener> serve;
};

/// The rendezvous of an id on the network. Errors: kInvalidArgument if the id is for one host only.
Result<BootstrapAddress> bootstrap_address_of(const UniqueId& id);

/// The rendezvous "tutti://host:port". Rank 0 serves it at the port, on all addresses. The key comes from
/// `secret` (Config::key). Errors: kInvalidArgument (the text; no secret), kSystemError (the port is taken).
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
  /// Blocks until the rendezvous knows this rank. Errors: kInvalidArgument (rank taken, counts differ, key
  /// refused), kVersionMismatch, kPeerLost (with the reason of each address), kTimeout, kSystemError,
  /// kAborted.
  static Result<BootstrapClient> join(BootstrapAddress address, const BootstrapClientOptions& options);
  ~BootstrapClient();
  BootstrapClient(BootstrapClient&&) noexcept;
  BootstrapClient& operator=(BootstrapClient&&) = delete;

  /// All ranks' blobs, by rank. Blocks until all have called it. The `last` call ends the bootstrap. Errors:
  /// as BootstrapNode::all_gather, kAborted.
  Result<Blobs> all_gather(std::span<const std::byte> blob, bool last);

  /// Whether the ranks use the network. If the first all_gather finds out, it fails: call it again.
  bool is_network() const;

  /// Tells all ranks. Blocks for a second at most, or stays (BootstrapAddress::serve).
  void fail(const Status& why);

  /// Readable when check() has work; after add_alarm() also when only time has passed.
  int descriptor() const;
  Status add_alarm();
  /// Never waits. Errors: the error of another rank's fail(); kAborted.
  Status check();

 private:
  BootstrapClient() = default;
  Status end(const Status& why);
  void stay(const Status& why);
  void run_until(const std::function<bool()>& done);
  void run_until_late(uint64_t late_ns, const std::function<bool()>& done);

  /// Callbacks refer to the parts, so they stay in place when the client moves.
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tutti
