#include "transports/p2p/device_memory.h"

#include <algorithm>
#include <cstring>

#include "core/hash.h"

namespace tutti {
namespace {

using cuda::BesideCaptures;
using cuda::Context;
using cuda::CurrentContext;
using cuda::Driver;
using cuda::ends_context;

/// Owns a VMM handle within a scope. Mappings keep the memory beyond it.
class AllocationHandle {
 public:
  explicit AllocationHandle(const Driver& driver) : driver_(driver) {}
  AllocationHandle(const AllocationHandle&) = delete;
  AllocationHandle& operator=(const AllocationHandle&) = delete;
  ~AllocationHandle() {
    if (handle != 0) (void)driver_.mem_release(handle);
  }
  CUmemGenericAllocationHandle handle = 0;

 private:
  const Driver& driver_;
};

CUmemAccessDesc access_of(const Context& context) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = context.device();
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

Status no_access(const Context& context) {
  return {Code::kUnsupported, format("CUDA device %d (%s) cannot reach the memory of a peer's device",
                                     context.device(), context.facts().pci_bus_id.c_str())};
}

/// The driver's answer to a request to share memory. Systems refuse with many codes: devices without access
/// to each other, slices of a device (MIG), containers without the right, IOMMUs. Each means "cannot", and
/// the caller goes another way. The exceptions are a lack of memory and a context that a kernel has ended.
Status may_share(const Driver& driver, CUresult answer, std::string_view what) {
  const Status status = driver.check(answer, what);
  if (status || status.code() == Code::kOutOfMemory || ends_context(answer)) return status;
  return {Code::kUnsupported, std::string(status.text())};
}

Status give_access(const Context& context, CUdeviceptr address, size_t bytes) {
  const Driver& driver = context.driver();
  const CUmemAccessDesc access = access_of(context);
  const CUresult answer = driver.mem_set_access(address, bytes, &access, 1);
  if (answer == CUDA_ERROR_INVALID_DEVICE) return no_access(context);
  return may_share(driver, answer, "cuMemSetAccess");
}

}  // namespace

CUmemAllocationProp shareable_memory(CUdevice device) {
  CUmemAllocationProp wish{};
  wish.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wish.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wish.location.id = device;
  wish.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return wish;
}

Result<DeviceMapping> DeviceMapping::map(const Context& context, CUmemGenericAllocationHandle memory,
                                         size_t bytes) {
  const Driver& driver = context.driver();
  DeviceMapping mapping;
  mapping.context_ = &context;
  CUdeviceptr address = 0;
  TUTTI_TRY(may_share(driver, driver.mem_address_reserve(&address, bytes, 0, 0, 0),
                      format("cuMemAddressReserve(%zu bytes)", bytes)));
  const CUresult answer = driver.mem_map(address, bytes, 0, memory, 0);
  if (answer != CUDA_SUCCESS) {
    (void)driver.mem_address_free(address, bytes);
    return may_share(driver, answer, format("cuMemMap(%zu bytes)", bytes));
  }
  mapping.address_ = address;
  mapping.bytes_ = bytes;
  TUTTI_TRY(give_access(context, address, bytes));
  return mapping;
}

DeviceMapping& DeviceMapping::operator=(DeviceMapping&& other) noexcept {
  if (this != &other) {
    reset();
    context_ = other.context_;
    address_ = std::exchange(other.address_, 0);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Status DeviceMapping::let_in(const Context& other) const {
  return give_access(other, address_, bytes_);
}

void DeviceMapping::reset() {
  if (address_ == 0) return;
  const Driver& driver = context_->driver();
  (void)driver.mem_unmap(address_, bytes_);
  (void)driver.mem_address_free(address_, bytes_);
  address_ = 0;
  bytes_ = 0;
}

namespace {

Status create_by_file(const Context& context, size_t& bytes, DeviceMapping& mapping, FileDescriptor& file) {
  const Driver& driver = context.driver();
  const CUmemAllocationProp wish = shareable_memory(context.device());
  size_t granule = 0;
  TUTTI_TRY(may_share(
      driver, driver.mem_get_allocation_granularity(&granule, &wish, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      "cuMemGetAllocationGranularity"));
  bytes = (bytes + granule - 1) / granule * granule;
  AllocationHandle memory(driver);
  TUTTI_TRY(may_share(driver, driver.mem_create(&memory.handle, bytes, &wish, 0),
                      format("cuMemCreate(%zu bytes on device %d)", bytes, context.device())));
  auto mapped = DeviceMapping::map(context, memory.handle, bytes);
  TUTTI_TRY(mapped.status());
  int fd = -1;
  TUTTI_TRY(may_share(
      driver,
      driver.mem_export_to_shareable_handle(&fd, memory.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "cuMemExportToShareableHandle"));
  file = FileDescriptor(fd);
  mapping = std::move(*mapped);
  return Status::ok();
}

}  // namespace

Result<SharedDeviceMemory> SharedDeviceMemory::create(const Context& context, size_t bytes,
                                                      size_t zeroed_bytes) {
  const CurrentContext current(context);
  TUTTI_TRY(current.status());
  SharedDeviceMemory memory;
  memory.context_ = &context;
  Status by_file = {Code::kUnsupported, "the device's memory cannot be shared as a file"};
  if (context.facts().shares_by_file) by_file = create_by_file(context, bytes, memory.mapping_, memory.file_);
  if (by_file) {
    memory.handle_ = {.kind = DeviceMemoryHandle::kFile, .bytes = bytes};
  } else {
    if (by_file.code() != Code::kUnsupported) return by_file;
    auto plain = cuda::DeviceMemory::allocate_shared(context, bytes);
    TUTTI_TRY(plain.status());
    memory.plain_ = std::move(*plain);
    const auto handle = make_handle(context, memory.as<void>(), bytes);
    if (!handle && handle.status().code() != Code::kUnsupported) return handle.status();
    // Without a handle the memory serves the ranks of this process.
    memory.handle_ = handle ? *handle : DeviceMemoryHandle{.bytes = bytes};
  }
  TUTTI_TRY(cuda::fill_now(context, memory.as<void>(), 0, std::min(zeroed_bytes, bytes)));
  return memory;
}

Status SharedDeviceMemory::let_in(const Context& other) const {
  if (other.device() == context_->device()) return Status::ok();
  return mapping_.address() != 0 ? mapping_.let_in(other) : other.enable_peer(*context_);
}

Result<PeerDeviceMemory> PeerDeviceMemory::open(const Context& context, const DeviceMemoryHandle& handle,
                                                const FileDescriptor& file) {
  const Driver& driver = context.driver();
  const CurrentContext current(context);
  TUTTI_TRY(current.status());
  PeerDeviceMemory memory;
  memory.context_ = &context;
  if (handle.kind == DeviceMemoryHandle::kFile) {
    AllocationHandle allocation(driver);
    // The driver expects the descriptor's number as a pointer.
    void* const number = reinterpret_cast<void*>(static_cast<intptr_t>(file.get()));
    TUTTI_TRY(may_share(driver,
                        driver.mem_import_from_shareable_handle(&allocation.handle, number,
                                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                        "cuMemImportFromShareableHandle"));
    auto mapped = DeviceMapping::map(context, allocation.handle, handle.bytes);
    TUTTI_TRY(mapped.status());
    memory.mapping_ = std::move(*mapped);
    memory.address_ = memory.mapping_.address() + handle.offset;
    return memory;
  }
  if (handle.kind != DeviceMemoryHandle::kIpc) {
    return Status(Code::kUnsupported, "a peer's device memory cannot be shared with other processes");
  }
  CUipcMemHandle ipc{};
  std::memcpy(&ipc, handle.handle.data(), sizeof(ipc));
  const CUresult answer =
      driver.ipc_open_mem_handle(&memory.opened_, ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (answer == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED) {
    return no_access(context);
  }
  TUTTI_TRY(may_share(driver, answer, "cuIpcOpenMemHandle"));
  memory.address_ = memory.opened_ + handle.offset;
  return memory;
}

PeerDeviceMemory& PeerDeviceMemory::operator=(PeerDeviceMemory&& other) noexcept {
  if (this != &other) {
    reset();
    context_ = other.context_;
    mapping_ = std::move(other.mapping_);
    opened_ = std::exchange(other.opened_, 0);
    address_ = std::exchange(other.address_, 0);
  }
  return *this;
}

void PeerDeviceMemory::reset() {
  if (opened_ != 0) {
    const BesideCaptures beside(context_->driver());
    const CurrentContext current(*context_);
    (void)context_->driver().ipc_close_mem_handle(opened_);
  }
  mapping_.reset();
  opened_ = 0;
  address_ = 0;
}

Result<DeviceMemoryHandle> make_handle(const Context& context, const void* address, size_t bytes) {
  const Driver& driver = context.driver();
  const CurrentContext current(context);
  TUTTI_TRY(current.status());
  const auto pointer = reinterpret_cast<CUdeviceptr>(address);
  int capable = 0;
  const CUresult known =
      driver.pointer_get_attribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pointer);
  CUdeviceptr base = 0;
  size_t whole = 0;
  if (known != CUDA_SUCCESS || capable == 0 ||
      driver.mem_get_address_range(&base, &whole, pointer) != CUDA_SUCCESS ||
      pointer + bytes > base + whole) {
    return Status(Code::kUnsupported,
                  format("memory at %p was not allocated by cudaMalloc as one piece of %zu bytes, "
                         "so other processes cannot map it",
                         address, bytes));
  }
  CUipcMemHandle ipc{};
  TUTTI_TRY(may_share(driver, driver.ipc_get_mem_handle(&ipc, base), "cuIpcGetMemHandle"));
  DeviceMemoryHandle handle{.kind = DeviceMemoryHandle::kIpc, .bytes = bytes, .offset = pointer - base};
  std::memcpy(handle.handle.data(), &ipc, sizeof(ipc));
  return handle;
}

Result<DeviceShare> share_memory(const Context& context, const void* address, size_t bytes) {
  const Driver& driver = context.driver();
  auto handle = make_handle(context, address, bytes);
  if (handle) return DeviceShare{*handle, FileDescriptor()};
  const CurrentContext current(context);
  TUTTI_TRY(current.status());
  const auto pointer = reinterpret_cast<CUdeviceptr>(address);
  CUdeviceptr base = 0;
  size_t whole = 0;
  AllocationHandle memory(driver);
  int fd = -1;
  if (driver.mem_get_address_range(&base, &whole, pointer) != CUDA_SUCCESS ||
      pointer + bytes > base + whole ||
      driver.mem_retain_allocation_handle(&memory.handle, reinterpret_cast<void*>(base)) != CUDA_SUCCESS ||
      driver.mem_export_to_shareable_handle(&fd, memory.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            0) != CUDA_SUCCESS) {
    return Status(handle.status().code(), std::string(handle.status().text()) +
                                              "; nor is it one allocation that can be shared by file");
  }
  return DeviceShare{{.kind = DeviceMemoryHandle::kFile, .bytes = whole, .offset = pointer - base},
                     FileDescriptor(fd)};
}

Status check_access(const Context& context, void* area, void* own, uint64_t seed) {
  std::array<uint64_t, kCheckBytes / sizeof(uint64_t)> sent{};
  for (uint64_t& word : sent) word = seed = hash_bytes(&seed, sizeof(seed));
  // Goes through the device's own memory, so that this device crosses over in both directions.
  TUTTI_TRY(cuda::copy_now(context, own, sent.data(), kCheckBytes));
  TUTTI_TRY(cuda::copy_now(context, area, own, kCheckBytes));
  TUTTI_TRY(cuda::fill_now(context, own, 0, kCheckBytes));
  TUTTI_TRY(cuda::copy_now(context, own, area, kCheckBytes));
  std::array<uint64_t, kCheckBytes / sizeof(uint64_t)> found{};
  TUTTI_TRY(cuda::copy_now(context, found.data(), own, kCheckBytes));
  if (found == sent) return Status::ok();
  return {Code::kUnsupported,
          format("CUDA device %d (%s) claims access to a peer's memory, but what it writes there does not "
                 "come back; an IOMMU or PCIe access control between the devices may be the cause",
                 context.device(), context.facts().pci_bus_id.c_str())};
}

}  // namespace tutti
