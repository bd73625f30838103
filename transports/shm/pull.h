// Pull: one copy out of another process's memory by a system call (cross-memory attach) of about a
// microsecond, where the kernel allows it. It replaces two copies through shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

/// Copies [address, address + bytes) of process `pid` to `target`. False if the process is gone or refuses.
/// No allocation.
bool pull(int pid, uint64_t address, void* target, size_t bytes);

}  // namespace tutti
