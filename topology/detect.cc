#include "topology/detect.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "core/cpu.h"
#include "topology/hwloc_xml.h"
#include "topology/pci.h"

namespace tutti::topology {
namespace {

/// A processor of which nothing is known but the cores that this process may use.
void add_assumed_processor(uint32_t cores, Assembly& assembly) {
  Node package;
  package.kind = NodeKind::kPackage;
  package.name = "package0";
  package.parent = assembly.host();
  const uint32_t parent = assembly.add(std::move(package));
  for (uint32_t i = 0; i < std::max(cores, 1u); ++i) {
    Node core;
    core.kind = NodeKind::kCore;
    core.name = "core" + std::to_string(i);
    core.parent = parent;
    assembly.add(std::move(core));
  }
  assembly.note(
      format("the system shows no processors; one package with %u cores is assumed", std::max(cores, 1u)));
}

bool has_kind(const Assembly& assembly, NodeKind kind) {
  for (uint32_t i = 0; i < assembly.node_count(); ++i) {
    if (assembly.node(i).kind == kind) return true;
  }
  return false;
}

/// hwloc's parts, if hwloc is there and its answer can be read.
bool add_from_hwloc(const Sources& sources, Assembly& assembly) {
  if (sources.hwloc == nullptr) {
    assembly.note("hwloc is not used");
    return false;
  }
  const auto xml = sources.hwloc->machine_xml();
  if (!xml) {
    assembly.note("without hwloc: " + std::string(xml.status().text()));
    return false;
  }
  const auto root = parse_xml(*xml);
  const Status read = root ? add_hwloc(*root, assembly) : root.status();
  if (!read) assembly.note("hwloc's answer is not used: " + std::string(read.text()));
  return read.is_ok();
}

/// Whether NVML has told nothing of some NVIDIA GPU, or of one whose maker is unknown: a container may see a
/// few of a machine's GPUs. `known`: those that NVML has told of.
bool lacks_nvidia_gpus(const Assembly& assembly, const FileTree* files, const std::vector<GpuFacts>& known) {
  for (uint32_t i = 0; i < assembly.node_count(); ++i) {
    const Node& node = assembly.node(i);
    const auto is_this = [&](const GpuFacts& gpu) { return assembly.at_bus(gpu.bus_id) == i; };
    if (node.kind != NodeKind::kGpu || std::ranges::any_of(known, is_this)) continue;
    const auto vendor =
        files == nullptr ? std::nullopt : files->read("bus/pci/devices/" + node.bus_id + "/vendor");
    if (!vendor || *vendor == "0x10de") return true;
  }
  return false;
}

/// Adds what NVML tells of the machine's GPUs, and returns it.
std::vector<GpuFacts> add_from_nvml(const Sources& sources, Assembly& assembly) {
  if (sources.gpus == nullptr) return {};
  auto gpus = sources.gpus->gpus();
  if (gpus) {
    add_gpu_facts(*gpus, assembly);
    return std::move(*gpus);
  }
  if (has_kind(assembly, NodeKind::kGpu))
    assembly.note("links between GPUs are unknown: " + std::string(gpus.status().text()));
  return {};
}

}  // namespace

void add_gpu_facts(const std::vector<GpuFacts>& gpus, Assembly& assembly) {
  for (size_t i = 0; i < gpus.size(); ++i) {
    const GpuFacts& gpu = gpus[i];
    uint32_t index = assembly.at_bus(gpu.bus_id);
    if (index == kNoNode) {
      Node node;
      node.kind = NodeKind::kGpu;
      node.name = "gpu" + std::to_string(i);
      node.bus_id = gpu.bus_id;
      node.parent = assembly.host();
      index = assembly.add(std::move(node));
      assembly.note("the system hides PCI devices that NVML shows");
    }
    Node& node = assembly.node(index);
    node.os_index = static_cast<int32_t>(i);
    if (!gpu.name.empty()) node.model = gpu.name;
    if (gpu.memory_bytes > 0) node.memory_bytes = gpu.memory_bytes;
  }
  for (const GpuFacts& gpu : gpus) {
    const uint32_t index = assembly.at_bus(gpu.bus_id);
    std::map<std::string, Assembly::Wires> wires;
    std::set<std::string> switches;
    for (const GpuFacts::Link& link : gpu.links) {
      Assembly::Wires& sum =
          wires.try_emplace(link.remote_bus_id, Assembly::Wires{LinkKind::kNvlink, 0, {}}).first->second;
      const bool is_known = link.bytes_per_s > 0;
      const uint64_t assumed_speed = nvlink_speed(std::max(gpu.compute_capability, 60u));
      ++sum.count;
      sum.bytes_per_s.value += is_known ? link.bytes_per_s : assumed_speed;
      sum.bytes_per_s.origin = is_known ? Origin::kNvml : Origin::kAssumed;
      if (link.to_switch) switches.insert(link.remote_bus_id);
    }
    for (const auto& [remote, sum] : wires) {
      const uint32_t other = assembly.at_bus(remote);
      if (switches.contains(remote)) {
        assembly.connect_to_switch(index, remote, sum);
      } else if (other != kNoNode) {
        assembly.connect_gpus(index, other, sum);
      } else {
        assembly.note("NVLinks lead to a device that the system does not show: " + remote);
      }
    }
  }
}

Result<Detected> detect(const Sources& sources) {
  auto assembly = std::make_unique<Assembly>(Origin::kHwloc, sources.host_name);
  const bool from_hwloc = add_from_hwloc(sources, *assembly);
  if (!from_hwloc) {
    // What hwloc's answer had before its fault does not count.
    const std::vector<std::string> notes = assembly->notes();
    assembly = std::make_unique<Assembly>(Origin::kSysfs, sources.host_name);
    for (const std::string& note : notes) assembly->note(note);
    if (sources.files != nullptr) {
      add_processors_from_files(*sources.files, *assembly);
      add_devices_from_files(*sources.files, *assembly);
    }
  }
  if (!has_kind(*assembly, NodeKind::kCore)) add_assumed_processor(sources.cores, *assembly);
  if (sources.files != nullptr) refine_from_files(*sources.files, *assembly);
  const std::vector<GpuFacts> from_nvml = add_from_nvml(sources, *assembly);
  const bool is_complete = from_hwloc && !lacks_nvidia_gpus(*assembly, sources.files, from_nvml);
  auto machine = std::move(*assembly).finish();
  if (!machine) return machine.status();
  return Detected{std::move(*machine), is_complete};
}

Result<Detected> detect_this_machine(const std::string& host_name) {
  const auto hwloc = open_hwloc();
  const auto files = open_files();
  const auto gpus = open_nvml();
  Sources sources;
  sources.hwloc = hwloc.get();
  sources.files = files.get();
  sources.gpus = gpus.get();
  const auto usable = static_cast<uint32_t>(usable_cpus().count());
  sources.cores = usable > 0 ? usable : std::max(1u, std::thread::hardware_concurrency());
  char name[65] = {};
  if (gethostname(name, sizeof name - 1) == 0 && name[0] != '\0') sources.host_name = name;
  if (!host_name.empty()) sources.host_name = host_name;
  return detect(sources);
}

}  // namespace tutti::topology
