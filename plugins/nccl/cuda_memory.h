// CUDA memory, told from host memory without linking to CUDA, in builds without CUDA too: to a rank on host
// memory a device pointer must be refused, not dereferenced.
#pragma once

#include "core/result.h"

namespace tutti::nccl {

/// Looks whether this process has loaded CUDA's driver; cheap, to be called when communicators are made. A
/// program that has device memory has loaded the driver before.
void look_for_cuda_driver();

/// Ok for host memory, managed memory and NULL. `name` is the argument's. One load where there is no driver.
Status check_host_memory(const char* name, const void* pointer);

}  // namespace tutti::nccl
