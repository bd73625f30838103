// PCI: addresses, classes of devices, speeds of links, and what is known of GPU models. Facts of the PCI
// Express specifications and of the makers' data sheets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "topology/graph.h"

namespace tutti::topology {

/// "0000:4f:00.0" from any usual spelling: capital letters, 8 digits of domain, no domain. Empty if the text
/// is no address.
std::string pci_address(std::string_view text);

/// What a device is for this library. `class_code`: 6 hexadecimal digits' worth, e.g. 0x030200.
enum class PciRole : uint8_t { kOther, kGpu, kNic, kSwitch, kNvswitch };
PciRole pci_role(uint32_t class_code, uint32_t vendor);

/// Bytes per second of a link: transfers per second of one lane ("16.0 GT/s PCIe") and lanes. 0 if unknown.
uint64_t pci_link_speed(std::string_view lane_speed, uint32_t lanes);
/// The reverse, for files that want a generation and lanes: the least link that is not slower.
struct PciLink {
  std::string_view lane_speed;
  uint32_t lanes;
};
PciLink pci_link_of(uint64_t bytes_per_s);

/// A GPU model by its PCI ids, or by the generation that tools report.
struct GpuModel {
  uint32_t vendor = 0;
  uint32_t device = 0;
  std::string_view name;
  uint32_t generation = 0;        ///< NVIDIA: compute capability, 90 for 9.0; AMD: gfx number, 942
  uint64_t link_bytes_per_s = 0;  ///< of one NVLink or xGMI link, each way; 0: has none
  bool always_linked = false;     ///< sold only with links to other GPUs

  bool is_amd() const { return vendor == 0x1002; }
};
const GpuModel* find_gpu(uint32_t vendor, uint32_t device);
/// By a name that contains the model's, as "NVIDIA H100 80GB HBM3".
const GpuModel* find_gpu(std::string_view name);
/// The speed of one link of a GPU of this generation, from the data sheets. 0 if unknown.
uint64_t nvlink_speed(uint32_t compute_capability);
uint64_t xgmi_speed(uint32_t gfx);

}  // namespace tutti::topology
