// Devices, contexts and errors; what nvcc's code registers before main.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/cuda/runtime/runtime.h"

using fake_cudart::note;

namespace fake_cudart {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

/// What __cudaRegisterFatBinary was given.
struct Binary {
  void* image = nullptr;
  CUlibrary library = nullptr;
  std::vector<std::pair<void**, std::string>> managed;  ///< host pointers to managed variables
  bool is_ready = false;
};

struct Symbol {
  Binary* binary = nullptr;
  std::string name;
  CUkernel kernel = nullptr;
};

struct Registry {
  std::mutex mutex;
  std::map<Binary*, std::unique_ptr<Binary>> binaries;
  std::map<const void*, Symbol> kernels;
  std::map<const void*, Symbol> variables;
};

Registry& registry() {
  static auto* const kOnly = new Registry;
  return *kOnly;
}

/// The device's context, retained once.
CUresult context_of(int device, CUcontext* context) {
  static std::mutex mutex;
  static std::map<int, CUcontext> contexts;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto known = contexts.find(device);
  if (known != contexts.end()) {
    *context = known->second;
    return CUDA_SUCCESS;
  }
  const CUresult result = cuDevicePrimaryCtxRetain(context, device);
  if (result == CUDA_SUCCESS) contexts[device] = *context;
  return result;
}

CUresult initialize() {
  static const CUresult kResult = cuInit(0);
  return kResult;
}

CUresult load(Binary& binary) {
  if (binary.library != nullptr) return CUDA_SUCCESS;
  return cuLibraryLoadData(&binary.library, binary.image, nullptr, nullptr, 0, nullptr, nullptr, 0);
}

cudaError_t set_device(int device) {
  if (const CUresult result = initialize(); result != CUDA_SUCCESS) return static_cast<cudaError_t>(result);
  CUcontext context = nullptr;
  const CUresult result = context_of(device, &context);
  return static_cast<cudaError_t>(result == CUDA_SUCCESS ? cuCtxSetCurrent(context) : result);
}

struct Configuration {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  cudaStream_t stream;
};

std::vector<Configuration>& configurations() {
  thread_local std::vector<Configuration> stack;
  return stack;
}

}  // namespace

cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

cudaError_t enter() {
  if (const CUresult result = initialize(); result != CUDA_SUCCESS) return static_cast<cudaError_t>(result);
  CUcontext current = nullptr;
  cuCtxGetCurrent(&current);
  return current != nullptr ? cudaSuccess : set_device(0);
}

cudaError_t find_kernel(const void* symbol, CUfunction* function) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.kernels.find(symbol);
  if (found == all.kernels.end()) {
    // A cudaKernel_t stands for itself.
    const auto is_it = [&](const auto& known) { return known.second.kernel == symbol; };
    if (symbol == nullptr || std::none_of(all.kernels.begin(), all.kernels.end(), is_it))
      return cudaErrorInvalidDeviceFunction;
    return static_cast<cudaError_t>(
        cuKernelGetFunction(function, static_cast<CUkernel>(const_cast<void*>(symbol))));
  }
  Symbol& known = found->second;
  if (known.kernel == nullptr) {
    if (const CUresult result = load(*known.binary); result != CUDA_SUCCESS)
      return static_cast<cudaError_t>(result);
    const CUresult result = cuLibraryGetKernel(&known.kernel, known.binary->library, known.name.c_str());
    if (result != CUDA_SUCCESS) return static_cast<cudaError_t>(result);
  }
  *function = reinterpret_cast<CUfunction>(known.kernel);
  return cudaSuccess;
}

cudaError_t find_variable(const void* symbol, CUdeviceptr* address, size_t* bytes) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.variables.find(symbol);
  if (found == all.variables.end()) return cudaErrorInvalidSymbol;
  if (const CUresult result = load(*found->second.binary); result != CUDA_SUCCESS)
    return static_cast<cudaError_t>(result);
  const CUresult result =
      cuLibraryGetGlobal(address, bytes, found->second.binary->library, found->second.name.c_str());
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidSymbol;
}

}  // namespace fake_cudart

using fake_cudart::Binary;
using fake_cudart::Configuration;
using fake_cudart::registry;

#pragma GCC visibility push(default)
extern "C" {

// ---- what nvcc's code calls (crt/host_runtime.h, crt/device_functions.h) ---------------------------

void** __cudaRegisterFatBinary(void* image) {
  auto binary = std::make_unique<Binary>();
  binary->image = image;
  auto& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Binary* const raw = binary.get();
  all.binaries[raw] = std::move(binary);
  return reinterpret_cast<void**>(raw);
}

void __cudaRegisterFatBinaryEnd(void** /*handle*/) {}

void __cudaUnregisterFatBinary(void** handle) {
  auto& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto* const binary = reinterpret_cast<Binary*>(handle);
  for (auto* symbols : {&all.kernels, &all.variables}) {
    std::erase_if(*symbols, [&](const auto& symbol) { return symbol.second.binary == binary; });
  }
  if (binary->library != nullptr) cuLibraryUnload(binary->library);
  all.binaries.erase(binary);
}

void __cudaRegisterFunction(void** handle, const char* symbol, char* /*device_function*/, const char* name,
                            int /*limit*/, uint3* /*tid*/, uint3* /*bid*/, dim3* /*block*/, dim3* /*grid*/,
                            int* /*warp_size*/) {
  auto& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.kernels[symbol] = {reinterpret_cast<Binary*>(handle), name, nullptr};
}

void __cudaRegisterVar(void** handle, char* symbol, char* /*address*/, const char* name, int /*ext*/,
                       size_t /*bytes*/, int /*constant*/, int /*global*/) {
  auto& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.variables[symbol] = {reinterpret_cast<Binary*>(handle), name, nullptr};
}

void __cudaRegisterManagedVar(void** handle, void** symbol, char* /*address*/, const char* name, int /*ext*/,
                              size_t /*bytes*/, int /*constant*/, int /*global*/) {
  auto& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto* const binary = reinterpret_cast<Binary*>(handle);
  binary->managed.emplace_back(symbol, name);
  all.variables[symbol] = {binary, name, nullptr};
}

char __cudaInitModule(void** handle) {
  if (fake_cudart::enter() != cudaSuccess) return 0;
  auto& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto* const binary = reinterpret_cast<Binary*>(handle);
  if (binary->is_ready) return 1;
  if (fake_cudart::load(*binary) != CUDA_SUCCESS) return 0;
  for (const auto& [symbol, name] : binary->managed) {
    size_t bytes = 0;
    CUdeviceptr address = 0;
    if (cuLibraryGetManaged(&address, &bytes, binary->library, name.c_str()) != CUDA_SUCCESS) return 0;
    *symbol = reinterpret_cast<void*>(address);
  }
  binary->is_ready = true;
  return 1;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, CUstream_st* stream) {
  fake_cudart::configurations().push_back({grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  auto& stack = fake_cudart::configurations();
  if (stack.empty()) return note(cudaErrorMissingConfiguration);
  const Configuration top = stack.back();
  stack.pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* symbol) {
  RUNTIME_CALL();
  return note(fake_cudart::find_kernel(symbol, reinterpret_cast<CUfunction*>(kernel)));
}

// ---- errors ---------------------------------------------------------------------------------------

cudaError_t cudaGetLastError() {
  return std::exchange(fake_cudart::last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return fake_cudart::last_error;
}
const char* cudaGetErrorName(cudaError_t error) {
  const char* text = nullptr;
  if (error == cudaErrorInvalidDeviceFunction) return "cudaErrorInvalidDeviceFunction";
  cuGetErrorName(static_cast<CUresult>(error), &text);
  return text != nullptr ? text : "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : cudaGetErrorName(error);
}

// ---- devices --------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  if (const CUresult result = fake_cudart::initialize(); result != CUDA_SUCCESS) return note(result);
  return note(cuDeviceGetCount(count));
}

cudaError_t cudaSetDevice(int device) {
  return note(fake_cudart::set_device(device));
}

cudaError_t cudaInitDevice(int device, unsigned /*device_flags*/, unsigned /*flags*/) {
  return cudaSetDevice(device);
}

cudaError_t cudaGetDevice(int* device) {
  RUNTIME_CALL();
  return note(cuCtxGetDevice(device));
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  RUNTIME_CALL();
  return note(cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(which), device));
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* all, int device) {
  RUNTIME_CALL();
  if (const CUresult result = cuDeviceGetName(all->name, sizeof all->name, device); result != CUDA_SUCCESS)
    return note(cudaErrorInvalidDevice);
  const std::string name = all->name;
  std::memset(static_cast<void*>(all), 0, sizeof *all);
  std::copy(name.begin(), name.end(), all->name);
  cuDeviceGetUuid(&all->uuid, device);
  cuDeviceTotalMem(&all->totalGlobalMem, device);
  const auto get = [&](CUdevice_attribute which) {
    int value = 0;
    cuDeviceGetAttribute(&value, which, device);
    return value;
  };
  all->sharedMemPerBlock = static_cast<size_t>(get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK));
  all->sharedMemPerBlockOptin =
      static_cast<size_t>(get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  all->sharedMemPerMultiprocessor =
      static_cast<size_t>(get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR));
  all->reservedSharedMemPerBlock =
      static_cast<size_t>(get(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK));
  all->regsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  all->regsPerMultiprocessor = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  all->warpSize = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  all->memPitch = static_cast<size_t>(get(CU_DEVICE_ATTRIBUTE_MAX_PITCH));
  all->maxThreadsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  all->maxThreadsPerMultiProcessor = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  all->maxBlocksPerMultiProcessor = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  for (int i = 0; i < 3; ++i) {
    all->maxThreadsDim[i] = get(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i));
    all->maxGridSize[i] = get(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i));
  }
  all->totalConstMem = static_cast<size_t>(get(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY));
  all->major = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  all->minor = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  all->multiProcessorCount = get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  all->canMapHostMemory = get(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  all->concurrentKernels = get(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS);
  all->pciBusID = get(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  all->pciDeviceID = get(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  all->pciDomainID = get(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  all->asyncEngineCount = get(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
  all->unifiedAddressing = get(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
  all->memoryBusWidth = get(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  all->l2CacheSize = get(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  all->streamPrioritiesSupported = get(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED);
  all->managedMemory = get(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
  all->concurrentManagedAccess = get(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
  all->computePreemptionSupported = get(CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED);
  all->cooperativeLaunch = get(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
  all->hostRegisterSupported = get(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
  all->memoryPoolsSupported = get(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  RUNTIME_CALL();
  return note(cuCtxSynchronize());
}

/// What the program holds stays: the driver has no call that takes it away.
cudaError_t cudaDeviceReset() {
  RUNTIME_CALL();
  return note(cuCtxSynchronize());
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  RUNTIME_CALL();
  return note(cuDeviceGetPCIBusId(text, bytes, device));
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  RUNTIME_CALL();
  return note(cuDeviceGetByPCIBusId(device, text));
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  RUNTIME_CALL();
  return note(cuDeviceCanAccessPeer(can, device, peer));
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  RUNTIME_CALL();
  CUcontext context = nullptr;
  if (const CUresult result = fake_cudart::context_of(peer, &context); result != CUDA_SUCCESS)
    return note(result);
  return note(cuCtxEnablePeerAccess(context, flags));
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  RUNTIME_CALL();
  CUcontext context = nullptr;
  if (const CUresult result = fake_cudart::context_of(peer, &context); result != CUDA_SUCCESS)
    return note(result);
  return note(cuCtxDisablePeerAccess(context));
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr which, int from, int to) {
  RUNTIME_CALL();
  return note(cuDeviceGetP2PAttribute(value, static_cast<CUdevice_P2PAttribute>(which), from, to));
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  RUNTIME_CALL();
  return note(cuCtxGetStreamPriorityRange(least, greatest));
}
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  RUNTIME_CALL();
  return note(cuCtxGetLimit(value, static_cast<CUlimit>(limit)));
}
cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  RUNTIME_CALL();
  return note(cuCtxSetLimit(static_cast<CUlimit>(limit), value));
}
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache /*config*/) {
  RUNTIME_CALL();
  return cudaSuccess;
}
cudaError_t cudaSetDeviceFlags(unsigned int /*flags*/) {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
  *flags = cudaDeviceMapHost;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  return note(cuDriverGetVersion(version));
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaProfilerStart() {
  return cudaSuccess;
}
cudaError_t cudaProfilerStop() {
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* status) {
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
  cuGetProcAddress(symbol, function, static_cast<int>(version), flags, &found);
  if (status != nullptr) *status = static_cast<cudaDriverEntryPointQueryResult>(found);
  return cudaSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
