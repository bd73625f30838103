// The library's kernels. nvcc compiles them into the image of engine/cuda/kernels.h, tests/kernels for the
// host.
#include "engine/cuda/interpreter.cuh"
#include "engine/cuda/short.cuh"

/// Runs the parts of several ranks on one device. Blocks from part.first_block on are a part's lanes, of two
/// or more threads. With a finite poll_limit they need not be resident together.
TUTTI_KERNEL(1) tutti_run(TUTTI_ARGUMENT tutti::cuda::Launch launch) {
  tutti::cuda::run_launch(launch);
}

/// The same for Programs of short calls. Uses few registers, to fit beside computing kernels.
TUTTI_KERNEL(2) tutti_short(TUTTI_ARGUMENT tutti::cuda::Launch launch) {
  tutti::cuda::run_short_launch(launch);
}
