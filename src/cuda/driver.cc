#include "cuda/driver.h"

#include <dlfcn.h>

#include <cstring>

namespace tutti::cuda {
namespace {

/// What a user can do about a driver error; empty: unknown.
const char* remedy(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY: return "free device memory, or run fewer ranks on the device";
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ASSERT:
      return "a kernel of this process has failed and ended the device's context; restart the "
             "process "
             "(compute-sanitizer names the kernel)";
    case CUDA_ERROR_NOT_PERMITTED:
      return "the process lacks the right, or the call is not allowed in a host function";
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return "this build has no kernels for the device and the driver cannot translate them; update the "
             "driver";
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return "the driver's services are not ready; see dmesg and nvidia-smi";
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
      return "another process holds the device exclusively; see the compute mode in nvidia-smi";
    default: return "";
  }
}

Code code_of(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY: return Code::kOutOfMemory;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION: return Code::kUnsupported;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: return Code::kInvalidUsage;
    default: return Code::kSystemError;
  }
}

// CU_DEVICE_ATTRIBUTE_MPS_ENABLED, which older toolkits do not name and older drivers do not know.
constexpr auto kMpsEnabled = static_cast<CUdevice_attribute>(133);

Status no_driver(const char* reason) {
  return {Code::kUnsupported, format("no CUDA device can be used: %s", reason)};
}

Status too_old(int version) {
  return no_driver(format("the driver supports CUDA %d.%d, and %d.%d is needed; update NVIDIA's driver",
                          version / 1000, version % 1000 / 10, kLeastDriverVersion / 1000,
                          kLeastDriverVersion % 1000 / 10)
                       .c_str());
}

}  // namespace

Result<std::unique_ptr<const Driver>> Driver::find() {
  // The handle is kept, so the driver stays loaded.
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return no_driver(format("libcuda.so.1 does not load (%s); install NVIDIA's driver", dlerror()).c_str());
  std::unique_ptr<Driver> driver(new Driver);
  TUTTI_TRY(driver->load(library));
  TUTTI_TRY(driver->start());
  return std::unique_ptr<const Driver>(std::move(driver));
}

Result<std::unique_ptr<const Driver>> Driver::find_in_use() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) return no_driver("the process has not loaded a driver");
  std::unique_ptr<Driver> driver(new Driver);
  TUTTI_TRY(driver->load(library));
  // Fails if the driver is not initialized.
  TUTTI_TRY(driver->check(driver->device_get_count(&driver->device_count_), "cuDeviceGetCount"));
  return std::unique_ptr<const Driver>(std::move(driver));
}

Status Driver::load(void* library) {
  const auto get = reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
  const auto get_version =
      reinterpret_cast<PFN_cuDriverGetVersion_v2020>(dlsym(library, "cuDriverGetVersion"));
  if (get_version == nullptr) return no_driver("libcuda.so.1 is not NVIDIA's driver");
  const CUresult answer = get_version(&version_);
  if (answer == CUDA_ERROR_STUB_LIBRARY) {
    return no_driver(
        "libcuda.so.1 is the toolkit's stub, which is for linking only; take its folder out of "
        "LD_LIBRARY_PATH");
  }
  if (answer != CUDA_SUCCESS) return no_driver("the driver does not tell its version");
  if (get == nullptr || version_ < kLeastDriverVersion) return too_old(version_);
  const char* missing = nullptr;
  const auto find_function = [&](const char* name, auto& member) {
    void* function = nullptr;
    if (get(name, &function, kLeastDriverVersion, CU_GET_PROC_ADDRESS_DEFAULT, nullptr) != CUDA_SUCCESS ||
        function == nullptr) {
      missing = name;
    }
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(function);
  };
#define TUTTI_CUDA_FIND(member, function, type) find_function(#function, member);
  TUTTI_CUDA_FUNCTIONS(TUTTI_CUDA_FIND)
#undef TUTTI_CUDA_FIND
  if (missing != nullptr)
    return no_driver(format("the driver lacks %s; reinstall NVIDIA's driver", missing).c_str());
  const auto look_for = [&](const char* name, auto& member) {
    void* function = nullptr;
    if (version_ >= kMulticastDriverVersion)
      (void)get(name, &function, kMulticastDriverVersion, CU_GET_PROC_ADDRESS_DEFAULT, nullptr);
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(function);
    has_multicast_ = has_multicast_ && function != nullptr;
  };
#define TUTTI_CUDA_LOOK_FOR(member, function, type)                                                      \
  if (get(#function, &found, kLeastDriverVersion, CU_GET_PROC_ADDRESS_DEFAULT, nullptr) == CUDA_SUCCESS) \
    member = reinterpret_cast<decltype(member)>(found);
  void* found = nullptr;
  TUTTI_CUDA_CARD_FUNCTIONS(TUTTI_CUDA_LOOK_FOR)
#undef TUTTI_CUDA_LOOK_FOR
#define TUTTI_CUDA_LOOK_FOR(member, function, type) look_for(#function, member);
  TUTTI_CUDA_MULTICAST_FUNCTIONS(TUTTI_CUDA_LOOK_FOR)
#undef TUTTI_CUDA_LOOK_FOR
  return Status::ok();
}

Status Driver::start() {
  CUresult answer = init(0);
  if (answer == CUDA_SUCCESS) answer = device_get_count(&device_count_);
  if (answer == CUDA_ERROR_NO_DEVICE || (answer == CUDA_SUCCESS && device_count_ == 0)) {
    return no_driver("the driver sees no device; look at nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  if (answer != CUDA_SUCCESS) return no_driver(std::string(failure(answer, "cuInit").text()).c_str());
  return Status::ok();
}

Status Driver::failure(CUresult result, std::string_view what) const {
  const char* name = nullptr;
  const char* meaning = nullptr;
  if (get_error_name(result, &name) != CUDA_SUCCESS) name = "unknown error";
  if (get_error_string(result, &meaning) != CUDA_SUCCESS) meaning = "no text";
  const char* help = remedy(result);
  return {code_of(result), format("%.*s: %s (%d): %s%s%s", static_cast<int>(what.size()), what.data(), name,
                                  static_cast<int>(result), meaning, *help != '\0' ? "; " : "", help)};
}

int Driver::attribute(CUdevice device, CUdevice_attribute which) const {
  int value = 0;
  return device_get_attribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

int Driver::current_device() const {
  CUcontext context = nullptr;
  CUdevice current = 0;
  if (ctx_get_current(&context) != CUDA_SUCCESS || context == nullptr) return -1;
  if (ctx_get_device(&current) != CUDA_SUCCESS) return -1;
  for (int device = 0; device < device_count_; ++device) {
    CUdevice handle = 0;
    if (device_get(&handle, device) == CUDA_SUCCESS && handle == current) return device;
  }
  return -1;
}

Result<DeviceFacts> Driver::describe(int device) const {
  if (device < 0 || device >= device_count_) {
    return Status(
        Code::kInvalidArgument,
        format("there is no CUDA device %d: the driver has %d, counted from 0", device, device_count_));
  }
  CUdevice handle = 0;
  TUTTI_TRY(check(device_get(&handle, device), "cuDeviceGet"));
  DeviceFacts facts;
  std::array<char, 256> text{};
  TUTTI_TRY(check(device_get_name(text.data(), static_cast<int>(text.size()), handle), "cuDeviceGetName"));
  facts.name = text.data();
  TUTTI_TRY(check(device_get_pci_bus_id(text.data(), static_cast<int>(text.size()), handle),
                  "cuDeviceGetPCIBusId"));
  facts.pci_bus_id = text.data();
  CUuuid uuid{};
  TUTTI_TRY(check(device_get_uuid(&uuid, handle), "cuDeviceGetUuid"));
  std::memcpy(facts.uuid.data(), uuid.bytes, facts.uuid.size());
  size_t bytes = 0;
  TUTTI_TRY(check(device_total_mem(&bytes, handle), "cuDeviceTotalMem"));
  facts.memory_bytes = bytes;
  facts.compute_major = attribute(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  facts.compute_minor = attribute(handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  facts.multiprocessors = static_cast<uint32_t>(attribute(handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  facts.shares_by_file =
      attribute(handle, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0;
  facts.launches_cooperatively = attribute(handle, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) != 0;
  facts.is_shared = attribute(handle, kMpsEnabled) != 0;
  facts.multicasts = has_multicast_ && facts.shares_by_file &&
                     attribute(handle, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED) != 0;
  facts.exports_to_cards = attribute(handle, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) != 0;
  facts.orders_writes = attribute(handle, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >=
                        CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
  facts.flushes_writes = (attribute(handle, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS) &
                          CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) != 0;
  return facts;
}

Pointer Driver::look_up(const void* address) const {
  unsigned type = 0;
  int managed = 0;
  int device = -1;
  std::array<CUpointer_attribute, 3> which = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  std::array<void*, 3> answers = {&type, &managed, &device};
  // Unlike cuPointerGetAttribute, this call succeeds for an address that the driver does not know, and
  // returns 0.
  const CUresult result = pointer_get_attributes(static_cast<unsigned>(which.size()), which.data(),
                                                 answers.data(), reinterpret_cast<CUdeviceptr>(address));
  if (ends_context(result)) return {MemoryKind::kUnknown, device, result};
  if (result != CUDA_SUCCESS || type == 0) return {};
  if (managed != 0) return {MemoryKind::kManaged, device};
  return {type == CU_MEMORYTYPE_HOST ? MemoryKind::kPinned : MemoryKind::kDevice, device};
}

}  // namespace tutti::cuda
