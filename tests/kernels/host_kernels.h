// The kernels as the host calls them: by every fiber of a grid.
#pragma once

#include "engine/cuda/program.h"
#include "engine/cuda/slice.h"

extern "C" void tutti_run(tutti::cuda::Launch launch);
extern "C" void tutti_short(tutti::cuda::Launch launch);

namespace tutti::test {

/// Moves a slice, as the interpreter does, with the movers of the block (roles.cuh). By all threads.
void move_one_slice(const cuda::Slice& slice);
/// A packet of results, as short calls compute them, where these kernels have that by itself.
bool reduces_some_words();
cuda::PacketData reduce_some_words(const cuda::Calculation& job, const cuda::Operands& operands);

}  // namespace tutti::test
