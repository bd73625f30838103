// The CUDA device that a program works on, and memory on it. NCCL's calls take the device from the calling
// thread. The plugin uses only a driver that the process itself has loaded, so a program on host memory pays
// nothing.
#pragma once

#include <cstddef>

#include "core/result.h"

namespace tutti::nccl {

/// No device: the rank works on host memory.
inline constexpr int kHostMemory = -1;

/// The device of the calling thread's current context, by its number in this process. 0: there is no current
/// context. kHostMemory: the process does not use CUDA.
int current_device();
/// Number of devices that the process sees; 0 when it does not use CUDA.
int device_count();

/// Allocates memory on the device. Errors: kOutOfMemory, kUnsupported, kSystemError.
Result<void*> allocate_on_device(int device, size_t bytes);
/// False: allocate_on_device did not return this memory.
bool free_on_device(void* pointer);

}  // namespace tutti::nccl
