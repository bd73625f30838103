// The driver's functions on libraries of kernels, and launches.
#include <algorithm>
#include <cstring>

#include "tests/cuda/driver/device.h"
#include "tests/cuda/driver/kernels.h"
#include "tests/cuda/driver/machine.h"
#include "tests/cuda/driver/streams.h"

using fake_cuda::Kernel;
using fake_cuda::Library;
using fake_cuda::machine;
using fake_cuda::settings;

namespace {

constexpr int kMostThreads = 1024;

bool is_cooperative(const CUlaunchConfig& config) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && config.attrs[i].value.cooperative != 0)
      return true;
  }
  return false;
}

}  // namespace

extern "C" {

CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option* /*options*/,
                           void** /*values*/, unsigned int /*count*/, CUlibraryOption* /*library_options*/,
                           void** /*library_values*/, unsigned int /*library_count*/) {
  FAKE_UNSAFE_CALL(cuLibraryLoadData);
  if (image == nullptr) return CUDA_ERROR_INVALID_IMAGE;
  *library = reinterpret_cast<CUlibrary>(machine().libraries.add(std::make_unique<Library>()));
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary handle) {
  FAKE_CALL(cuLibraryUnload);
  Library* library = machine().libraries.find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<Kernel*> gone;
  for (const auto& [raw, kernel] : machine().kernels) {
    if (kernel->library == library) gone.push_back(raw);
  }
  for (Kernel* kernel : gone) machine().kernels.remove(kernel);
  machine().libraries.remove(library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* handle, CUlibrary library_handle, const char* name) {
  FAKE_CALL(cuLibraryGetKernel);
  Library* library = machine().libraries.find(library_handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const fake_cuda::HostKernel* host = fake_cuda::find_host_kernel(name);
  if (host == nullptr) return CUDA_ERROR_NOT_FOUND;
  auto kernel = std::make_unique<Kernel>();
  kernel->library = library;
  kernel->host = host;
  *handle = reinterpret_cast<CUkernel>(machine().kernels.add(std::move(kernel)));
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel handle) {
  FAKE_UNSAFE_CALL(cuKernelGetFunction);
  if (machine().kernels.find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *function = reinterpret_cast<CUfunction>(handle);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction function) {
  FAKE_CALL(cuFuncGetAttribute);
  if (machine().kernels.find(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? kMostThreads : 0;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     size_t /*shared_bytes*/) {
  FAKE_CALL_IN_CONTEXT(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  if (machine().kernels.find(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  *blocks = threads <= kMostThreads ? settings().blocks_per_multiprocessor : 0;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments, void** extra) {
  FAKE_CALL_IN_CONTEXT(cuLaunchKernelEx);
  const Kernel* kernel = machine().kernels.find(function);
  fake_cuda::Stream* stream = fake_cuda::find_stream(config->hStream);
  if (kernel == nullptr || stream == nullptr || stream->context != context) return CUDA_ERROR_INVALID_HANDLE;
  if (extra != nullptr || arguments == nullptr || config->gridDimY != 1 || config->gridDimZ != 1 ||
      config->blockDimY != 1 || config->blockDimZ != 1 || config->gridDimX == 0 || config->blockDimX == 0 ||
      config->blockDimX > kMostThreads) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  fake_cuda::KernelTask task;
  task.kernel = kernel->host;
  task.blocks = config->gridDimX;
  task.threads = static_cast<uint32_t>(std::min<uint64_t>(config->blockDimX, settings().most_threads));
  task.cooperative = is_cooperative(*config);
  const auto slots = static_cast<uint64_t>(settings().multiprocessors) *
                     static_cast<uint64_t>(settings().blocks_per_multiprocessor);
  if (task.cooperative && task.blocks > std::min(slots, settings().cooperative_blocks))
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  if (task.cooperative) ++machine().cooperative_launches;
  const auto* argument = static_cast<const unsigned char*>(arguments[0]);
  task.argument.assign(argument, argument + kernel->host->argument_bytes);
  while (stream->capture == nullptr && stream->queue.size() >= settings().queue_entries)
    machine().changed.wait(guard);
  return submit(*stream, std::move(task));
}

}  // extern "C"
