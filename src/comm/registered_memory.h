// MemoryRegistrations: device memory that all ranks of a communicator register together, so that each loads
// from and stores to the others' where it lies.
//
// To register is two exchanges: what each rank needs to reach the others, then whether it does. Memory is
// registered on all ranks or on none, so which plans suit is known to all. To deregister, each rank ends its
// own use and then waits on the host until the others have ended theirs: closing a mapping may wait for the
// device, on which no other rank of the process may be waiting for this one by then.
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

/// All ranks, in the order of their calls.
class MemoryRegistrations {
 public:
  struct Options {
    Process& process;
    const Peers& peers;
    DeviceExecutor& device;
    /// Runs a collective of the library's own, on host memory, in the order of this rank's calls.
    std::function<Status(const Call&)> run;
    /// What has been bound must be bound again, to find the registered memory as it is now.
    std::function<void()> forget_bound;
  };
  explicit MemoryRegistrations(Options options) : options_(std::move(options)) {}

  /// Its number, the same on all ranks, or 0: nothing is registered anywhere, because a peer cannot map the
  /// memory. Errors: as `run`.
  Result<uint32_t> add(const void* buffer, uint64_t bytes, uint64_t timeout_ms);
  /// Undoes `add`, once the rank's calls have ended. `waits`: until all ranks have done so, or something
  /// fails; else the rank goes alone. Errors: as `run`; the memory is deregistered all the same.
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
