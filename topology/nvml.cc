#include "topology/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "topology/pci.h"

namespace tutti::topology {
namespace {

constexpr uint32_t kLinksMax = 18;        // NVML_NVLINK_MAX_LINKS
constexpr uint32_t kGpusMax = 1024;       // far above any machine
constexpr uint32_t kFieldLinkSpeed = 90;  // NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
constexpr uint32_t kTypeUnsigned = 1;     // NVML_VALUE_TYPE_UNSIGNED_INT
constexpr int kRemoteSwitch = 2;          // NVML_NVLINK_DEVICE_TYPE_SWITCH
constexpr uint32_t kNameBytes = 96;       // NVML_DEVICE_NAME_V2_BUFFER_SIZE

class NvmlSource final : public GpuSource {
 public:
  explicit NvmlSource(const NvmlFunctions& functions) : f_(functions) {}

  Result<std::vector<GpuFacts>> gpus() override {
    if (f_.init == nullptr || f_.shutdown == nullptr || f_.device_count == nullptr ||
        f_.device_at == nullptr || f_.pci_info == nullptr) {
      return Status(Code::kUnsupported, "NVML lacks functions that list GPUs");
    }
    if (const int error = f_.init(); error != 0) {
      return Status(Code::kUnsupported, format("NVML does not start: its error %d", error));
    }
    auto result = read_all();
    f_.shutdown();
    return result;
  }

 private:
  Result<std::vector<GpuFacts>> read_all() const {
    uint32_t count = 0;
    if (const int error = f_.device_count(&count); error != 0) {
      return Status(Code::kUnsupported, format("NVML does not count GPUs: its error %d", error));
    }
    std::vector<GpuFacts> gpus;
    for (uint32_t i = 0; i < count && i < kGpusMax; ++i) {
      NvmlDevice device = nullptr;
      NvmlPciInfo pci = {};
      // A GPU that this process may not see.
      if (f_.device_at(i, &device) != 0 || f_.pci_info(device, &pci) != 0) continue;
      GpuFacts gpu;
      gpu.bus_id = address_of(pci);
      if (!gpu.bus_id.empty()) {
        read_gpu(device, gpu);
        gpus.push_back(std::move(gpu));
      }
    }
    return gpus;
  }

  static std::string address_of(NvmlPciInfo& pci) {
    pci.bus_id[sizeof pci.bus_id - 1] = '\0';
    return pci_address(pci.bus_id);
  }

  void read_gpu(NvmlDevice device, GpuFacts& gpu) const {
    char name[kNameBytes] = {};
    if (f_.name != nullptr && f_.name(device, name, kNameBytes) == 0) {
      name[kNameBytes - 1] = '\0';
      gpu.name = as_model(name);
    }
    NvmlMemory memory = {};
    if (f_.memory != nullptr && f_.memory(device, &memory) == 0) gpu.memory_bytes = memory.total;
    int major = 0;
    int minor = 0;
    if (f_.compute_capability != nullptr && f_.compute_capability(device, &major, &minor) == 0 && major > 0) {
      gpu.compute_capability = static_cast<uint32_t>(major * 10 + minor);
    }
    if (f_.link_state == nullptr || f_.link_remote_pci == nullptr) return;
    const uint64_t speed = link_speed(device, gpu.compute_capability);
    for (uint32_t link = 0; link < kLinksMax; ++link) read_link(device, link, speed, gpu);
  }

  /// NVML counts the bits on the wire; the data sheet's speed is what remains for data. 0 if NVML does not
  /// tell.
  uint64_t link_speed(NvmlDevice device, uint32_t compute_capability) const {
    NvmlFieldValue field = {};
    field.field_id = kFieldLinkSpeed;
    if (f_.field_values == nullptr || f_.field_values(device, 1, &field) != 0 || field.error != 0 ||
        field.value_type != kTypeUnsigned) {
      return 0;
    }
    const uint64_t on_wire = uint64_t{field.value.as_unsigned} * 1'000'000;
    const uint64_t data_sheet = nvlink_speed(compute_capability);
    return data_sheet == 0 ? on_wire : std::min(on_wire, data_sheet);
  }

  void read_link(NvmlDevice device, uint32_t link, uint64_t bytes_per_s, GpuFacts& gpu) const {
    int is_active = 0;
    NvmlPciInfo remote = {};
    if (f_.link_state(device, link, &is_active) != 0 || is_active == 0) return;
    if (f_.link_remote_pci(device, link, &remote) != 0) return;
    GpuFacts::Link found;
    found.bytes_per_s = bytes_per_s;
    found.remote_bus_id = address_of(remote);
    if (found.remote_bus_id.empty()) return;
    int type = 0;
    found.to_switch = f_.link_remote_type != nullptr && f_.link_remote_type(device, link, &type) == 0 &&
                      type == kRemoteSwitch;
    gpu.links.push_back(std::move(found));
  }

  NvmlFunctions f_;
};

/// No GPUs, with the reason.
class NoGpus final : public GpuSource {
 public:
  explicit NoGpus(std::string reason) : reason_(std::move(reason)) {}
  Result<std::vector<GpuFacts>> gpus() override { return Status(Code::kUnsupported, reason_); }

 private:
  std::string reason_;
};

template <class Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

std::unique_ptr<GpuSource> make_nvml_source(const NvmlFunctions& functions) {
  return std::make_unique<NvmlSource>(functions);
}

std::unique_ptr<GpuSource> open_nvml() {
  // Stays open: NVML keeps threads and the driver's state.
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::make_unique<NoGpus>("libnvidia-ml.so.1 is not installed");
  NvmlFunctions f;
  look_up(library, "nvmlInit_v2", f.init);
  look_up(library, "nvmlShutdown", f.shutdown);
  look_up(library, "nvmlDeviceGetCount_v2", f.device_count);
  look_up(library, "nvmlDeviceGetHandleByIndex_v2", f.device_at);
  look_up(library, "nvmlDeviceGetPciInfo_v3", f.pci_info);
  look_up(library, "nvmlDeviceGetName", f.name);
  look_up(library, "nvmlDeviceGetMemoryInfo", f.memory);
  look_up(library, "nvmlDeviceGetCudaComputeCapability", f.compute_capability);
  look_up(library, "nvmlDeviceGetNvLinkState", f.link_state);
  look_up(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", f.link_remote_pci);
  look_up(library, "nvmlDeviceGetNvLinkRemoteDeviceType", f.link_remote_type);
  look_up(library, "nvmlDeviceGetFieldValues", f.field_values);
  return make_nvml_source(f);
}

}  // namespace tutti::topology
