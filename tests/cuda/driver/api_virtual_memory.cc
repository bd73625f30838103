// The driver's functions on memory whose addresses and contents are managed apart (VMM).
#include <fcntl.h>

#include <algorithm>
#include <cstdint>

#include "tests/cuda/driver/device.h"
#include "tests/cuda/driver/machine.h"
#include "tests/cuda/driver/memory.h"

using fake_cuda::Allocation;
using fake_cuda::Device;
using fake_cuda::kGranularity;
using fake_cuda::machine;
using fake_cuda::Origin;
using fake_cuda::Range;

namespace {

bool is_whole(size_t bytes) {
  return bytes > 0 && bytes % kGranularity == 0;
}

Device* device_at(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? machine().device(location.id) : nullptr;
}

/// Null where the driver makes no such memory.
Device* device_of(const CUmemAllocationProp* wish) {
  if (wish == nullptr || wish->type != CU_MEM_ALLOCATION_TYPE_PINNED) return nullptr;
  return device_at(wish->location);
}

CUmemGenericAllocationHandle handle_of(Allocation* allocation) {
  return reinterpret_cast<CUmemGenericAllocationHandle>(allocation);
}

CUmemGenericAllocationHandle add(std::shared_ptr<fake_cuda::Physical> physical) {
  auto allocation = std::make_unique<Allocation>();
  allocation->physical = std::move(physical);
  return handle_of(machine().allocations.add(std::move(allocation)));
}

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* wish,
                                       CUmemAllocationGranularity_flags /*option*/) {
  FAKE_CALL(cuMemGetAllocationGranularity);
  if (device_of(wish) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* wish,
                     unsigned long long flags) {
  FAKE_CALL(cuMemCreate);
  const Device* device = device_of(wish);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (flags != 0 || !is_whole(bytes)) return CUDA_ERROR_INVALID_VALUE;
  constexpr unsigned kFiles = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if ((wish->requestedHandleTypes & ~kFiles) != 0 ||
      (wish->requestedHandleTypes != 0 && fake_cuda::settings().no_files))
    return CUDA_ERROR_NOT_SUPPORTED;
  const bool shareable = wish->requestedHandleTypes == kFiles;
  auto physical = machine().memory.create(device->number(), bytes, shareable);
  if (physical == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = add(std::move(physical));
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  FAKE_CALL(cuMemRelease);
  Allocation* allocation = machine().allocations.find(handle);
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (--allocation->references == 0) machine().allocations.remove(allocation);
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  FAKE_CALL(cuMemRetainAllocationHandle);
  const Range* range = machine().memory.find(reinterpret_cast<uintptr_t>(address));
  if (range == nullptr || range->origin != Origin::kMapped) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& [raw, allocation] : machine().allocations) {
    if (allocation->physical != range->physical) continue;
    ++allocation->references;
    *handle = handle_of(raw);
    return CUDA_SUCCESS;
  }
  *handle = add(range->physical);
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shared, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  FAKE_CALL(cuMemExportToShareableHandle);
  const Allocation* allocation = machine().allocations.find(handle);
  if (allocation == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !allocation->physical->shareable) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const int fd = fcntl(allocation->physical->fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(shared) = fd;
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shared,
                                        CUmemAllocationHandleType type) {
  FAKE_CALL(cuMemImportFromShareableHandle);
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  auto physical = machine().memory.import(static_cast<int>(reinterpret_cast<intptr_t>(shared)));
  if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *handle = add(std::move(physical));
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr /*hint*/,
                             unsigned long long flags) {
  FAKE_CALL(cuMemAddressReserve);
  if (flags != 0 || !is_whole(bytes)) return CUDA_ERROR_INVALID_VALUE;
  const Range* range = machine().memory.reserve(bytes, alignment);
  if (range == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = range->base;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  FAKE_CALL(cuMemAddressFree);
  Range* range = machine().memory.find_base(address, {Origin::kReserved});
  if (range == nullptr || range->bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& [base, mapped] : machine().memory.ranges()) {
    if (base >= address && base < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  }
  machine().memory.release(*range);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  FAKE_CALL(cuMemMap);
  const Allocation* allocation = machine().allocations.find(handle);
  if (allocation == nullptr || flags != 0 || offset != 0 || !is_whole(bytes) ||
      bytes > allocation->physical->byte_count) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Range* range = machine().memory.map(address, bytes, allocation->physical);
  return range != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  FAKE_CALL(cuMemUnmap);
  const uintptr_t end = address + bytes;
  while (address < end) {
    Range* range = machine().memory.find_base(address, {Origin::kMapped});
    if (range == nullptr || address + range->bytes > end) return CUDA_ERROR_INVALID_VALUE;
    address += range->bytes;
    machine().memory.release(*range);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* wishes, size_t count) {
  FAKE_CALL(cuMemSetAccess);
  const uintptr_t end = address + bytes;
  while (address < end) {
    Range* range = machine().memory.find_base(address, {Origin::kMapped});
    if (range == nullptr || address + range->bytes > end) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
      const Device* device = device_at(wishes[i].location);
      if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
      if (range->physical->multicast == nullptr && !device->reaches(range->device))
        return CUDA_ERROR_INVALID_DEVICE;
      auto& devices = range->accessible;
      devices.erase(std::remove(devices.begin(), devices.end(), device->number()), devices.end());
      if (wishes[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) devices.push_back(device->number());
    }
    machine().memory.protect(*range);
    address += range->bytes;
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
