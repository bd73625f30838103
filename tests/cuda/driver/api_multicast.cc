// The driver's functions on multicast memory.
#include "tests/cuda/driver/device.h"
#include "tests/cuda/driver/machine.h"
#include "tests/cuda/driver/memory.h"
#include "tests/cuda/driver/multicast.h"

using fake_cuda::Allocation;
using fake_cuda::Device;
using fake_cuda::kGranularity;
using fake_cuda::machine;
using fake_cuda::Multicast;

namespace {

CUresult check(const CUmulticastObjectProp* wish) {
  if (wish == nullptr || wish->numDevices == 0 || wish->numDevices > Multicast::kMostDevices ||
      wish->flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const bool by_file = wish->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (!fake_cuda::settings().multicast || !by_file || fake_cuda::settings().no_files)
    return CUDA_ERROR_NOT_SUPPORTED;
  return CUDA_SUCCESS;
}

Multicast* object(CUmemGenericAllocationHandle handle) {
  const Allocation* allocation = machine().allocations.find(handle);
  return allocation != nullptr ? allocation->physical->multicast.get() : nullptr;
}

}  // namespace

extern "C" {

CUresult cuMulticastGetGranularity(size_t* granularity, const CUmulticastObjectProp* wish,
                                   CUmulticastGranularity_flags /*option*/) {
  FAKE_CALL(cuMulticastGetGranularity);
  const CUresult answer = check(wish);
  if (answer == CUDA_SUCCESS) *granularity = kGranularity;
  return answer;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* wish) {
  FAKE_CALL(cuMulticastCreate);
  if (const CUresult answer = check(wish); answer != CUDA_SUCCESS) return answer;
  if (wish->size == 0 || wish->size % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  auto physical = Multicast::create(wish->numDevices, wish->size);
  if (physical == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  auto allocation = std::make_unique<Allocation>();
  allocation->physical = std::move(physical);
  *handle = reinterpret_cast<CUmemGenericAllocationHandle>(machine().allocations.add(std::move(allocation)));
  return CUDA_SUCCESS;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice ordinal) {
  FAKE_CALL(cuMulticastAddDevice);
  Multicast* const multicast = object(handle);
  const Device* const device = machine().device(ordinal);
  if (multicast == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr || !multicast->add(device->number())) return CUDA_ERROR_INVALID_DEVICE;
  return CUDA_SUCCESS;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long flags) {
  FAKE_CALL(cuMulticastBindMem);
  Multicast* const multicast = object(handle);
  const Allocation* const bound = machine().allocations.find(memory);
  if (multicast == nullptr || bound == nullptr || bound->physical->multicast != nullptr || flags != 0 ||
      offset != 0 || memory_offset != 0 ||
      bytes != machine().allocations.find(handle)->physical->byte_count ||
      bytes > bound->physical->byte_count)
    return CUDA_ERROR_INVALID_VALUE;
  if (!multicast->has(bound->physical->owner)) return CUDA_ERROR_INVALID_DEVICE;
  if (!multicast->is_complete()) return CUDA_ERROR_ILLEGAL_STATE;
  return multicast->bind(bound->physical->owner, bound->physical) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
