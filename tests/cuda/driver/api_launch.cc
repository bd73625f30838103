// The driver's functions on libraries of kernels, and launches.
#include <algorithm>
#include <cstring>

#include "tests/cuda/driver/device.h"
#include "tests/cuda/driver/kernels.h"
#include "tests/cuda/driver/machine.h"
#include "tests/cuda/driver/streams.h"
#include "tests/cuda/driver/tasks.h"

using fake_cuda::Context;
using fake_cuda::Kernel;
using fake_cuda::KernelTask;
using fake_cuda::Library;
using fake_cuda::machine;
using fake_cuda::settings;

namespace {

constexpr int kMostThreads = 1024;
constexpr uint32_t kMostSharedBytes = 227u << 10;
constexpr size_t kWorkspaceWords = 64;

bool is_cooperative(const CUlaunchConfig& config) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && config.attrs[i].value.cooperative != 0)
      return true;
  }
  return false;
}

CUresult add_library(const void* image, Library** library) {
  ++machine().loads;
  if (image == nullptr) return CUDA_ERROR_INVALID_IMAGE;
  if (const CUresult result = fake_cuda::judge_image(image); result != CUDA_SUCCESS) return result;
  *library = machine().libraries.add(std::make_unique<Library>());
  (*library)->image = fake_cuda::copy_image(image);
  return CUDA_SUCCESS;
}

CUresult remove_library(Library* library) {
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<Kernel*> gone;
  for (const auto& [raw, kernel] : machine().kernels) {
    if (kernel->library == library) gone.push_back(raw);
  }
  for (Kernel* kernel : gone) machine().kernels.remove(kernel);
  fake_cuda::release_instances(*library);
  machine().libraries.remove(library);
  return CUDA_SUCCESS;
}

CUresult add_kernel(Library* library, const char* name, Kernel** added) {
  ++machine().loads;
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const fake_cuda::HostKernel* host = fake_cuda::find_host_kernel(name);
  if (host == nullptr) {
    if (const CUresult result = fake_cuda::find_text(*library); result != CUDA_SUCCESS) return result;
    const auto found = library->text->functions.find(name);
    if (found == library->text->functions.end() || !found->second.is_entry) return CUDA_ERROR_NOT_FOUND;
  }
  auto kernel = std::make_unique<Kernel>();
  kernel->library = library;
  kernel->host = host;
  kernel->name = name;
  *added = machine().kernels.add(std::move(kernel));
  return CUDA_SUCCESS;
}

CUresult find_global(Library* library, Context* context, const char* name, uint64_t* address, size_t* bytes) {
  if (library == nullptr || context == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  fake_cuda::ptx::Module* code = nullptr;
  if (const CUresult result = fake_cuda::find_module(*library, *context, &code); result != CUDA_SUCCESS)
    return result;
  const auto [at, size] = code->find_global(name);
  if (at == 0) return CUDA_ERROR_NOT_FOUND;
  if (address != nullptr) *address = at;
  if (bytes != nullptr) *bytes = size;
  return CUDA_SUCCESS;
}

/// What the caller passed, as the kernel's parameters lie in memory.
CUresult pack_parameters(const fake_cuda::ptx::Function& function, void** arguments, void** extra,
                         std::vector<unsigned char>& into) {
  into.assign(function.parameter_bytes, 0);
  if (extra != nullptr) {
    const void* buffer = nullptr;
    size_t bytes = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
      if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
      if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<size_t*>(extra[1]);
    }
    if (buffer == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(into.data(), buffer, std::min(bytes, into.size()));
    return CUDA_SUCCESS;
  }
  if (arguments == nullptr && !function.parameters.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    const auto [offset, bytes] = function.parameters[i];
    std::memcpy(into.data() + offset, arguments[i], bytes);
  }
  return CUDA_SUCCESS;
}

/// A host kernel has one argument and one dimension.
CUresult prepare_host(const CUlaunchConfig& config, const Kernel& kernel, void** arguments, void** extra,
                      KernelTask& task) {
  if (extra != nullptr || arguments == nullptr || config.gridDimY != 1 || config.gridDimZ != 1 ||
      config.blockDimY != 1 || config.blockDimZ != 1) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  task.kernel = kernel.host;
  task.blocks = config.gridDimX;
  task.threads = static_cast<uint32_t>(std::min<uint64_t>(config.blockDimX, settings().most_threads));
  const auto* argument = static_cast<const unsigned char*>(arguments[0]);
  task.argument.assign(argument, argument + kernel.host->argument_bytes);
  return CUDA_SUCCESS;
}

CUresult prepare_ptx(const CUlaunchConfig& config, const Kernel& kernel, Context& context, void** arguments,
                     void** extra, KernelTask& task) {
  const fake_cuda::ptx::Function* function = nullptr;
  if (const CUresult result = fake_cuda::find_function(kernel, context, &function); result != CUDA_SUCCESS)
    return result;
  task.grid.entry = function;
  task.grid.blocks = {config.gridDimX, config.gridDimY, config.gridDimZ};
  task.grid.threads = {config.blockDimX, config.blockDimY, config.blockDimZ};
  task.grid.dynamic_shared_bytes = config.sharedMemBytes;
  task.grid.multiprocessors = static_cast<uint32_t>(settings().multiprocessors);
  if (task.grid.threads.count() > function->most_threads) return CUDA_ERROR_INVALID_VALUE;
  if (config.sharedMemBytes > static_cast<unsigned>(kernel.most_dynamic_shared_bytes) ||
      config.sharedMemBytes + function->shared_bytes > kMostSharedBytes)
    return CUDA_ERROR_INVALID_VALUE;
  task.blocks = static_cast<uint32_t>(task.grid.blocks.count());
  task.threads = 1;
  if (task.cooperative) {
    task.workspace = std::make_shared<std::vector<uint64_t>>(kWorkspaceWords);
    task.grid.workspace = reinterpret_cast<uint64_t>(task.workspace->data());
  }
  return pack_parameters(*function, arguments, extra, task.argument);
}

CUresult launch(const CUlaunchConfig& config, CUfunction function, void** arguments, void** extra,
                Context* context, fake_cuda::Guard& guard) {
  fake_cuda::Stream* stream = fake_cuda::find_stream(config.hStream);
  if (stream == nullptr || stream->context != context) return CUDA_ERROR_INVALID_HANDLE;
  KernelTask task;
  const CUresult made = fake_cuda::make_kernel_task(config, function, arguments, extra, *context, task);
  if (made != CUDA_SUCCESS) return made;
  if (task.cooperative) ++machine().cooperative_launches;
  if (stream->capture == nullptr) ++machine().launches[machine().kernels.find(function)->name];
  while (stream->capture == nullptr && stream->queue.size() >= settings().queue_entries)
    machine().changed.wait(guard);
  return submit(*stream, std::move(task));
}

CUresult attribute_of(const Kernel& kernel, Context& context, CUfunction_attribute which, int* value) {
  const fake_cuda::ptx::Function* function = nullptr;
  if (kernel.host == nullptr) {
    if (const CUresult result = fake_cuda::find_function(kernel, context, &function); result != CUDA_SUCCESS)
      return result;
  }
  *value = 0;
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = function != nullptr ? static_cast<int>(function->most_threads) : kMostThreads;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      if (function != nullptr) *value = static_cast<int>(function->shared_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      if (function != nullptr) *value = static_cast<int>(function->lane_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      if (function != nullptr) *value = 32;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      if (function != nullptr) *value = 90;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (function != nullptr) *value = kernel.most_dynamic_shared_bytes;
      return CUDA_SUCCESS;
    default: return CUDA_SUCCESS;
  }
}

CUresult occupancy(Kernel* kernel, Context* context, int threads, size_t shared_bytes, int* blocks) {
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  int most = 0;
  const CUresult result = attribute_of(*kernel, *context, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &most);
  if (result != CUDA_SUCCESS) return result;
  *blocks = threads <= most && shared_bytes <= kMostSharedBytes ? settings().blocks_per_multiprocessor : 0;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult fake_cuda::make_kernel_task(const CUlaunchConfig& config, CUfunction function, void** arguments,
                                     void** extra, Context& context, KernelTask& task) {
  const Kernel* kernel = machine().kernels.find(function);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const uint64_t threads = uint64_t{config.blockDimX} * config.blockDimY * config.blockDimZ;
  const uint64_t blocks = uint64_t{config.gridDimX} * config.gridDimY * config.gridDimZ;
  if (blocks == 0 || blocks > UINT32_MAX || threads == 0 || threads > kMostThreads)
    return CUDA_ERROR_INVALID_VALUE;
  task.cooperative = is_cooperative(config);
  const CUresult prepared = kernel->host != nullptr
                                ? prepare_host(config, *kernel, arguments, extra, task)
                                : prepare_ptx(config, *kernel, context, arguments, extra, task);
  if (prepared != CUDA_SUCCESS) return prepared;
  const auto slots = static_cast<uint64_t>(settings().multiprocessors) *
                     static_cast<uint64_t>(settings().blocks_per_multiprocessor);
  const bool too_large = task.cooperative && task.blocks > std::min(slots, settings().cooperative_blocks);
  return too_large ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

extern "C" {

CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option* /*options*/,
                           void** /*values*/, unsigned int /*count*/, CUlibraryOption* /*library_options*/,
                           void** /*library_values*/, unsigned int /*library_count*/) {
  FAKE_UNSAFE_CALL(cuLibraryLoadData);
  return add_library(image, reinterpret_cast<Library**>(library));
}

CUresult cuLibraryUnload(CUlibrary handle) {
  FAKE_CALL(cuLibraryUnload);
  return remove_library(machine().libraries.find(handle));
}

CUresult cuLibraryGetKernel(CUkernel* handle, CUlibrary library, const char* name) {
  FAKE_CALL(cuLibraryGetKernel);
  return add_kernel(machine().libraries.find(library), name, reinterpret_cast<Kernel**>(handle));
}

CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  FAKE_CALL(cuLibraryGetModule);
  if (machine().libraries.find(library) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *module = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* pointer, size_t* bytes, CUlibrary library, const char* name) {
  FAKE_CALL_IN_CONTEXT(cuLibraryGetGlobal);
  return find_global(machine().libraries.find(library), context, name, reinterpret_cast<uint64_t*>(pointer),
                     bytes);
}

CUresult cuLibraryGetManaged(CUdeviceptr* pointer, size_t* bytes, CUlibrary library, const char* name) {
  FAKE_CALL_IN_CONTEXT(cuLibraryGetManaged);
  return find_global(machine().libraries.find(library), context, name, reinterpret_cast<uint64_t*>(pointer),
                     bytes);
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  FAKE_UNSAFE_CALL(cuModuleLoadData);
  Library* library = nullptr;
  if (const CUresult result = add_library(image, &library); result != CUDA_SUCCESS) return result;
  fake_cuda::ptx::Module* code = nullptr;
  if (const CUresult result = fake_cuda::find_module(*library, *context, &code); result != CUDA_SUCCESS) {
    remove_library(library);
    return result;
  }
  *module = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int /*count*/,
                            CUjit_option* /*options*/, void** /*values*/) {
  return cuModuleLoadData(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return cuModuleLoadData(module, image);
}

CUresult cuModuleUnload(CUmodule module) {
  FAKE_CALL(cuModuleUnload);
  return remove_library(machine().libraries.find(module));
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  FAKE_CALL_IN_CONTEXT(cuModuleGetFunction);
  return add_kernel(machine().libraries.find(module), name, reinterpret_cast<Kernel**>(function));
}

CUresult cuModuleGetGlobal(CUdeviceptr* pointer, size_t* bytes, CUmodule module, const char* name) {
  FAKE_CALL_IN_CONTEXT(cuModuleGetGlobal);
  return find_global(machine().libraries.find(module), context, name, reinterpret_cast<uint64_t*>(pointer),
                     bytes);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  FAKE_CALL(cuModuleGetLoadingMode);
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel handle) {
  FAKE_UNSAFE_CALL(cuKernelGetFunction);
  ++machine().loads;
  if (machine().kernels.find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *function = reinterpret_cast<CUfunction>(handle);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel handle) {
  FAKE_CALL(cuKernelGetName);
  const Kernel* kernel = machine().kernels.find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = kernel->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction function) {
  return cuKernelGetName(name, reinterpret_cast<CUkernel>(function));
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction function) {
  FAKE_CALL(cuFuncGetAttribute);
  const Kernel* kernel = machine().kernels.find(function);
  Context* const context = fake_cuda::current_context();
  if (kernel == nullptr || (kernel->host == nullptr && context == nullptr)) return CUDA_ERROR_INVALID_HANDLE;
  return attribute_of(*kernel, *context, which, value);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
  FAKE_CALL(cuFuncSetAttribute);
  Kernel* kernel = machine().kernels.find(function);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
  if (value < 0 || static_cast<uint32_t>(value) > kMostSharedBytes) return CUDA_ERROR_INVALID_VALUE;
  kernel->most_dynamic_shared_bytes = value;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache /*config*/) {
  FAKE_CALL(cuFuncSetCacheConfig);
  return machine().kernels.find(function) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncLoad(CUfunction function) {
  FAKE_CALL_IN_CONTEXT(cuFuncLoad);
  const Kernel* kernel = machine().kernels.find(function);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const fake_cuda::ptx::Function* code = nullptr;
  return kernel->host != nullptr ? CUDA_SUCCESS : fake_cuda::find_function(*kernel, *context, &code);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     size_t shared_bytes) {
  FAKE_CALL_IN_CONTEXT(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  return occupancy(machine().kernels.find(function), context, threads, shared_bytes, blocks);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int threads,
                                                              size_t shared_bytes, unsigned int /*flags*/) {
  FAKE_CALL_IN_CONTEXT(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
  return occupancy(machine().kernels.find(function), context, threads, shared_bytes, blocks);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction function, int /*blocks*/,
                                                 int /*threads*/) {
  FAKE_CALL_IN_CONTEXT(cuOccupancyAvailableDynamicSMemPerBlock);
  if (machine().kernels.find(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *bytes = 48 << 10;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments, void** extra) {
  FAKE_CALL_IN_CONTEXT(cuLaunchKernelEx);
  return launch(*config, function, arguments, extra, context, guard);
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z,
                        unsigned int shared_bytes, CUstream stream, void** arguments, void** extra) {
  FAKE_CALL_IN_CONTEXT(cuLaunchKernel);
  CUlaunchConfig config{};
  config.gridDimX = grid_x;
  config.gridDimY = grid_y;
  config.gridDimZ = grid_z;
  config.blockDimX = block_x;
  config.blockDimY = block_y;
  config.blockDimZ = block_z;
  config.sharedMemBytes = shared_bytes;
  config.hStream = stream;
  return launch(config, function, arguments, extra, context, guard);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void** arguments) {
  FAKE_CALL_IN_CONTEXT(cuLaunchCooperativeKernel);
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  CUlaunchConfig config{};
  config.gridDimX = grid_x;
  config.gridDimY = grid_y;
  config.gridDimZ = grid_z;
  config.blockDimX = block_x;
  config.blockDimY = block_y;
  config.blockDimZ = block_z;
  config.sharedMemBytes = shared_bytes;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return launch(config, function, arguments, nullptr, context, guard);
}

}  // extern "C"
