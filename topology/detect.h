// Detection: the graph of this machine, from whatever tells about it.
//
// Sources are interfaces, so that tests replace them: the library hwloc, the files under /sys, and NVIDIA's
// management library NVML. Each may be missing; then the graph knows less, and notes say so. hwloc gives the
// parts; without hwloc /sys gives them. /sys knows the speeds of PCI links and network cards better than
// hwloc, because it tells what a link can do, and not only to what an idle device has slowed its link. NVML
// knows the links between GPUs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/assembly.h"

namespace tutti::topology {

/// A source of hwloc's XML.
class HwlocSource {
 public:
  virtual ~HwlocSource() = default;
  /// The machine as hwloc 2's XML. Errors: kUnsupported with the reason if there is no usable hwloc.
  virtual Result<std::string> machine_xml() = 0;
};

/// A read-only tree of small files, as /sys.
class FileTree {
 public:
  virtual ~FileTree() = default;
  /// The file's first 64 KiB without blanks at the end. nullopt if the file cannot be read.
  virtual std::optional<std::string> read(const std::string& path) const = 0;
  /// The names in a folder, sorted; empty if the folder cannot be read.
  virtual std::vector<std::string> list(const std::string& path) const = 0;
  /// The path inside the tree to which all links lead. Empty if there is none.
  virtual std::string resolve(const std::string& path) const = 0;
};

struct GpuFacts {
  std::string bus_id;
  std::string name;
  uint64_t memory_bytes = 0;
  /// One entry for each active NVLink.
  struct Link {
    std::string remote_bus_id;
    bool to_switch = false;
    uint64_t bytes_per_s = 0;  ///< 0: unknown
  };
  std::vector<Link> links;
  uint32_t compute_capability = 0;  ///< 90 for 9.0
};

/// What a GPU management library tells.
class GpuSource {
 public:
  virtual ~GpuSource() = default;
  /// In the order of the library. Errors: kUnsupported with the reason if there is no usable library.
  virtual Result<std::vector<GpuFacts>> gpus() = 0;
};

/// All sources of a machine. A null source is a missing one.
struct Sources {
  HwlocSource* hwloc = nullptr;
  const FileTree* files = nullptr;  ///< its root stands for /sys
  GpuSource* gpus = nullptr;
  uint32_t cores = 1;  ///< that this process may use; for machines that show nothing
  std::string host_name = "host";
};

struct Detected : Imported {
  /// hwloc's answer was read, and NVML's if there is a GPU of NVIDIA. Otherwise another process, or this one
  /// later, may know more.
  bool is_complete = true;
};

/// Never fails for lack of knowledge: at the least a host with one package and assumed cores.
Result<Detected> detect(const Sources& sources);

/// Parts from /sys alone: packages, NUMA nodes, caches, cores, PCI devices.
void add_processors_from_files(const FileTree& files, Assembly& assembly);
void add_devices_from_files(const FileTree& files, Assembly& assembly);
/// Better numbers for parts that exist: PCI links, network cards.
void refine_from_files(const FileTree& files, Assembly& assembly);
/// What decides a network card's speed, as the files tell it; empty for other devices. `device`: its PCI
/// address.
std::string card_texts(const FileTree& files, const std::string& device);
void add_gpu_facts(const std::vector<GpuFacts>& gpus, Assembly& assembly);

/// The sources of the machine that this process runs on.
std::unique_ptr<HwlocSource> open_hwloc();
std::unique_ptr<FileTree> open_files(std::string root = "/sys");
std::unique_ptr<GpuSource> open_nvml();
/// detect() with all of them. `host_name`: of the graph's host; empty: the system's.
Result<Detected> detect_this_machine(const std::string& host_name = "");

}  // namespace tutti::topology
