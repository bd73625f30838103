// The kernels of this library. Compiled by nvcc into the image of engine/cuda/kernels.h; compiled for the
// host by tests/kernels, where each CUDA thread is a fiber.
#include "engine/cuda/interpreter.cuh"
#include "engine/cuda/short.cuh"

/// Runs the parts of several ranks on one device: blocks part.first_block.. are the lanes of a part. Any
/// number of threads a block; blocks of one grid need not be resident together where poll_limit is finite.
TUTTI_KERNEL(1) tutti_run(TUTTI_ARGUMENT tutti::cuda::Launch launch) {
  tutti::cuda::run_launch(launch);
}

/// The same for Programs of short calls. Of few registers, to find room beside what computes.
TUTTI_KERNEL(2) tutti_short(TUTTI_ARGUMENT tutti::cuda::Launch launch) {
  tutti::cuda::run_short_launch(launch);
}
