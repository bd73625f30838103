// The GPU backend. Gradients are in host memory that the GPU reaches at the same address. The GPU's kernels
// reduce them there, on one CUDA stream for each rank.
#pragma once

#include "trainer/gpu.h"
#include "trainer/memory.h"

namespace tutti::trainer {

/// `comm` is a communicator of ranks on GPUs; this rank is on `gpu`. `comm` outlives the backend's streams.
/// Free memory only when no rank of the process has a reduction in progress, because the driver waits for all
/// of them. Throws Error.
BackendPointer gpu_backend(std::shared_ptr<const Gpu> gpu, tutti_comm_t* comm);

}  // namespace tutti::trainer
