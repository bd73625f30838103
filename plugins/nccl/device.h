// The CUDA device that a program works on, and memory of it: NCCL's calls take it from the calling thread.
// Only the driver that the process itself has loaded and begun to use is asked: a program on host memory pays
// nothing.
#pragma once

#include <cstddef>

#include "core/result.h"

namespace tutti::nccl {

/// No device: a rank works on host memory.
inline constexpr int kHostMemory = -1;

/// The device whose context is current in the calling thread, by its number in this process, and 0 where none
/// is; kHostMemory where the process does not use CUDA.
int current_device();
/// Devices that the process sees; 0 where it uses none.
int device_count();

/// Memory of the device. Errors: kOutOfMemory, kUnsupported, kSystemError.
Result<void*> allocate_on_device(int device, size_t bytes);
/// False: the memory is none of allocate_on_device's.
bool free_on_device(void* pointer);

}  // namespace tutti::nccl
