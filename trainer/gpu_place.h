// A GPU as the place of reductions: gradients lie in host memory that it reaches at the same address, its
// kernels reduce them there, on one CUDA stream of the rank.
#pragma once

#include "trainer/gpu.h"
#include "trainer/memory.h"

namespace tutti::trainer {

/// `comm` is a communicator of ranks on GPUs, this one on `gpu`; it outlives the place's streams. Memory is
/// given back when no rank of the process has a reduction under way: the driver waits for all of them. Throws
/// Error.
PlacePointer gpu_place(std::shared_ptr<const Gpu> gpu, tutti_comm_t* comm);

}  // namespace tutti::trainer
