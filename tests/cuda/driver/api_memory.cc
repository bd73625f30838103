// The driver's functions on memory.
#include <fcntl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/cuda/driver/device.h"
#include "tests/cuda/driver/machine.h"
#include "tests/cuda/driver/memory.h"

using fake_cuda::AddressSpace;
using fake_cuda::Device;
using fake_cuda::machine;
using fake_cuda::Origin;
using fake_cuda::Range;
using fake_cuda::settings;

namespace {

/// The ordinal, in this process, of a device of the machine; -1: it is not visible.
int ordinal_of(int number) {
  for (const auto& device : machine().devices) {
    if (device->number() == number) return device->ordinal();
  }
  return -1;
}

CUresult answer(CUpointer_attribute which, const Range* range, CUdeviceptr pointer, void* value) {
  const bool known = range != nullptr;
  const auto set = [&](auto content) {
    std::memcpy(value, &content, sizeof(content));
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return set(known ? range->context : nullptr);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: {
      const bool device = known && (range->is_on_device() || range->origin == Origin::kManaged);
      return set(static_cast<unsigned>(known ? (device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST) : 0));
    }
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return set(known ? pointer : CUdeviceptr{0});
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return set(known && !range->is_on_device() ? pointer : CUdeviceptr{0});
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return set(known ? range->id : uint64_t{0});
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return set(static_cast<unsigned char>(known && range->origin == Origin::kManaged));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: {
      const int ordinal = !known ? -2 : range->device < 0 ? 0 : ordinal_of(range->device);
      return set(ordinal);
    }
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return set(static_cast<unsigned char>(known && range->origin == Origin::kAlloc));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return set(known ? range->base : uintptr_t{0});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return set(known ? range->bytes : size_t{0});
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

/// Addresses without memory are none of a pointer's business.
const Range* find_memory(CUdeviceptr pointer) {
  const Range* range = machine().memory.find(pointer);
  return range != nullptr && range->origin == Origin::kReserved ? nullptr : range;
}

}  // namespace

extern "C" {

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute which, CUdeviceptr pointer) {
  FAKE_CALL(cuPointerGetAttribute);
  return answer(which, find_memory(pointer), pointer, value);
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* which, void** values,
                                CUdeviceptr pointer) {
  FAKE_CALL(cuPointerGetAttributes);
  for (unsigned i = 0; i < count; ++i) {
    // An unknown pointer is not an error here.
    if (answer(which[i], find_memory(pointer), pointer, values[i]) == CUDA_ERROR_NOT_SUPPORTED) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
  FAKE_CALL_IN_CONTEXT(cuMemGetAddressRange);
  const Range* range = find_memory(pointer);
  if (range == nullptr || !range->is_on_device()) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = range->base;
  if (bytes != nullptr) *bytes = range->bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  FAKE_CALL_IN_CONTEXT(cuMemGetInfo);
  *total_bytes = settings().memory_bytes;
  *free_bytes = settings().memory_bytes - machine().memory.used_bytes(context->device->number());
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* pointer, size_t bytes) {
  FAKE_UNSAFE_CALL(cuMemAlloc);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const Range* range = machine().memory.allocate(context->device->number(), bytes, context);
  if (range == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = range->base;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned int /*flags*/) {
  FAKE_UNSAFE_CALL(cuMemAllocManaged);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const Range* range = machine().memory.allocate_managed(context->device->number(), bytes, context);
  if (range == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = range->base;
  return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr pointer) {
  FAKE_UNSAFE_CALL(cuMemFree);
  if (pointer == 0) return CUDA_SUCCESS;
  const auto find = [&] {
    return machine().memory.find_base(pointer, {Origin::kAlloc, Origin::kManaged, Origin::kPool});
  };
  if (find() == nullptr) return CUDA_ERROR_INVALID_VALUE;
  context->device->wait_idle(guard);
  Range* range = find();
  if (range != nullptr) machine().memory.release(*range);
  return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height,
                         unsigned int element) {
  constexpr size_t kPitch = 512;
  *pitch = (width + kPitch - 1) / kPitch * kPitch;
  return element == 4 || element == 8 || element == 16 ? cuMemAlloc(pointer, *pitch * height)
                                                       : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* pointer, void* host, unsigned int /*flags*/) {
  FAKE_CALL_IN_CONTEXT(cuMemHostGetDevicePointer);
  const Range* range = find_memory(reinterpret_cast<CUdeviceptr>(host));
  if (range == nullptr || range->is_on_device()) return CUDA_ERROR_INVALID_VALUE;
  *pointer = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* host) {
  FAKE_CALL_IN_CONTEXT(cuMemHostGetFlags);
  if (find_memory(reinterpret_cast<CUdeviceptr>(host)) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned int /*flags*/) {
  FAKE_UNSAFE_CALL(cuMemHostAlloc);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const Range* range = machine().memory.allocate_host(bytes, context);
  if (range == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = reinterpret_cast<void*>(range->base);
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* pointer) {
  FAKE_UNSAFE_CALL(cuMemFreeHost);
  if (pointer == nullptr) return CUDA_SUCCESS;
  const auto find = [&] {
    return machine().memory.find_base(reinterpret_cast<uintptr_t>(pointer), {Origin::kHost});
  };
  if (find() == nullptr) return CUDA_ERROR_INVALID_VALUE;
  context->device->wait_idle(guard);
  Range* range = find();
  if (range != nullptr) machine().memory.release(*range);
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void* pointer, size_t bytes, unsigned int /*flags*/) {
  FAKE_UNSAFE_CALL(cuMemHostRegister);
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const Range* range = machine().memory.register_host(pointer, bytes, context);
  return range != nullptr ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult cuMemHostUnregister(void* pointer) {
  FAKE_UNSAFE_CALL(cuMemHostUnregister);
  const auto find = [&] {
    return machine().memory.find_base(reinterpret_cast<uintptr_t>(pointer), {Origin::kRegistered});
  };
  if (find() == nullptr) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  context->device->wait_idle(guard);
  Range* range = find();
  if (range != nullptr) machine().memory.release(*range);
  return CUDA_SUCCESS;
}

/// For network cards. The file begins where the range does.
CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr pointer, size_t bytes,
                                       CUmemRangeHandleType type, unsigned long long flags) {
  FAKE_CALL_IN_CONTEXT(cuMemGetHandleForAddressRange);
  if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!settings().dma_buf) return CUDA_ERROR_NOT_SUPPORTED;
  const Range* range = find_memory(pointer);
  if (range == nullptr || !range->is_on_device() || range->physical == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (pointer != range->base || bytes > range->physical->byte_count || bytes % 4096 != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const int file = fcntl(range->physical->fd, F_DUPFD_CLOEXEC, 0);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(handle) = file;
  return CUDA_SUCCESS;
}

CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget /*target*/,
                                    CUflushGPUDirectRDMAWritesScope /*scope*/) {
  FAKE_CALL_IN_CONTEXT(cuFlushGPUDirectRDMAWrites);
  ++machine().card_flushes;
  return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  FAKE_CALL_IN_CONTEXT(cuIpcGetMemHandle);
  const Range* range = find_memory(pointer);
  if (range == nullptr || range->origin != Origin::kAlloc) return CUDA_ERROR_INVALID_VALUE;
  *handle = AddressSpace::export_handle(*range);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned int flags) {
  FAKE_UNSAFE_CALL(cuIpcOpenMemHandle);
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  Range* range = machine().memory.open_handle(handle, context);
  if (range == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const Device& own = *context->device;
  if (!own.reaches(range->device) || ordinal_of(range->device) < 0) {
    if (--range->opened == 0) machine().memory.release(*range);
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  }
  Device* owner = machine().device(ordinal_of(range->device));
  if (owner != &own) machine().peers.emplace(context->device, owner);
  *pointer = range->base;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  FAKE_UNSAFE_CALL(cuIpcCloseMemHandle);
  Range* range = machine().memory.find_base(pointer, {Origin::kImported});
  if (range == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (--range->opened == 0) machine().memory.release(*range);
  return CUDA_SUCCESS;
}

}  // extern "C"
