// BootstrapServers: the unique ids made by this process, each with its rendezvous on the control thread. A
// failure is kept for late ranks until all have heard it or the process ends.
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

struct BootstrapOptions {
  UniqueId id;
  uint32_t rank_count = 0;
  uint32_t rank = 0;
  uint64_t deadline_ns = 0;
  BootstrapStop* stop = nullptr;  ///< may be null; outlives the bootstrap
};

struct BootstrapServerOptions {
  /// Set if ranks may be on several hosts. Without a network, only ranks of this host are served.
  std::optional<ListenOptions> network;
  /// How long to keep a failure for late ranks.
  uint64_t remember_ms = 120'000;
};

class BootstrapServers {
 public:
  explicit BootstrapServers(ControlThread& control) : control_(control) {}
  ~BootstrapServers();
  BootstrapServers(const BootstrapServers&) = delete;
  BootstrapServers& operator=(const BootstrapServers&) = delete;

  /// Makes an id. Serves it until all ranks have joined and left or have heard the failure; forever if none
  /// comes. Any thread. Errors: kSystemError, kInvalidArgument (interfaces).
  Result<UniqueId> open(const BootstrapServerOptions& options);

  /// For a rank whose set-up has failed and whose connections are closed. If this process serves the id,
  /// fails the bootstrap with `why`, unless it has ended, and blocks until all ranks have heard: for kStayMs
  /// at most, not past the deadline, not after a stop. Later ranks may find nobody. Any thread.
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
  // Used on the control thread, or while it is held.
  std::map<BootstrapTag, Served> served_;  ///< by the nonce of the id
  std::deque<BootstrapTag> failed_;        ///< ids in served_, oldest first
};

}  // namespace tutti
