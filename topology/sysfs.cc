// What Linux shows under /sys: processors, PCI devices, network cards. Paths are below the tree's root.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "topology/detect.h"
#include "topology/pci.h"
#include "topology/units.h"

namespace tutti::topology {
namespace {

constexpr size_t kFileBytesMax = 64 << 10;
constexpr size_t kProcessorsMax = 8192;

class SystemFiles final : public FileTree {
 public:
  explicit SystemFiles(std::string root) : root_(std::move(root)) {
    std::error_code failure;
    canonical_root_ = std::filesystem::canonical(root_, failure).string();
  }

  std::optional<std::string> read(const std::string& path) const override {
    std::ifstream file(root_ + "/" + path, std::ios::binary);
    std::string text(kFileBytesMax, '\0');
    if (!file) return std::nullopt;
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(file.gcount()));
    // Some files exist but refuse to be read, as the speed of a card that is down.
    if (file.bad() || (text.empty() && !file.eof())) return std::nullopt;
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    return text;
  }

  std::vector<std::string> list(const std::string& path) const override {
    std::vector<std::string> names;
    std::error_code failure;
    for (std::filesystem::directory_iterator it(root_ + "/" + path, failure), end; !failure && it != end;
         it.increment(failure)) {
      names.push_back(it->path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string resolve(const std::string& path) const override {
    std::error_code failure;
    const std::string full = std::filesystem::canonical(root_ + "/" + path, failure).string();
    if (failure || !full.starts_with(canonical_root_ + "/")) return {};
    return full.substr(canonical_root_.size() + 1);
  }

 private:
  std::string root_;
  std::string canonical_root_;
};

std::optional<int64_t> number_in(const FileTree& files, const std::string& path) {
  const auto text = files.read(path);
  if (!text) return std::nullopt;
  const bool is_negative = text->starts_with("-");
  const auto value = Scanner(std::string_view(*text).substr(is_negative ? 1 : 0)).number(0, INT64_MAX);
  if (!value) return std::nullopt;
  return is_negative ? -static_cast<int64_t>(*value) : static_cast<int64_t>(*value);
}

uint32_t hex_in(const FileTree& files, const std::string& path) {
  const auto text = files.read(path);
  return text ? static_cast<uint32_t>(std::strtoul(text->c_str(), nullptr, 16)) : 0;
}

/// "0-3,8" as numbers.
std::vector<uint32_t> parse_ranges(std::string_view text) {
  std::vector<uint32_t> numbers;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view range = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t dash = std::min(range.find('-'), range.size());
    const auto first = Scanner(range.substr(0, dash)).number(0, kProcessorsMax);
    const auto last =
        dash == range.size() ? first : Scanner(range.substr(dash + 1)).number(0, kProcessorsMax);
    if (!first || !last) return {};
    for (uint64_t i = *first; i <= *last; ++i) numbers.push_back(static_cast<uint32_t>(i));
  }
  return numbers;
}

/// The parts that processors lie in, made when the first processor names them.
class Processors {
 public:
  Processors(const FileTree& files, Assembly& assembly) : files_(files), assembly_(assembly) {}

  void run() {
    const auto online = files_.read("devices/system/cpu/online");
    if (!online) return;
    for (const std::string& name : files_.list("devices/system/node")) {
      if (!name.starts_with("node")) continue;
      const auto number = Scanner(std::string_view(name).substr(4)).number(0, kProcessorsMax);
      const auto list = files_.read("devices/system/node/" + name + "/cpulist");
      if (!number || !list) continue;
      for (const uint32_t processor : parse_ranges(*list))
        numa_of_[processor] = static_cast<uint32_t>(*number);
    }
    for (const uint32_t processor : parse_ranges(*online)) add(processor);
  }

 private:
  void add(uint32_t processor) {
    const std::string folder = "devices/system/cpu/cpu" + std::to_string(processor);
    const int64_t package =
        std::max<int64_t>(0, number_in(files_, folder + "/topology/physical_package_id").value_or(0));
    uint32_t above = part(NodeKind::kPackage, "package", package, assembly_.host());
    const auto numa = numa_of_.find(processor);
    if (numa != numa_of_.end()) above = part(NodeKind::kNuma, "numa", numa->second, above);
    if (const auto shared = files_.read(folder + "/cache/index3/shared_cpu_list")) {
      above = cache(*shared, above);
    }
    const auto [known, is_new] = cores_.try_emplace(core_key(processor, package), 0);
    if (!is_new) {
      ++assembly_.node(known->second).count;
      return;
    }
    Node node;
    node.kind = NodeKind::kCore;
    node.name = "core" + std::to_string(cores_.size() - 1);
    node.os_index = static_cast<int32_t>(processor);
    node.parent = above;
    known->second = assembly_.add(std::move(node));
  }

  /// Equal for the processors of one core: the list of these. Numbers of cores may begin anew in each cluster
  /// of a package, as on machines that are described by a device tree.
  std::string core_key(uint32_t processor, int64_t package) const {
    const std::string folder = "devices/system/cpu/cpu" + std::to_string(processor) + "/topology/";
    for (const char* list : {"core_cpus_list", "thread_siblings_list"}) {  // the second one of older systems
      if (auto processors = files_.read(folder + list); processors && !processors->empty())
        return std::move(*processors);
    }
    const int64_t core = number_in(files_, folder + "core_id").value_or(processor);
    return "core " + std::to_string(core) + " of package " + std::to_string(package);
  }

  uint32_t part(NodeKind kind, const std::string& name, int64_t number, uint32_t parent) {
    const auto [known, is_new] = parts_.try_emplace({kind, number}, 0);
    if (!is_new) return known->second;
    Node node;
    node.kind = kind;
    node.name = name + std::to_string(number);
    node.os_index = static_cast<int32_t>(number);
    node.parent = parent;
    if (kind == NodeKind::kNuma) node.memory_bytes = memory_of(number);
    known->second = assembly_.add(std::move(node));
    return known->second;
  }

  uint32_t cache(const std::string& shared, uint32_t parent) {
    const auto [known, is_new] = caches_.try_emplace(shared, 0);
    if (!is_new) return known->second;
    Node node;
    node.kind = NodeKind::kL3;
    node.name = "l3." + std::to_string(caches_.size() - 1);
    node.parent = parent;
    known->second = assembly_.add(std::move(node));
    return known->second;
  }

  /// "Node 0 MemTotal:  12345 kB"
  uint64_t memory_of(int64_t numa) const {
    const auto text = files_.read("devices/system/node/node" + std::to_string(numa) + "/meminfo");
    const size_t at = text ? text->find("MemTotal:") : std::string::npos;
    if (at == std::string::npos) return 0;
    const size_t end = text->find('\n', at);
    Scanner scanner(std::string_view(*text).substr(at + 9, end == std::string::npos ? end : end - at - 9));
    return scanner.number(0, INT64_MAX / 1024).value_or(0) * 1024;
  }

  const FileTree& files_;
  Assembly& assembly_;
  std::map<uint32_t, uint32_t> numa_of_;
  std::map<std::pair<NodeKind, int64_t>, uint32_t> parts_;
  std::map<std::string, uint32_t> caches_;
  std::map<std::string, uint32_t> cores_;
};

const std::string kDevices = "bus/pci/devices/";

/// What the link to a device can do: the slower of the device and of the port above the device.
uint64_t link_speed(const FileTree& files, const std::string& folder) {
  uint64_t speed = 0;
  const size_t slash = folder.rfind('/');
  for (const std::string& end :
       {folder, slash == std::string::npos ? std::string() : folder.substr(0, slash)}) {
    const auto lane = files.read(end + "/max_link_speed");
    const auto lanes = number_in(files, end + "/max_link_width");
    if (!lane || !lanes || *lanes <= 0) continue;
    const uint64_t one = pci_link_speed(*lane, static_cast<uint32_t>(*lanes));
    if (one > 0) speed = speed == 0 ? one : std::min(speed, one);
  }
  return speed;
}

/// GPUs and cards with the bridges above them, from the path of each device:
/// devices/pci0000:00/0000:00:01.0/0000:01:00.0 is a root port and a device.
class Devices {
 public:
  Devices(const FileTree& files, Assembly& assembly) : files_(files), assembly_(assembly) {}

  void run() {
    for (const std::string& name : files_.list("bus/pci/devices")) {
      const std::string address = pci_address(name);
      const std::string folder = files_.resolve(kDevices + name);
      if (address.empty() || folder.empty() || assembly_.at_bus(address) != kNoNode) continue;
      const uint32_t vendor = hex_in(files_, folder + "/vendor");
      const PciRole role = pci_role(hex_in(files_, folder + "/class"), vendor);
      if (role != PciRole::kGpu && role != PciRole::kNic) continue;
      // A virtual function shares its card's port; the card is there already.
      if (!files_.resolve(folder + "/physfn").empty()) continue;
      Node node;
      node.kind = role == PciRole::kGpu ? NodeKind::kGpu : NodeKind::kNic;
      node.bus_id = address;
      node.parent = parent_of(folder);
      if (role == PciRole::kGpu) {
        describe_gpu(folder, vendor, node);
      } else {
        node.name = card_name(folder);
      }
      assembly_.add(std::move(node), link_speed(files_, folder));
    }
  }

 private:
  void describe_gpu(const std::string& folder, uint32_t vendor, Node& node) {
    const uint32_t device = hex_in(files_, folder + "/device");
    const GpuModel* model = find_gpu(vendor, device);
    node.os_index = gpu_count_++;
    node.name = "gpu" + std::to_string(node.os_index);
    node.model = model != nullptr ? std::string(model->name) : format("%04x:%04x", vendor, device);
  }

  std::string card_name(const std::string& folder) const {
    for (const char* kind : {"/infiniband", "/net"}) {
      const auto names = files_.list(folder + kind);
      if (!names.empty()) return as_name(names.front());
    }
    // Virtual cards have one more folder between.
    for (const std::string& below : files_.list(folder)) {
      const auto names = below.starts_with("virtio") ? files_.list(folder + "/" + below + "/net")
                                                     : std::vector<std::string>();
      if (!names.empty()) return as_name(names.front());
    }
    return "nic-" + folder.substr(folder.rfind('/') + 1);
  }

  /// The bridges between: the first is the root port, then upper and lower ports of switches take turns.
  uint32_t parent_of(const std::string& folder) {
    uint32_t above = assembly_.host();
    uint32_t level = 0;
    for (size_t start = 0; start < folder.size();) {
      const size_t slash = folder.find('/', start);
      if (slash == std::string::npos) break;
      const std::string part = folder.substr(start, slash - start);
      const std::string path = folder.substr(0, slash);
      start = slash + 1;
      if (part.starts_with("pci") && part.find(':') != std::string::npos) {
        above = bridge(part, folder);
      } else if (!pci_address(part).empty() && ++level % 2 == 0) {
        above = pci_switch(part, path, above);
      }
    }
    return above;
  }

  uint32_t bridge(const std::string& name, const std::string& device) {
    const auto [known, is_new] = bridges_.try_emplace(name, 0);
    if (!is_new) return known->second;
    Node node;
    node.kind = NodeKind::kBridge;
    node.name = as_name(name);
    node.parent = numa_node(number_in(files_, device + "/numa_node").value_or(-1));
    known->second = assembly_.add(std::move(node));
    return known->second;
  }

  uint32_t numa_node(int64_t number) const {
    uint32_t only = assembly_.host();
    uint32_t count = 0;
    for (uint32_t i = 0; i < assembly_.node_count(); ++i) {
      if (assembly_.node(i).kind != NodeKind::kNuma) continue;
      if (assembly_.node(i).os_index == number) return i;
      only = i;
      ++count;
    }
    return count == 1 ? only : assembly_.host();
  }

  uint32_t pci_switch(const std::string& address, const std::string& folder, uint32_t above) {
    if (const uint32_t known = assembly_.at_bus(address); known != kNoNode) return known;
    Node node;
    node.kind = NodeKind::kPciSwitch;
    node.bus_id = address;
    node.name = "switch-" + address;
    node.parent = above;
    return assembly_.add(std::move(node), link_speed(files_, folder));
  }

  const FileTree& files_;
  Assembly& assembly_;
  std::map<std::string, uint32_t> bridges_;
  int32_t gpu_count_ = 0;
};

/// The folders of a card's RDMA ports.
std::vector<std::string> ports_of(const FileTree& files, const std::string& folder) {
  std::vector<std::string> ports;
  for (const std::string& device : files.list(folder + "/infiniband")) {
    const std::string base = folder + "/infiniband/" + device + "/ports/";
    for (const std::string& port : files.list(base)) ports.push_back(base + port);
  }
  return ports;
}

/// The folders of a card's network interfaces.
std::vector<std::string> interfaces_of(const FileTree& files, const std::string& folder) {
  std::vector<std::string> places = {folder};
  for (const std::string& below : files.list(folder)) {
    if (below.starts_with("virtio")) places.push_back(folder + "/" + below);
  }
  std::vector<std::string> interfaces;
  for (const std::string& place : places) {
    for (const std::string& name : files.list(place + "/net")) interfaces.push_back(place + "/net/" + name);
  }
  return interfaces;
}

/// The speed of a card's ports that are up: RDMA's rate, or the network interface's speed. 0 if unknown.
/// `ports`: all that have a speed, so that a machine stays of its kind while a port is down.
uint64_t card_speed(const FileTree& files, const std::string& folder, uint32_t* ports) {
  constexpr int64_t kMbitMax = 10'000'000;
  uint64_t sum = 0;
  *ports = 0;
  for (const std::string& port : ports_of(files, folder)) {
    const auto rate = files.read(port + "/rate");  // "400 Gb/sec (4X NDR)"
    const auto gbit = rate ? Scanner(*rate).number(1, kMbitMax / 1000) : std::nullopt;
    if (!gbit) continue;
    ++*ports;
    // A port that is down has the rate of one slow lane.
    if (files.read(port + "/state").value_or("4: ACTIVE").starts_with("4:")) sum += *gbit * 125'000'000;
  }
  if (*ports > 0) return sum;
  for (const std::string& interface : interfaces_of(files, folder)) {
    const auto mbit = number_in(files, interface + "/speed");
    if (!mbit || *mbit <= 0 || *mbit > kMbitMax) continue;  // -1: down, or a virtual card that has none
    sum += static_cast<uint64_t>(*mbit) * 125'000;
    ++*ports;
  }
  return sum;
}

}  // namespace

std::unique_ptr<FileTree> open_files(std::string root) {
  return std::make_unique<SystemFiles>(std::move(root));
}

void add_processors_from_files(const FileTree& files, Assembly& assembly) {
  Processors(files, assembly).run();
}

void add_devices_from_files(const FileTree& files, Assembly& assembly) {
  Devices(files, assembly).run();
}

std::string card_texts(const FileTree& files, const std::string& device) {
  const std::string folder = kDevices + device;
  std::string texts;
  for (const std::string& port : ports_of(files, folder)) {
    texts += files.read(port + "/state").value_or("") + "\n" + files.read(port + "/rate").value_or("") + "\n";
  }
  for (const std::string& interface : interfaces_of(files, folder))
    texts += files.read(interface + "/speed").value_or("") + "\n";
  return texts;
}

void refine_from_files(const FileTree& files, Assembly& assembly) {
  uint32_t unknown = 0;
  for (uint32_t i = 0; i < assembly.node_count(); ++i) {
    Node& node = assembly.node(i);
    const bool is_card = node.kind == NodeKind::kNic;
    if (node.bus_id.empty() && !is_card) continue;
    const std::string folder = node.bus_id.empty() ? std::string() : files.resolve(kDevices + node.bus_id);
    const uint64_t pci = folder.empty() ? 0 : link_speed(files, folder);
    if (pci > 0) assembly.set_link_speed(i, {pci, Origin::kSysfs});
    if (!is_card) continue;
    uint32_t ports = 0;
    const uint64_t speed = folder.empty() ? 0 : card_speed(files, folder, &ports);
    if (ports > 0) node.count = ports;
    if (speed > 0) {
      node.bytes_per_s = {speed, Origin::kSysfs};
    } else {
      if (node.bytes_per_s.value == 0) node.bytes_per_s = {1'250'000'000, Origin::kAssumed};
      ++unknown;
    }
  }
  if (unknown > 0)
    assembly.note(format("the speed of %u network cards is assumed: the system does not tell it", unknown));
}

}  // namespace tutti::topology
