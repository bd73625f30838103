// Pull: one copy out of another process's memory by a system call (cross-memory attach) of about a
// microsecond, where the kernel allows it. It replaces two copies through shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transports/carriage_trials.h"

namespace tutti {

/// Copies [address, address + bytes) of process `pid` to `target`. 0, or an errno: ESRCH if the process has
/// ended, EFAULT if this memory cannot be read from other processes. No allocation.
int pull(int pid, uint64_t address, void* target, size_t bytes);

/// Whether other processes can pull from this buffer of this process, by its first byte: not if a driver has
/// mapped it, as for cudaHostAlloc. A system call.
bool can_be_pulled(const void* buffer);

/// Of this machine: measured by the first call, by pulling from this process itself 16 times. {}: the kernel
/// does not allow it.
const PullCost& pull_cost();

}  // namespace tutti
