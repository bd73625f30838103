// Kernels of the fake driver: functions compiled for the host, found by the names that device code would
// have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tests/cuda/driver/cuda_api.h"
#include "tests/cuda/ptx/module.h"

namespace fake_cuda {

/// A kernel of one argument, which every thread of the grid runs as a fiber of the scheduler.
struct HostKernel {
  const char* name;
  size_t argument_bytes;
  void (*run)(const void* argument);
};

/// Null: no kernel has this name.
const HostKernel* find_host_kernel(const char* name);

/// A library as it was loaded. Any image stands for all host kernels; other kernels come from its PTX.
struct Library {
  std::string image;                            ///< a copy
  std::shared_ptr<const ptx::ModuleText> text;  ///< null: not asked for yet
  struct Instance {
    std::unique_ptr<ptx::Module> module;
    uintptr_t variables = 0;  ///< memory; 0: none
    uintptr_t managed = 0;
  };
  std::map<struct Context*, Instance> instances;
};

/// A kernel of a library, and the function that it is in a context.
struct Kernel {
  Library* library = nullptr;
  const HostKernel* host = nullptr;  ///< null: a kernel of the PTX
  std::string name;
  int most_dynamic_shared_bytes = 48 << 10;
};

// With Machine::lock held. What is wrong with an image goes to stderr, with the form that is unknown.

std::string copy_image(const void* image);
/// Whether a driver of this version takes the image for these devices.
CUresult judge_image(const void* image);
CUresult find_text(Library& library);
/// The library's variables and functions in a context, made when first asked for.
CUresult find_module(Library& library, struct Context& context, ptx::Module** module);
CUresult find_function(const Kernel& kernel, struct Context& context, const ptx::Function** function);
/// Gives back what the library has in all contexts.
void release_instances(Library& library);

}  // namespace fake_cuda
