#include "transports/p2p/multicast_memory.h"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

using cuda::Context;
using cuda::CurrentContext;
using cuda::Driver;

CUmulticastObjectProp wish_of(uint32_t device_count, size_t bytes) {
  CUmulticastObjectProp wish{};
  wish.numDevices = device_count;
  wish.size = bytes;
  wish.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return wish;
}

}  // namespace

/// Whole granules of the object and of the memory. The minimum ones: the recommended size may be 512 MiB, for
/// each communicator and device.
Status MulticastMemory::find_size(size_t bytes) {
  const Driver& driver = context_->driver();
  if (!context_->facts().multicasts) {
    return {Code::kUnsupported, format("CUDA device %d (%s) and its driver have no multicast memory",
                                       context_->device(), context_->facts().pci_bus_id.c_str())};
  }
  const CUmulticastObjectProp wish = wish_of(device_count_, bytes);
  size_t object_granule = 0;
  TUTTI_TRY(
      driver.check(driver.multicast_get_granularity(&object_granule, &wish, CU_MULTICAST_GRANULARITY_MINIMUM),
                   "cuMulticastGetGranularity"));
  const CUmemAllocationProp memory = shareable_memory(context_->device());
  size_t memory_granule = 0;
  TUTTI_TRY(driver.check(
      driver.mem_get_allocation_granularity(&memory_granule, &memory, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      "cuMemGetAllocationGranularity"));
  const size_t granule = std::max(object_granule, memory_granule);
  bytes_ = (bytes + granule - 1) / granule * granule;
  return Status::ok();
}

Result<MulticastMemory> MulticastMemory::create(const Context& context, uint32_t device_count, size_t bytes) {
  const Driver& driver = context.driver();
  const CurrentContext current(context);
  TUTTI_TRY(current.status());
  MulticastMemory memory(context, device_count);
  TUTTI_TRY(memory.find_size(bytes));
  const CUmulticastObjectProp wish = wish_of(device_count, memory.bytes_);
  TUTTI_TRY(driver.check(driver.multicast_create(&memory.object_, &wish),
                         format("cuMulticastCreate(%zu bytes of %u devices)", memory.bytes_, device_count)));
  int fd = -1;
  TUTTI_TRY(driver.check(
      driver.mem_export_to_shareable_handle(&fd, memory.object_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "cuMemExportToShareableHandle"));
  memory.file_ = FileDescriptor(fd);
  return memory;
}

Result<MulticastMemory> MulticastMemory::open(const Context& context, uint32_t device_count, size_t bytes,
                                              const FileDescriptor& file) {
  const Driver& driver = context.driver();
  const CurrentContext current(context);
  TUTTI_TRY(current.status());
  MulticastMemory memory(context, device_count);
  TUTTI_TRY(memory.find_size(bytes));
  // The driver expects the descriptor's number as a pointer.
  void* const number = reinterpret_cast<void*>(static_cast<intptr_t>(file.get()));
  TUTTI_TRY(driver.check(driver.mem_import_from_shareable_handle(&memory.object_, number,
                                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                         "cuMemImportFromShareableHandle"));
  return memory;
}

Status MulticastMemory::add_device() {
  const CurrentContext current(*context_);
  TUTTI_TRY(current.status());
  return context_->driver().check(context_->driver().multicast_add_device(object_, context_->ordinal()),
                                  format("cuMulticastAddDevice(device %d)", context_->device()));
}

Status MulticastMemory::bind() {
  const Driver& driver = context_->driver();
  const CurrentContext current(*context_);
  TUTTI_TRY(current.status());
  file_.reset();
  const CUmemAllocationProp wish = shareable_memory(context_->device());
  CUmemGenericAllocationHandle memory = 0;
  TUTTI_TRY(driver.check(driver.mem_create(&memory, bytes_, &wish, 0),
                         format("cuMemCreate(%zu bytes on device %d)", bytes_, context_->device())));
  const CUresult answer = driver.multicast_bind_mem(object_, 0, memory, 0, bytes_, 0);
  Status status = driver.check(answer, format("cuMulticastBindMem(device %d)", context_->device()));
  if (status) {
    auto own = DeviceMapping::map(*context_, memory, bytes_);
    status = own.status();
    if (own) own_ = std::move(*own);
  }
  // Binding and mapping keep the memory.
  (void)driver.mem_release(memory);
  TUTTI_TRY(std::move(status));
  auto all = DeviceMapping::map(*context_, object_, bytes_);
  TUTTI_TRY(all.status());
  all_ = std::move(*all);
  return Status::ok();
}

MulticastMemory& MulticastMemory::operator=(MulticastMemory&& other) noexcept {
  if (this != &other) {
    reset();
    context_ = other.context_;
    device_count_ = other.device_count_;
    bytes_ = other.bytes_;
    object_ = std::exchange(other.object_, 0);
    file_ = std::move(other.file_);
    own_ = std::move(other.own_);
    all_ = std::move(other.all_);
  }
  return *this;
}

// Unbinds nothing: a peer may still store to all ranks' memory, including this rank's.
void MulticastMemory::reset() {
  all_.reset();
  if (object_ != 0) {
    const CurrentContext current(*context_);
    (void)context_->driver().mem_release(std::exchange(object_, 0));
  }
  own_.reset();
  file_.reset();
}

}  // namespace tutti
