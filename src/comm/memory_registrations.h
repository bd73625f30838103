// MemoryRegistrations: device memory that all ranks of a communicator register together, to load from and
// store to each other's.
//
// Registering takes two exchanges: what each rank needs to reach the others, then whether it succeeds. All
// ranks register or none, so all know which plans suit. To deregister, each rank ends its own use, then waits
// on the host until the others have. Reason: closing a mapping may wait for the device, where by then no
// other rank of the process may be waiting for this one.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "comm/process.h"
#include "core/result.h"
#include "device/device_executor.h"
#include "engine/call.h"
#include "health/peers.h"

namespace tutti {

struct OfferedRegistration;
struct RegistrationAnswer;

/// All ranks make these calls in the same order.
class MemoryRegistrations {
 public:
  struct Options {
    Process& process;
    const Peers& peers;
    DeviceExecutor& device;
    /// Runs an internal collective on host memory, in the order of this rank's calls.
    std::function<Status(const Call&)> run;
    /// Bound calls must be bound again, with the current registrations.
    std::function<void()> forget_bound;
  };
  explicit MemoryRegistrations(Options options) : options_(std::move(options)) {}

  /// A number, the same on all ranks. 0: nothing is registered, because a peer cannot map the memory. Errors:
  /// as `run`.
  Result<uint32_t> add(const void* buffer, uint64_t bytes, uint64_t timeout_ms);
  /// Call it after the rank's calls have ended. `waits`: until all ranks have done so, or an error occurs.
  /// Errors: as `run`. The memory is deregistered anyway, unless a kernel may still use the memory after an
  /// error: then it is kept until the rank is destroyed.
  Status remove(uint32_t number, bool waits, uint64_t timeout_ms);

 private:
  Result<bool> agree(const RegistrationAnswer& mine, std::vector<RegistrationAnswer>& all) const;
  Status open(uint32_t number, const std::vector<RegistrationAnswer>& answers, uint64_t timeout_ms) const;
  Status offer(const void* buffer, uint64_t bytes, OfferedRegistration& offered,
               RegistrationAnswer& mine) const;
  Status wait_until_all_have_closed(uint64_t timeout_ms) const;
  void forget_bound();

  Options options_;
  std::set<uint32_t> numbers_;  ///< equal on all ranks
};

}  // namespace tutti
