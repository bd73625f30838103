// Known memory: what a simulated device may touch, where somebody says. Kernels that check their accesses
// (tests/ptx) ask.
#pragma once

#include <cstdint>

namespace tutti::simt {

/// Whether [address, address + bytes) lies in memory of the devices. Called on fibers.
using MemoryCheck = bool (*)(uint64_t address, uint64_t bytes);

/// From now on `check` decides. Null: all memory is known, as at first.
void set_memory_check(MemoryCheck check);
bool is_known_memory(uint64_t address, uint64_t bytes);

}  // namespace tutti::simt
