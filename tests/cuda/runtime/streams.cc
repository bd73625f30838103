// Streams, events, launches, graphs; and the functions of programs whose default stream is each thread's own.
#include <cstring>

#include "tests/cuda/runtime/runtime.h"

using fake_cudart::driver_stream;
using fake_cudart::note;

namespace {

CUstream own_stream(cudaStream_t stream) {
  return stream == nullptr ? CU_STREAM_PER_THREAD : driver_stream(stream);
}

cudaError_t launch(CUfunction function, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                   CUstream stream) {
  return note(cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                             static_cast<unsigned>(shared_bytes), stream, arguments, nullptr));
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// ---- launches -------------------------------------------------------------------------------------

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream) {
  RUNTIME_CALL();
  return launch(reinterpret_cast<CUfunction>(kernel), grid, block, arguments, shared_bytes,
                driver_stream(stream));
}
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                    size_t shared_bytes, cudaStream_t stream) {
  return __cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, own_stream(stream));
}
cudaError_t cudaLaunchKernel(const void* symbol, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                             cudaStream_t stream) {
  RUNTIME_CALL();
  CUfunction function = nullptr;
  if (const cudaError_t error = fake_cudart::find_kernel(symbol, &function); error != cudaSuccess)
    return note(error);
  return launch(function, grid, block, arguments, shared_bytes, driver_stream(stream));
}
cudaError_t cudaLaunchCooperativeKernel(const void* symbol, dim3 grid, dim3 block, void** arguments,
                                        size_t shared_bytes, cudaStream_t stream) {
  RUNTIME_CALL();
  CUfunction function = nullptr;
  if (const cudaError_t error = fake_cudart::find_kernel(symbol, &function); error != cudaSuccess)
    return note(error);
  return note(cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                        static_cast<unsigned>(shared_bytes), driver_stream(stream),
                                        arguments));
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* wish, const void* symbol, void** arguments) {
  RUNTIME_CALL();
  CUfunction function = nullptr;
  if (const cudaError_t error = fake_cudart::find_kernel(symbol, &function); error != cudaSuccess)
    return note(error);
  static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute));
  CUlaunchConfig config{};
  config.gridDimX = wish->gridDim.x;
  config.gridDimY = wish->gridDim.y;
  config.gridDimZ = wish->gridDim.z;
  config.blockDimX = wish->blockDim.x;
  config.blockDimY = wish->blockDim.y;
  config.blockDimZ = wish->blockDim.z;
  config.sharedMemBytes = static_cast<unsigned>(wish->dynamicSmemBytes);
  config.hStream = driver_stream(wish->stream);
  config.attrs = reinterpret_cast<CUlaunchAttribute*>(wish->attrs);
  config.numAttrs = wish->numAttrs;
  return note(cuLaunchKernelEx(&config, function, arguments, nullptr));
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  RUNTIME_CALL();
  return note(cuLaunchHostFunc(driver_stream(stream), function, argument));
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* all, const void* symbol) {
  RUNTIME_CALL();
  CUfunction function = nullptr;
  if (const cudaError_t error = fake_cudart::find_kernel(symbol, &function); error != cudaSuccess)
    return note(error);
  std::memset(static_cast<void*>(all), 0, sizeof *all);
  CUresult result = CUDA_SUCCESS;
  const auto get = [&](CUfunction_attribute which) {
    int value = 0;
    if (result == CUDA_SUCCESS) result = cuFuncGetAttribute(&value, which, function);
    return value;
  };
  all->sharedSizeBytes = static_cast<size_t>(get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
  all->localSizeBytes = static_cast<size_t>(get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
  all->maxThreadsPerBlock = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  all->numRegs = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
  all->ptxVersion = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
  all->binaryVersion = get(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
  all->maxDynamicSharedSizeBytes = get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  return note(result);
}
cudaError_t cudaFuncSetAttribute(const void* symbol, cudaFuncAttribute which, int value) {
  RUNTIME_CALL();
  CUfunction function = nullptr;
  if (const cudaError_t error = fake_cudart::find_kernel(symbol, &function); error != cudaSuccess)
    return note(error);
  return note(cuFuncSetAttribute(function, static_cast<CUfunction_attribute>(which), value));
}
cudaError_t cudaFuncSetCacheConfig(const void* /*symbol*/, cudaFuncCache /*config*/) {
  RUNTIME_CALL();
  return cudaSuccess;
}
cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* symbol) {
  RUNTIME_CALL();
  return note(fake_cudart::find_kernel(symbol, function));
}
cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* symbol) {
  RUNTIME_CALL();
  return note(fake_cudart::find_kernel(symbol, reinterpret_cast<CUfunction*>(kernel)));
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* symbol, int threads,
                                                          size_t shared_bytes) {
  RUNTIME_CALL();
  CUfunction function = nullptr;
  if (const cudaError_t error = fake_cudart::find_kernel(symbol, &function); error != cudaSuccess)
    return note(error);
  return note(cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared_bytes));
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* symbol,
                                                                   int threads, size_t shared_bytes,
                                                                   unsigned int /*flags*/) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, symbol, threads, shared_bytes);
}
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* symbol, int blocks,
                                                      int threads) {
  RUNTIME_CALL();
  CUfunction function = nullptr;
  if (const cudaError_t error = fake_cudart::find_kernel(symbol, &function); error != cudaSuccess)
    return note(error);
  return note(cuOccupancyAvailableDynamicSMemPerBlock(bytes, function, blocks, threads));
}

// ---- streams --------------------------------------------------------------------------------------

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  RUNTIME_CALL();
  return note(cuStreamCreate(stream, CU_STREAM_DEFAULT));
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  RUNTIME_CALL();
  return note(cuStreamCreate(stream, flags));
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  RUNTIME_CALL();
  return note(cuStreamCreateWithPriority(stream, flags, priority));
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  RUNTIME_CALL();
  return note(cuStreamDestroy(stream));
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  RUNTIME_CALL();
  return note(cuStreamSynchronize(stream));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  RUNTIME_CALL();
  return note(cuStreamQuery(stream));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  RUNTIME_CALL();
  return note(cuStreamWaitEvent(stream, event, flags));
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* argument,
                                  unsigned int flags) {
  RUNTIME_CALL();
  return note(cuStreamAddCallback(stream, reinterpret_cast<CUstreamCallback>(function), argument, flags));
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  RUNTIME_CALL();
  return note(cuStreamGetFlags(stream, flags));
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  RUNTIME_CALL();
  return note(cuStreamGetPriority(stream, priority));
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  RUNTIME_CALL();
  return note(cuStreamGetDevice(stream, device));
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  RUNTIME_CALL();
  return note(cuStreamGetId(stream, id));
}

// ---- events ---------------------------------------------------------------------------------------

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  RUNTIME_CALL();
  return note(cuEventCreate(event, 0));
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  RUNTIME_CALL();
  return note(cuEventCreate(event, flags));
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  RUNTIME_CALL();
  return note(cuEventDestroy(event));
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  RUNTIME_CALL();
  return note(cuEventRecord(event, stream));
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int /*flags*/) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  RUNTIME_CALL();
  return note(cuEventQuery(event));
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  RUNTIME_CALL();
  return note(cuEventSynchronize(event));
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  RUNTIME_CALL();
  return note(cuEventElapsedTime(milliseconds, from, to));
}

// ---- --default-stream per-thread -------------------------------------------------------------------

cudaError_t cudaMemcpy_ptds(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, CU_STREAM_PER_THREAD);
  return error == cudaSuccess ? cudaStreamSynchronize(CU_STREAM_PER_THREAD) : error;
}
cudaError_t cudaMemset_ptds(void* to, int value, size_t bytes) {
  const cudaError_t error = cudaMemsetAsync(to, value, bytes, CU_STREAM_PER_THREAD);
  return error == cudaSuccess ? cudaStreamSynchronize(CU_STREAM_PER_THREAD) : error;
}
cudaError_t cudaMemcpyAsync_ptsz(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                 cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, kind, own_stream(stream));
}
cudaError_t cudaMemsetAsync_ptsz(void* to, int value, size_t bytes, cudaStream_t stream) {
  return cudaMemsetAsync(to, value, bytes, own_stream(stream));
}
cudaError_t cudaMallocAsync_ptsz(void** pointer, size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync(pointer, bytes, own_stream(stream));
}
cudaError_t cudaFreeAsync_ptsz(void* pointer, cudaStream_t stream) {
  return cudaFreeAsync(pointer, own_stream(stream));
}
cudaError_t cudaLaunchKernel_ptsz(const void* symbol, dim3 grid, dim3 block, void** arguments,
                                  size_t shared_bytes, cudaStream_t stream) {
  return cudaLaunchKernel(symbol, grid, block, arguments, shared_bytes, own_stream(stream));
}
cudaError_t cudaLaunchHostFunc_ptsz(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  return cudaLaunchHostFunc(own_stream(stream), function, argument);
}
cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream) {
  return cudaStreamSynchronize(own_stream(stream));
}
cudaError_t cudaStreamQuery_ptsz(cudaStream_t stream) {
  return cudaStreamQuery(own_stream(stream));
}
cudaError_t cudaStreamWaitEvent_ptsz(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return cudaStreamWaitEvent(own_stream(stream), event, flags);
}
cudaError_t cudaEventRecord_ptsz(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecord(event, own_stream(stream));
}
cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t executable, cudaStream_t stream) {
  return cudaGraphLaunch(executable, own_stream(stream));
}

}  // extern "C"
#pragma GCC visibility pop
