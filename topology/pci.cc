#include "topology/pci.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "topology/units.h"

namespace tutti::topology {
namespace {

constexpr uint32_t kNvidia = 0x10de;
constexpr uint32_t kAmd = 0x1002;
constexpr uint32_t kIntel = 0x8086;
constexpr uint32_t kHabana = 0x1da3;
constexpr uint64_t kGiga = 1'000'000'000;

struct LaneSpeed {
  std::string_view name;
  uint64_t bytes_per_s;  ///< of one lane, line coding taken off
};
// Coding: 8 bits in 10 up to 5 GT/s, 128 in 130 up to 32 GT/s, 242 bytes in 256 at 64 GT/s.
constexpr std::array<LaneSpeed, 6> kLaneSpeeds = {{{"2.5", 250'000'000},
                                                   {"5", 500'000'000},
                                                   {"8", 984'615'384},
                                                   {"16", 1'969'230'769},
                                                   {"32", 3'938'461'538},
                                                   {"64", 7'562'500'000}}};

// Links: NVIDIA's data sheets give the sum of all links both ways; AMD's give one link both ways.
constexpr std::array<GpuModel, 22> kGpus = {{
    {kNvidia, 0x15f9, "P100", 60, 20 * kGiga, true},
    {kNvidia, 0x1db1, "V100-SXM2", 70, 25 * kGiga, true},
    {kNvidia, 0x1db5, "V100-SXM2", 70, 25 * kGiga, true},
    {kNvidia, 0x1db8, "V100-SXM3", 70, 25 * kGiga, true},
    {kNvidia, 0x1db4, "V100-PCIE", 70, 0, false},
    {kNvidia, 0x1eb8, "T4", 75, 0, false},
    {kNvidia, 0x20b0, "A100-SXM4-40GB", 80, 25 * kGiga, true},
    {kNvidia, 0x20b2, "A100-SXM4-80GB", 80, 25 * kGiga, true},
    {kNvidia, 0x20f1, "A100-PCIE", 80, 25 * kGiga, false},
    {kNvidia, 0x2237, "A10G", 86, 0, false},
    {kNvidia, 0x26b9, "L40S", 89, 0, false},
    {kNvidia, 0x2330, "H100", 90, 25 * kGiga, true},
    {kNvidia, 0x2331, "H100 PCIe", 90, 25 * kGiga, false},
    {kNvidia, 0x2335, "H200", 90, 25 * kGiga, true},
    {kNvidia, 0x2901, "B200", 100, 50 * kGiga, true},
    {kNvidia, 0x2941, "GB200", 100, 50 * kGiga, true},
    {kAmd, 0x738c, "MI100", 908, 46 * kGiga, false},
    {kAmd, 0x7408, "MI250X", 910, 50 * kGiga, true},
    {kAmd, 0x740c, "MI250X", 910, 50 * kGiga, true},
    {kAmd, 0x740f, "MI210", 910, 50 * kGiga, false},
    {kAmd, 0x74a0, "MI300A", 942, 64 * kGiga, true},
    {kAmd, 0x74a1, "MI300X", 942, 64 * kGiga, true},
}};

std::optional<uint32_t> hex(std::string_view text, size_t digits_max) {
  uint32_t value = 0;
  if (text.empty() || text.size() > digits_max) return std::nullopt;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (failure != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string pci_address(std::string_view text) {
  const size_t dot = text.rfind('.');
  const size_t device_colon = text.rfind(':');
  if (dot == std::string_view::npos || device_colon == std::string_view::npos || device_colon > dot ||
      device_colon == 0) {
    return {};
  }
  const size_t bus_colon = text.rfind(':', device_colon - 1);
  const bool has_domain = bus_colon != std::string_view::npos;
  const size_t bus_at = has_domain ? bus_colon + 1 : 0;
  const auto domain = has_domain ? hex(text.substr(0, bus_colon), 8) : 0;
  const auto bus = hex(text.substr(bus_at, device_colon - bus_at), 2);
  const auto device = hex(text.substr(device_colon + 1, dot - device_colon - 1), 2);
  const auto function = hex(text.substr(dot + 1), 1);
  if (!domain || !bus || !device || !function) return {};
  return format("%04x:%02x:%02x.%x", *domain, *bus, *device, *function);
}

PciRole pci_role(uint32_t class_code, uint32_t vendor) {
  const uint32_t base = class_code >> 16;
  const uint32_t sub = class_code >> 8 & 0xff;
  if (base == 0x02) return PciRole::kNic;
  if (base == 0x06 && sub == 0x04) return PciRole::kSwitch;
  if (base == 0x06 && sub == 0x80 && vendor == kNvidia) return PciRole::kNvswitch;
  if (base == 0x12) return PciRole::kGpu;
  // Boards have small display controllers of other makers, and processors have Intel's own.
  if (base == 0x03 && (vendor == kNvidia || vendor == kAmd)) return PciRole::kGpu;
  if (base == 0x03 && vendor == kIntel && sub != 0x00) return PciRole::kGpu;
  if (base == 0x03 && vendor == kHabana) return PciRole::kGpu;
  return PciRole::kOther;
}

uint64_t pci_link_speed(std::string_view lane_speed, uint32_t lanes) {
  constexpr uint32_t kLanesMax = 32;
  if (lanes > kLanesMax) return 0;
  std::string_view number = lane_speed.substr(0, lane_speed.find(' '));
  if (number.ends_with(".0")) number.remove_suffix(2);
  for (const LaneSpeed& known : kLaneSpeeds) {
    if (known.name == number) return known.bytes_per_s * lanes;
  }
  return 0;
}

PciLink pci_link_of(uint64_t bytes_per_s) {
  // A millionth is lost to rounding in other tools' decimals.
  const uint64_t enough = bytes_per_s - bytes_per_s / 1'000'000;
  for (const uint32_t lanes : {16u, 8u, 4u, 2u, 1u}) {
    for (const LaneSpeed& known : kLaneSpeeds) {
      const uint64_t speed = known.bytes_per_s * lanes;
      if (speed >= enough && speed - speed / 1'000'000 <= bytes_per_s) return {known.name, lanes};
    }
  }
  for (const LaneSpeed& known : kLaneSpeeds) {
    if (known.bytes_per_s * 16 >= enough) return {known.name, 16};
  }
  return {kLaneSpeeds.back().name, 16};
}

const GpuModel* find_gpu(uint32_t vendor, uint32_t device) {
  const auto found = std::find_if(kGpus.begin(), kGpus.end(), [&](const GpuModel& gpu) {
    return gpu.vendor == vendor && gpu.device == device;
  });
  return found == kGpus.end() ? nullptr : &*found;
}

const GpuModel* find_gpu(std::string_view name) {
  // The longest name that occurs: "GB200" before "B200", "H100 PCIe" before "H100".
  const GpuModel* best = nullptr;
  for (const GpuModel& gpu : kGpus) {
    if (name.find(gpu.name) == std::string_view::npos) continue;
    if (best == nullptr || gpu.name.size() > best->name.size()) best = &gpu;
  }
  return best;
}

uint64_t nvlink_speed(uint32_t compute_capability) {
  if (compute_capability >= 100) return 50 * kGiga;
  if (compute_capability >= 70) return 25 * kGiga;
  return compute_capability >= 60 ? 20 * kGiga : 0;
}

uint64_t xgmi_speed(uint32_t gfx) {
  for (const GpuModel& gpu : kGpus) {
    if (gpu.vendor == kAmd && gpu.generation == gfx) return gpu.link_bytes_per_s;
  }
  return gfx > 942 ? 64 * kGiga : 46 * kGiga;
}

}  // namespace tutti::topology
