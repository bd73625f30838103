// NetworkBootstrap: a rank's part in a meeting across hosts, for a caller that waits. The counterpart of
// comm's BootstrapClient, which serves one host and carries file descriptors: join, all_gather, fail.
//
// A meeting point is served by a Rendezvous (rendezvous.h) on some process's event loop; to serve one from a
// thread that has an epoll of its own, watch EventLoop::descriptor() there and call run_ready().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/endpoint.h"
#include "bootstrap/event_loop.h"
#include "bootstrap/node.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/stop.h"
#include "bootstrap/unique_id.h"
#include "core/result.h"

namespace tutti {

/// Where ranks meet and what they prove themselves with.
struct BootstrapAddress {
  Credentials credentials;
  std::vector<Endpoint> endpoints;  ///< or
  HostPort name;                    ///< resolved when `endpoints` is empty
  /// Whoever serves it may come later than this rank: tried until the deadline.
  bool patient = false;
  /// Set where this rank serves the meeting point itself, as long as it takes part. When the meeting fails it
  /// stays in the failing call until all ranks have heard why: kStayMs at most, and not past the deadline.
  std::optional<Listener> serve;
};

/// The meeting point of an id; it listens already. Errors: kInvalidArgument: the id is of one host only.
Result<BootstrapAddress> bootstrap_address_of(const UniqueId& id);

/// The meeting point "tutti://host:port", which rank 0 serves: there the port is opened on all addresses. The
/// key comes from `secret` (Config::key). Errors: kInvalidArgument (the text; no secret), kSystemError (the
/// port is taken).
Result<BootstrapAddress> bootstrap_address_of_url(std::string_view url, std::string_view secret, bool serve);

struct NetworkBootstrapOptions {
  uint32_t rank_count = 0;
  uint32_t rank = 0;
  uint64_t deadline_ns = 0;
  ListenOptions listen;
  BootstrapStop* stop = nullptr;  ///< may be null; outlives the meeting
};

class NetworkBootstrap {
 public:
  /// Connects and introduces this rank. Blocks until the meeting point knows it. Errors: kInvalidArgument
  /// (rank taken, counts differ, key refused), kVersionMismatch, kPeerLost (naming every address and why),
  /// kTimeout, kSystemError, kAborted.
  static Result<NetworkBootstrap> join(BootstrapAddress point, const NetworkBootstrapOptions& options);
  ~NetworkBootstrap();
  NetworkBootstrap(NetworkBootstrap&&) noexcept;
  NetworkBootstrap& operator=(NetworkBootstrap&&) = delete;

  /// Every rank's blob, by rank. Blocks until all have called it; the `last` one ends the meeting. Blobs of
  /// one exchange have equal sizes, at most 512 bytes. Errors: as join, kTimeout naming the absent ranks, and
  /// whatever `fail` said on another rank.
  Result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> blob, bool last);

  /// Tells all ranks that this one gives up, and why. Blocks for a second at most, or stays
  /// (BootstrapAddress::serve).
  void fail(const Status& why);

  /// For who waits for something else meanwhile: readable when check() has something to do.
  int descriptor() const;
  /// Deals with what has come, without waiting. Errors: what `fail` said on another rank; kAborted.
  Status check();

 private:
  NetworkBootstrap() = default;
  Status end(const Status& why);
  void stay(const Status& why);
  void run_until(const std::function<bool()>& done);
  void run_until_late(uint64_t late_ns, const std::function<bool()>& done);

  /// In one allocation of their own: callbacks point at them while the meeting is moved.
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tutti
