// NVML by its functions' names: a table of our own, because NVIDIA's header is not everywhere. Names,
// argument types and numbers are NVML's published interface.
#pragma once

#include <cstdint>
#include <memory>

#include "topology/detect.h"

namespace tutti::topology {

using NvmlDevice = struct NvmlDeviceHandle*;

/// nvmlPciInfo_t since NVML 10.
struct NvmlPciInfo {
  char bus_id_legacy[16];
  uint32_t domain;
  uint32_t bus;
  uint32_t device;
  uint32_t pci_device_id;
  uint32_t pci_subsystem_id;
  char bus_id[32];
};

/// nvmlMemory_t.
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

/// nvmlFieldValue_t.
struct NvmlFieldValue {
  uint32_t field_id;
  uint32_t scope_id;
  long long timestamp;
  long long latency_us;
  uint32_t value_type;
  int error;
  union {
    double as_double;
    uint32_t as_unsigned;
    unsigned long long as_long;
  } value;
};

/// Every function returns 0 for success. Null: this version of the library has no such function.
struct NvmlFunctions {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_count)(uint32_t* count) = nullptr;
  int (*device_at)(uint32_t index, NvmlDevice* device) = nullptr;
  int (*pci_info)(NvmlDevice device, NvmlPciInfo* info) = nullptr;
  int (*name)(NvmlDevice device, char* name, uint32_t bytes) = nullptr;
  int (*memory)(NvmlDevice device, NvmlMemory* memory) = nullptr;
  int (*compute_capability)(NvmlDevice device, int* major, int* minor) = nullptr;
  int (*link_state)(NvmlDevice device, uint32_t link, int* is_active) = nullptr;
  int (*link_remote_pci)(NvmlDevice device, uint32_t link, NvmlPciInfo* info) = nullptr;
  int (*link_remote_type)(NvmlDevice device, uint32_t link, int* type) = nullptr;
  int (*field_values)(NvmlDevice device, int count, NvmlFieldValue* values) = nullptr;
};

/// Reads all GPUs through the table. Errors: kUnsupported with NVML's number of the error.
std::unique_ptr<GpuSource> make_nvml_source(const NvmlFunctions& functions);

}  // namespace tutti::topology
