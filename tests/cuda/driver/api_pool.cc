// The driver's functions on memory that streams allocate. Each allocation has pages of its own; a pool only
// counts.
#include <cstring>

#include "tests/cuda/driver/device.h"
#include "tests/cuda/driver/machine.h"
#include "tests/cuda/driver/memory.h"
#include "tests/cuda/driver/streams.h"

using fake_cuda::Context;
using fake_cuda::Device;
using fake_cuda::machine;
using fake_cuda::Origin;
using fake_cuda::Pool;
using fake_cuda::Range;
using fake_cuda::Stream;

namespace {

CUresult allocate(CUdeviceptr* pointer, size_t bytes, CUstream handle, const Device* device) {
  Stream* stream = fake_cuda::find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr) device = stream->device;
  // The memory is there at once, which no program can tell from "when the stream comes to it".
  const Range* range = machine().memory.allocate(device->number(), bytes, stream->context, Origin::kPool);
  if (range == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = range->base;
  return CUDA_SUCCESS;
}

Pool* default_pool(Device& device) {
  if (device.pool == nullptr) {
    auto pool = std::make_unique<Pool>();
    pool->device = &device;
    device.pool = machine().pools.add(std::move(pool));
  }
  return device.pool;
}

}  // namespace

extern "C" {

CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  FAKE_CALL(cuMemAllocAsync);
  return allocate(pointer, bytes, stream, nullptr);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool handle, CUstream stream) {
  FAKE_CALL(cuMemAllocFromPoolAsync);
  const Pool* pool = machine().pools.find(handle);
  return pool != nullptr ? allocate(pointer, bytes, stream, pool->device) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) {
  FAKE_CALL(cuMemFreeAsync);
  Stream* stream = fake_cuda::find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (pointer == 0) return CUDA_SUCCESS;
  if (machine().memory.find_base(pointer, {Origin::kPool}) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // A graph may be launched again, so what it frees stays its own.
  if (stream->capture != nullptr) return CUDA_SUCCESS;
  return fake_cuda::submit(*stream, fake_cuda::FreeTask{.address = pointer});
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice ordinal) {
  FAKE_CALL(cuDeviceGetDefaultMemPool);
  Device* device = machine().device(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *pool = reinterpret_cast<CUmemoryPool>(default_pool(*device));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice ordinal) {
  return cuDeviceGetDefaultMemPool(pool, ordinal);
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool pool) {
  FAKE_CALL(cuDeviceSetMemPool);
  return machine().device(ordinal) != nullptr && machine().pools.find(pool) != nullptr
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolCreate(CUmemoryPool* handle, const CUmemPoolProps* wish) {
  FAKE_CALL(cuMemPoolCreate);
  Device* device =
      wish->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? machine().device(wish->location.id) : nullptr;
  if (device == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  auto pool = std::make_unique<Pool>();
  pool->device = device;
  *handle = reinterpret_cast<CUmemoryPool>(machine().pools.add(std::move(pool)));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  FAKE_CALL(cuMemPoolDestroy);
  Pool* pool = machine().pools.find(handle);
  if (pool == nullptr || pool == pool->device->pool) return CUDA_ERROR_INVALID_VALUE;
  machine().pools.remove(pool);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute which, void* value) {
  FAKE_CALL(cuMemPoolSetAttribute);
  Pool* pool = machine().pools.find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool wide = which >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
  pool->attributes[which] =
      wide ? *static_cast<uint64_t*>(value) : static_cast<uint64_t>(*static_cast<int*>(value));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute which, void* value) {
  FAKE_CALL(cuMemPoolGetAttribute);
  const Pool* pool = machine().pools.find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = pool->attributes.find(which);
  // The first three are switches, on at first.
  const bool wide = which >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
  const uint64_t number = found != pool->attributes.end() ? found->second : wide ? 0 : 1;
  if (wide) {
    std::memcpy(value, &number, sizeof number);
  } else {
    *static_cast<int*>(value) = static_cast<int>(number);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t /*bytes*/) {
  FAKE_CALL(cuMemPoolTrimTo);
  return machine().pools.find(handle) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* wishes, size_t count) {
  FAKE_CALL(cuMemPoolSetAccess);
  const Pool* pool = machine().pools.find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    Device* device = machine().device(wishes[i].location.id);
    if (device == nullptr || !device->reaches(pool->device->number())) return CUDA_ERROR_INVALID_DEVICE;
    if (device != pool->device) machine().peers.emplace(device, pool->device);
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
