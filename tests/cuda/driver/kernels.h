// Kernels of the fake driver: functions compiled for the host, found by the names that device code would
// have.
#pragma once

#include <cstddef>

namespace fake_cuda {

/// A kernel of one argument, which every thread of the grid runs as a fiber of the scheduler.
struct HostKernel {
  const char* name;
  size_t argument_bytes;
  void (*run)(const void* argument);
};

/// Null: no kernel has this name.
const HostKernel* find_host_kernel(const char* name);

/// A library as it was loaded: any image stands for all kernels.
struct Library {};

/// A kernel of a library, and the function that it is in a context.
struct Kernel {
  Library* library = nullptr;
  const HostKernel* host = nullptr;
};

}  // namespace fake_cuda
