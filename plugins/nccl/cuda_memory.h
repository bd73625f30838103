// Tells CUDA memory from host memory without linking to CUDA, also in builds without CUDA. A rank on host
// memory must refuse a device pointer instead of reading it.
#pragma once

#include "core/result.h"

namespace tutti::nccl {

/// Looks whether this process has loaded CUDA's driver. Cheap; called for each new communicator. A program
/// that has device memory has loaded the driver before.
void look_for_cuda_driver();

/// Ok for host memory, managed memory and NULL. `name` is the argument's name. Costs one load when no driver
/// is loaded.
Status check_host_memory(const char* name, const void* pointer);

}  // namespace tutti::nccl
