// The two roles of a block's threads in a call by links: the last warp looks ahead and tells the peers (the
// scouts), the other warps move bytes (the movers). See interpreter.cuh.
#pragma once

#include "engine/cuda/device.h"
#include "engine/cuda/program.h"

namespace tutti::cuda {

/// The first 15 of 16 threads: all but one warp of the kBlockThreads that a device runs. Of two instructions,
/// so that loops need not keep the number.
TUTTI_DEVICE uint32_t mover_count() {
  constexpr uint32_t kShare = kBlockThreads / kWarpThreads;
  return device::thread_count() * (kShare - 1) / kShare;
}
/// At least one, as a block has two threads or more.
TUTTI_DEVICE uint32_t scout_count() {
  return device::thread_count() - mover_count();
}
TUTTI_DEVICE bool is_scout() {
  return device::thread_index() >= mover_count();
}
/// The number of this scout, from 0 on.
TUTTI_DEVICE uint32_t scout_index() {
  return device::thread_index() - mover_count();
}

}  // namespace tutti::cuda
