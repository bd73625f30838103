// Memory: allocation, copies, fills, symbols, pools.
#include <cstring>

#include "tests/cuda/runtime/runtime.h"

using fake_cudart::device_pointer;
using fake_cudart::driver_stream;
using fake_cudart::note;

namespace {

CUDA_MEMCPY3D flat(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                   size_t height) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = device_pointer(from);
  copy.srcPitch = from_pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.dstDevice = device_pointer(to);
  copy.dstPitch = to_pitch;
  copy.WidthInBytes = width;
  copy.Height = height;
  copy.Depth = 1;
  return copy;
}

CUDA_MEMCPY3D deep(const cudaMemcpy3DParms& wish) {
  CUDA_MEMCPY3D copy = flat(wish.dstPtr.ptr, wish.dstPtr.pitch, wish.srcPtr.ptr, wish.srcPtr.pitch,
                            wish.extent.width, wish.extent.height);
  copy.Depth = wish.extent.depth;
  copy.srcXInBytes = wish.srcPos.x;
  copy.srcY = wish.srcPos.y;
  copy.srcZ = wish.srcPos.z;
  copy.srcHeight = wish.srcPtr.ysize;
  copy.dstXInBytes = wish.dstPos.x;
  copy.dstY = wish.dstPos.y;
  copy.dstZ = wish.dstPos.z;
  copy.dstHeight = wish.dstPtr.ysize;
  return copy;
}

cudaError_t copy_symbol(const void* symbol, size_t offset, void* other, size_t bytes, bool to_symbol,
                        cudaStream_t stream, bool waits) {
  CUdeviceptr address = 0;
  size_t size = 0;
  if (const cudaError_t error = fake_cudart::find_variable(symbol, &address, &size); error != cudaSuccess)
    return note(error);
  if (offset + bytes > size) return note(cudaErrorInvalidValue);
  const CUdeviceptr to = to_symbol ? address + offset : device_pointer(other);
  const CUdeviceptr from = to_symbol ? device_pointer(other) : address + offset;
  return note(waits ? cuMemcpy(to, from, bytes) : cuMemcpyAsync(to, from, bytes, driver_stream(stream)));
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  RUNTIME_CALL();
  if (pointer == nullptr) return note(cudaErrorInvalidValue);
  *pointer = nullptr;
  return bytes == 0 ? cudaSuccess : note(cuMemAlloc(reinterpret_cast<CUdeviceptr*>(pointer), bytes));
}
cudaError_t cudaFree(void* pointer) {
  RUNTIME_CALL();
  return note(cuMemFree(device_pointer(pointer)));
}
cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  RUNTIME_CALL();
  return note(cuMemAllocPitch(reinterpret_cast<CUdeviceptr*>(pointer), pitch, width, height, 4));
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* pointer, cudaExtent extent) {
  pointer->xsize = extent.width;
  pointer->ysize = extent.height;
  return cudaMallocPitch(&pointer->ptr, &pointer->pitch, extent.width, extent.height * extent.depth);
}
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned int flags) {
  RUNTIME_CALL();
  return note(cuMemAllocManaged(reinterpret_cast<CUdeviceptr*>(pointer), bytes, flags));
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  RUNTIME_CALL();
  return note(cuMemHostAlloc(pointer, bytes, 0));
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  RUNTIME_CALL();
  return note(cuMemHostAlloc(pointer, bytes, flags));
}
cudaError_t cudaFreeHost(void* pointer) {
  RUNTIME_CALL();
  return note(cuMemFreeHost(pointer));
}
cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned int flags) {
  RUNTIME_CALL();
  return note(cuMemHostRegister(pointer, bytes, flags));
}
cudaError_t cudaHostUnregister(void* pointer) {
  RUNTIME_CALL();
  return note(cuMemHostUnregister(pointer));
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned int flags) {
  RUNTIME_CALL();
  return note(cuMemHostGetDevicePointer(reinterpret_cast<CUdeviceptr*>(device), host, flags));
}
cudaError_t cudaHostGetFlags(unsigned int* flags, void* host) {
  RUNTIME_CALL();
  return note(cuMemHostGetFlags(flags, host));
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  RUNTIME_CALL();
  return note(cuMemGetInfo(free_bytes, total_bytes));
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* all, const void* pointer) {
  RUNTIME_CALL();
  std::memset(all, 0, sizeof *all);
  all->device = -2;
  unsigned type = 0;
  if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device_pointer(pointer)) !=
      CUDA_SUCCESS) {
    all->hostPointer = const_cast<void*>(pointer);
    all->type = cudaMemoryTypeUnregistered;
    return cudaSuccess;
  }
  bool managed = false;
  cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, device_pointer(pointer));
  cuPointerGetAttribute(&all->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, device_pointer(pointer));
  all->type = managed                        ? cudaMemoryTypeManaged
              : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                                             : cudaMemoryTypeHost;
  all->devicePointer = const_cast<void*>(pointer);
  if (all->type != cudaMemoryTypeDevice) all->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

// ---- copies and fills -----------------------------------------------------------------------------

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/) {
  RUNTIME_CALL();
  return note(cuMemcpy(device_pointer(to), device_pointer(from), bytes));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  RUNTIME_CALL();
  return note(cuMemcpyAsync(device_pointer(to), device_pointer(from), bytes, driver_stream(stream)));
}
cudaError_t cudaMemcpyPeer(void* to, int /*device*/, const void* from, int /*source*/, size_t bytes) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int /*device*/, const void* from, int /*source*/, size_t bytes,
                                cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                         size_t height, cudaMemcpyKind /*kind*/) {
  RUNTIME_CALL();
  if (width > to_pitch || width > from_pitch) return note(cudaErrorInvalidPitchValue);
  const CUDA_MEMCPY3D copy = flat(to, to_pitch, from, from_pitch, width, height);
  return note(cuMemcpy3D(&copy));
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  RUNTIME_CALL();
  if (width > to_pitch || width > from_pitch) return note(cudaErrorInvalidPitchValue);
  const CUDA_MEMCPY3D copy = flat(to, to_pitch, from, from_pitch, width, height);
  return note(cuMemcpy3DAsync(&copy, driver_stream(stream)));
}
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* wish) {
  RUNTIME_CALL();
  const CUDA_MEMCPY3D copy = deep(*wish);
  return note(cuMemcpy3D(&copy));
}
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* wish, cudaStream_t stream) {
  RUNTIME_CALL();
  const CUDA_MEMCPY3D copy = deep(*wish);
  return note(cuMemcpy3DAsync(&copy, driver_stream(stream)));
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  RUNTIME_CALL();
  return note(cuMemsetD8(device_pointer(to), static_cast<unsigned char>(value), bytes));
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  RUNTIME_CALL();
  return note(
      cuMemsetD8Async(device_pointer(to), static_cast<unsigned char>(value), bytes, driver_stream(stream)));
}
cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  RUNTIME_CALL();
  return note(cuMemsetD2D8(device_pointer(to), pitch, static_cast<unsigned char>(value), width, height));
}
cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  RUNTIME_CALL();
  return note(cuMemsetD2D8Async(device_pointer(to), pitch, static_cast<unsigned char>(value), width, height,
                                driver_stream(stream)));
}

// ---- symbols --------------------------------------------------------------------------------------

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                               cudaMemcpyKind /*kind*/) {
  RUNTIME_CALL();
  return copy_symbol(symbol, offset, const_cast<void*>(from), bytes, true, nullptr, true);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset,
                                 cudaMemcpyKind /*kind*/) {
  RUNTIME_CALL();
  return copy_symbol(symbol, offset, to, bytes, false, nullptr, true);
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset,
                                    cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  RUNTIME_CALL();
  return copy_symbol(symbol, offset, const_cast<void*>(from), bytes, true, stream, false);
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset,
                                      cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  RUNTIME_CALL();
  return copy_symbol(symbol, offset, to, bytes, false, stream, false);
}
cudaError_t cudaGetSymbolAddress(void** pointer, const void* symbol) {
  RUNTIME_CALL();
  size_t bytes = 0;
  return note(fake_cudart::find_variable(symbol, reinterpret_cast<CUdeviceptr*>(pointer), &bytes));
}
cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  RUNTIME_CALL();
  CUdeviceptr address = 0;
  return note(fake_cudart::find_variable(symbol, &address, bytes));
}

// ---- pools, managed memory, other processes --------------------------------------------------------

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  RUNTIME_CALL();
  return note(cuMemAllocAsync(reinterpret_cast<CUdeviceptr*>(pointer), bytes, driver_stream(stream)));
}
cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  RUNTIME_CALL();
  return note(
      cuMemAllocFromPoolAsync(reinterpret_cast<CUdeviceptr*>(pointer), bytes, pool, driver_stream(stream)));
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  RUNTIME_CALL();
  return note(cuMemFreeAsync(device_pointer(pointer), driver_stream(stream)));
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  RUNTIME_CALL();
  return note(cuDeviceGetDefaultMemPool(pool, device));
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  RUNTIME_CALL();
  return note(cuDeviceGetMemPool(pool, device));
}
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  RUNTIME_CALL();
  return note(cuDeviceSetMemPool(device, pool));
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* wish) {
  RUNTIME_CALL();
  return note(cuMemPoolCreate(pool, reinterpret_cast<const CUmemPoolProps*>(wish)));
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  RUNTIME_CALL();
  return note(cuMemPoolDestroy(pool));
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which, void* value) {
  RUNTIME_CALL();
  return note(cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(which), value));
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which, void* value) {
  RUNTIME_CALL();
  return note(cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(which), value));
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
  RUNTIME_CALL();
  return note(cuMemPoolTrimTo(pool, bytes));
}
/// Managed memory is everywhere already.
cudaError_t cudaMemPrefetchAsync(const void* /*pointer*/, size_t /*bytes*/, cudaMemLocation /*place*/,
                                 unsigned int /*flags*/, cudaStream_t /*stream*/) {
  RUNTIME_CALL();
  return cudaSuccess;
}
cudaError_t cudaMemAdvise(const void* /*pointer*/, size_t /*bytes*/, cudaMemoryAdvise /*advice*/,
                          cudaMemLocation /*place*/) {
  RUNTIME_CALL();
  return cudaSuccess;
}
cudaError_t cudaStreamAttachMemAsync(cudaStream_t /*stream*/, void* /*pointer*/, size_t /*bytes*/,
                                     unsigned int /*flags*/) {
  RUNTIME_CALL();
  return cudaSuccess;
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  RUNTIME_CALL();
  return note(cuIpcGetMemHandle(reinterpret_cast<CUipcMemHandle*>(handle), device_pointer(pointer)));
}
cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned int flags) {
  RUNTIME_CALL();
  CUipcMemHandle content;
  std::memcpy(&content, &handle, sizeof content);
  return note(cuIpcOpenMemHandle(reinterpret_cast<CUdeviceptr*>(pointer), content, flags));
}
cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  RUNTIME_CALL();
  return note(cuIpcCloseMemHandle(device_pointer(pointer)));
}

}  // extern "C"
#pragma GCC visibility pop
