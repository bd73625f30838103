// BootstrapServers: the unique ids that this process has made, each with the rendezvous that serves it on the
// control thread.
//
// A failure is kept for ranks that come late, until all have heard of it: here, as long as the process lives;
// and a process that made the id, and fails itself, stays a little (BootstrapServers::stay).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "bootstrap/blobs.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/stop.h"
#include "bootstrap/unique_id.h"
#include "core/result.h"
#include "net/control_thread.h"
#include "net/endpoint.h"

namespace tutti {

/// A rank's part in the bootstrap of an id.
struct BootstrapOptions {
  UniqueId id;
  uint32_t rank_count = 0;
  uint32_t rank = 0;
  uint64_t deadline_ns = 0;
  BootstrapStop* stop = nullptr;  ///< may be null; outlives the bootstrap
};

struct BootstrapServerOptions {
  /// The ranks may be on several hosts; a host without a network serves its own ranks only.
  std::optional<ListenOptions> network;
  /// How long a failure is kept for ranks that have not come yet.
  uint64_t remember_ms = 120'000;
};

class BootstrapServers {
 public:
  explicit BootstrapServers(ControlThread& control) : control_(control) {}
  ~BootstrapServers();
  BootstrapServers(const BootstrapServers&) = delete;
  BootstrapServers& operator=(const BootstrapServers&) = delete;

  /// Makes an id and serves it on the control thread until all its ranks have met and left, or have heard why
  /// they have not; for ever if none comes. Any thread. Errors: kSystemError, kInvalidArgument (interfaces).
  Result<UniqueId> open(const BootstrapServerOptions& options);

  /// For a rank whose set-up has failed and whose connections are closed. Where this process serves the id,
  /// the bootstrap fails for `why` unless it has failed or ended before, and the call blocks until all ranks
  /// have heard of it, for kStayMs at most, not past the deadline, and not when stopped. The process may end
  /// then: a rank that comes later finds nobody. Any thread.
  void stay(const BootstrapOptions& rank, const Status& why);

 private:
  struct Served {
    UniqueId id;
    std::unique_ptr<Rendezvous> rendezvous;
    std::vector<BootstrapStop*> waiters;  ///< stopped when the rendezvous has ended
  };

  Status serve(const UniqueId& id, RendezvousOptions options);
  void remember(const BootstrapTag& name);
  void end(const BootstrapTag& name);

  ControlThread& control_;
  // All on the control thread, or while it is held.
  std::map<BootstrapTag, Served> served_;  ///< by the nonce of the id
  std::deque<BootstrapTag> failed_;        ///< of these; oldest first
};

}  // namespace tutti
