// Tasks as calls describe them, for streams and for nodes of graphs.
#pragma once

#include "tests/cuda/driver/machine.h"
#include "tests/cuda/driver/work.h"

namespace fake_cuda {

// All with Machine::lock held. Errors are those of the calls.

CUresult make_kernel_task(const CUlaunchConfig& config, CUfunction function, void** arguments, void** extra,
                          Context& context, KernelTask& task);
/// From pageable memory it is copied when it runs. CUDA_ERROR_NOT_SUPPORTED: arrays.
CUresult make_copy_task(const CUDA_MEMCPY3D& copy, CopyTask& task);

}  // namespace fake_cuda
