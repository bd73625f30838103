#include "topology/hwloc_xml.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "topology/pci.h"
#include "topology/units.h"

namespace tutti::topology {
namespace {

/// A set of processors or memories, lowest 32 first. Bits above the text's are 0.
using Bits = std::vector<uint32_t>;

/// hwloc's "0x000000ff,,0x3": words of 32 bits, the highest first, an empty word is 0.
std::optional<Bits> parse_bits(std::string_view text) {
  constexpr size_t kWordsMax = 4096;
  Bits bits;
  if (text.starts_with("0xf...f")) text.remove_prefix(std::min(text.find(',') + 1, text.size()));
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view word = text.substr(0, comma);
    if (word.starts_with("0x")) word.remove_prefix(2);
    uint32_t value = 0;
    const auto [stop, failure] = std::from_chars(word.data(), word.data() + word.size(), value, 16);
    if (!word.empty() && (failure != std::errc() || stop != word.data() + word.size())) return std::nullopt;
    if (bits.size() >= kWordsMax) return std::nullopt;
    bits.push_back(value);
    if (comma == text.size()) break;
    text.remove_prefix(comma + 1);
  }
  std::reverse(bits.begin(), bits.end());
  return bits;
}

bool intersect(const Bits& a, const Bits& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if ((a[i] & b[i]) != 0) return true;
  }
  return false;
}

/// The numbers of a list, as hwloc writes matrices. Errors: nullopt.
std::optional<std::vector<uint64_t>> parse_list(std::string_view text) {
  std::vector<uint64_t> values;
  for (Scanner scanner(text); !scanner.at_end();) {
    const auto value = scanner.number(0, INT64_MAX);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

uint32_t hex_at(std::string_view text, size_t at, size_t digits) {
  uint32_t value = 0;
  if (at + digits > text.size()) return 0;
  std::from_chars(text.data() + at, text.data() + at + digits, value, 16);
  return value;
}

/// "0302 [10de:1db8] [10de:131d] a1".
struct PciType {
  uint32_t class_code;
  uint32_t vendor;
  uint32_t device;
};
PciType parse_pci_type(std::string_view text) {
  return {hex_at(text, 0, 4) << 8, hex_at(text, 6, 4), hex_at(text, 11, 4)};
}

/// Gigabytes per second with decimals; 0 if unknown.
uint64_t parse_pci_speed(const XmlElement& element) {
  const std::string text = std::string(element.value("pci_link_speed")) + " GB/s";
  return Scanner(text).speed().value_or(0);
}

std::string_view info(const XmlElement& element, std::string_view name) {
  for (const XmlElement& child : element.children) {
    if (child.name == "info" && child.value("name") == name) return child.value("value");
  }
  return {};
}

constexpr int kOsNetwork = 2;
constexpr int kOsOpenFabrics = 3;

class Importer {
 public:
  explicit Importer(Assembly& assembly) : assembly_(assembly) {}

  Status run(const XmlElement& topology) {
    if (topology.name != "topology") {
      return xml_error(topology, "expected <topology>, found <" + topology.name + ">");
    }
    const std::string_view version = topology.value("version");
    if (!version.starts_with("2.")) {
      return xml_error(topology,
                       "hwloc XML version '" + as_model(version) + "'; this reader knows version 2");
    }
    for (const XmlElement& child : topology.children) {
      if (child.name != "object") continue;
      if (child.value("type") != "Machine") return xml_error(child, "the outermost object is no Machine");
      TUTTI_TRY(read_machine(child));
    }
    if (!has_machine_) return xml_error(topology, "no <object type=\"Machine\"> inside");
    for (const XmlElement& child : topology.children) {
      if (child.value("name") != "NVLinkBandwidth" && child.value("name") != "XGMIBandwidth") continue;
      if (child.name.starts_with("distances2")) TUTTI_TRY(read_wires(child));
    }
    note_gaps();
    return {};
  }

 private:
  /// What lies around an object.
  struct Place {
    uint32_t package = kNoNode;
    uint32_t numa = kNoNode;
    uint32_t cache = kNoNode;
    uint32_t core = kNoNode;
  };
  struct Memory {
    uint32_t node;
    Bits processors;
  };

  Status read_machine(const XmlElement& machine) {
    if (has_machine_) return xml_error(machine, "a second Machine");
    has_machine_ = true;
    assembly_.node(0).model = as_model(info(machine, "DMIProductName"));
    TUTTI_TRY(add_packages(machine, kNoNode));
    number_gpus(machine);
    return read_children(machine, {});
  }

  static Result<Bits> processors_of(const XmlElement& object) {
    const auto bits = parse_bits(object.value("cpuset"));
    if (!bits) return xml_error(object, "the cpuset is no list of hexadecimal words");
    return *bits;
  }

  static int32_t os_index(const XmlElement& object) {
    return static_cast<int32_t>(Scanner(object.value("os_index")).number(0, INT32_MAX).value_or(UINT32_MAX));
  }

  /// First all packages and NUMA nodes: other objects name the NUMA nodes only by their processors.
  Status add_packages(const XmlElement& object, uint32_t package) {
    for (const XmlElement& child : object.children) {
      const std::string_view type = child.value("type");
      if (child.name != "object" || type == "Bridge") continue;
      assembly_.set_line(child.line);
      uint32_t inside = package;
      if (type == "Package") {
        Node node;
        node.kind = NodeKind::kPackage;
        node.name = "package" + std::to_string(packages_.size());
        node.parent = assembly_.host();
        node.os_index = os_index(child);
        node.model = as_model(info(child, "CPUModel"));
        inside = assembly_.add(std::move(node));
        packages_[&child] = inside;
      } else if (type == "NUMANode") {
        TUTTI_TRY(add_numa(child, package));
      }
      TUTTI_TRY(add_packages(child, inside));
    }
    return {};
  }

  Status add_numa(const XmlElement& object, uint32_t package) {
    const uint64_t bytes = Scanner(object.value("local_memory")).number(0, INT64_MAX).value_or(0);
    if (object.value("subtype") == "GPUMemory") {
      gpu_memory_[pci_address(info(object, "PCIBusID"))] = bytes;
      return {};
    }
    // Every object is compared with all of them. Linux has no more.
    constexpr size_t kNumaNodesMax = 1024;
    if (memories_.size() >= kNumaNodesMax)
      return xml_error(object, format("more than %zu NUMA nodes", kNumaNodesMax));
    const auto processors = processors_of(object);
    if (!processors) return processors.status();
    Node node;
    node.kind = NodeKind::kNuma;
    node.os_index = os_index(object);
    node.name =
        "numa" + std::to_string(node.os_index >= 0 ? static_cast<size_t>(node.os_index) : memories_.size());
    node.parent = package == kNoNode ? assembly_.host() : package;
    node.memory_bytes = bytes;
    memories_.push_back({assembly_.add(std::move(node)), *processors});
    return {};
  }

  /// GPUs get the numbers that NVML or CUDA gave them, or else their order by address.
  void number_gpus(const XmlElement& machine) {
    std::vector<std::pair<std::string, int32_t>> gpus;
    collect_gpus(machine, gpus);
    std::sort(gpus.begin(), gpus.end());
    const bool all_numbered =
        std::all_of(gpus.begin(), gpus.end(), [](const auto& gpu) { return gpu.second >= 0; });
    for (size_t i = 0; i < gpus.size(); ++i) {
      gpu_number_[gpus[i].first] = all_numbered ? gpus[i].second : static_cast<int32_t>(i);
    }
  }

  void collect_gpus(const XmlElement& object, std::vector<std::pair<std::string, int32_t>>& gpus) const {
    for (const XmlElement& child : object.children) {
      if (child.value("type") == "PCIDev" && role_of(child) == PciRole::kGpu) {
        gpus.emplace_back(pci_address(child.value("pci_busid")), system_number(child));
      }
      collect_gpus(child, gpus);
    }
  }

  /// From "nvml3" or "cuda3"; -1 if unknown.
  static int32_t system_number(const XmlElement& device) {
    int32_t number = -1;
    for (const XmlElement& child : device.children) {
      for (const std::string_view prefix : {"nvml", "cuda", "rsmi"}) {
        const std::string_view name = child.value("name");
        if (!name.starts_with(prefix) || (number >= 0 && prefix == "cuda")) continue;
        const auto value = Scanner(name.substr(prefix.size())).number(0, 1 << 20);
        if (value) number = static_cast<int32_t>(*value);
      }
    }
    return number;
  }

  PciRole role_of(const XmlElement& device) const {
    if (device.value("subtype") == "NVSwitch") return PciRole::kNvswitch;
    if (gpu_memory_.contains(pci_address(device.value("pci_busid")))) return PciRole::kGpu;
    const PciType type = parse_pci_type(device.value("pci_type"));
    return pci_role(type.class_code, type.vendor);
  }

  Status read_children(const XmlElement& object, const Place& place) {
    for (const XmlElement& child : object.children) {
      if (child.name == "object") TUTTI_TRY(read_object(child, place));
    }
    return {};
  }

  Status read_object(const XmlElement& object, Place place) {
    assembly_.set_line(object.line);
    const std::string_view type = object.value("type");
    if (type == "NUMANode" || type == "Misc" || type == "OSDev") return {};
    if (type == "Bridge" || type == "PCIDev") return read_pci(object, place);
    if (object.attribute("cpuset") != nullptr) {
      const auto processors = processors_of(object);
      if (!processors) return processors.status();
      place_numa(*processors, place);
    }
    if (type == "Package") place.package = packages_[&object];
    if (type == "L3Cache")
      place.cache = add_part(NodeKind::kL3, "l3." + std::to_string(caches_++), object, place);
    if (type == "Core") {
      place.core = add_core(object, place);
      assembly_.node(place.core).os_index = -1;  // a number inside the package; see add_thread
    }
    if (type == "PU") add_thread(object, place);
    return read_children(object, place);
  }

  /// A core is known by its first PU's number, which is that of a CPU.
  void add_thread(const XmlElement& object, const Place& place) {
    if (place.core == kNoNode) {
      add_core(object, place);
      return;
    }
    Node& core = assembly_.node(place.core);
    // The core was made with one thread, for its first PU.
    if (seen_thread_[place.core]++ > 0) {
      ++core.count;
    } else {
      core.os_index = os_index(object);
    }
  }

  /// The NUMA node with the object's processors, if the object is not larger than one.
  void place_numa(const Bits& processors, Place& place) const {
    uint32_t found = kNoNode;
    for (const Memory& memory : memories_) {
      if (!intersect(memory.processors, processors)) continue;
      if (found != kNoNode) {
        place.numa = kNoNode;
        return;
      }
      found = memory.node;
    }
    place.numa = found;
  }

  static uint32_t first_known(std::initializer_list<uint32_t> nodes) {
    for (const uint32_t node : nodes) {
      if (node != kNoNode) return node;
    }
    return kNoNode;
  }

  uint32_t add_core(const XmlElement& object, const Place& place) {
    return add_part(NodeKind::kCore, "core" + std::to_string(cores_++), object, place);
  }

  uint32_t add_part(NodeKind kind, const std::string& name, const XmlElement& object, const Place& place) {
    Node node;
    node.kind = kind;
    node.name = name;
    node.os_index = os_index(object);
    node.parent = first_known({place.core, place.cache, place.numa, place.package, assembly_.host()});
    return assembly_.add(std::move(node));
  }

  bool is_wanted(const XmlElement& object) const {
    if (object.value("type") == "PCIDev") {
      const PciRole role = role_of(object);
      return role == PciRole::kGpu || role == PciRole::kNic;
    }
    return wanted_below(object) > 0;
  }
  size_t wanted_below(const XmlElement& object) const {
    const auto wanted = [this](const XmlElement& child) { return is_wanted(child); };
    return static_cast<size_t>(std::count_if(object.children.begin(), object.children.end(), wanted));
  }

  Status read_pci(const XmlElement& object, const Place& place) {
    if (!is_wanted(object)) {
      remember_switches(object);
      return {};
    }
    // Without a NUMA node of its own the object may still be in a package with only one.
    uint32_t around = first_known({place.numa, only_numa(place.package), place.package, assembly_.host()});
    if (object.value("type") == "PCIDev") return read_device(object, around, 0);
    Node node;
    node.kind = NodeKind::kBridge;
    const std::string_view buses = object.value("bridge_pci");  // "0000:[2b-3b]"
    node.name = "pci" + as_name(buses.substr(0, buses.find('-')));
    node.name.erase(std::remove(node.name.begin(), node.name.end(), '_'), node.name.end());
    node.parent = around;
    const uint32_t bridge = assembly_.add(std::move(node));
    return read_below(object, bridge, 1, 0);
  }

  uint32_t only_numa(uint32_t package) const {
    if (memories_.size() == 1) return memories_[0].node;
    uint32_t found = kNoNode;
    for (const Memory& memory : memories_) {
      if (assembly_.node(memory.node).parent != (package == kNoNode ? assembly_.host() : package)) continue;
      if (found != kNoNode) return kNoNode;
      found = memory.node;
    }
    return found;
  }

  /// The bridges and devices below a bridge. Bridges alternate: the root port (1), a switch's upper port (2),
  /// its lower ports (3), the next switch's upper port (4). `port_speed`: of the lower port above, 0 if
  /// unknown.
  Status read_below(const XmlElement& bridge, uint32_t parent, uint32_t depth, uint64_t port_speed) {
    for (const XmlElement& child : bridge.children) {
      const std::string_view type = child.value("type");
      if (type == "PCIDev") {
        TUTTI_TRY(read_device(child, parent, port_speed));
      } else if (type == "Bridge" && is_wanted(child)) {
        TUTTI_TRY(read_bridge(child, parent, depth, port_speed));
      } else {
        remember_switches(child);
      }
    }
    return {};
  }

  Status read_bridge(const XmlElement& bridge, uint32_t parent, uint32_t depth, uint64_t port_speed) {
    const uint64_t speed = parse_pci_speed(bridge);
    // Two devices below one root port share the port, as they would share a switch.
    assembly_.set_line(bridge.line);
    const bool is_switch = depth % 2 == 0 || (depth == 1 && wanted_below(bridge) > 1);
    if (!is_switch) return read_below(bridge, parent, depth + 1, speed);
    Node node;
    node.kind = NodeKind::kPciSwitch;
    node.bus_id = pci_address(bridge.value("pci_busid"));
    node.name = "switch-" + node.bus_id;
    node.parent = parent;
    if (!node.bus_id.empty() && assembly_.at_bus(node.bus_id) != kNoNode) {
      return xml_error(bridge, "a second device at " + node.bus_id);
    }
    const uint32_t index = assembly_.add(std::move(node), narrower(speed, port_speed));
    return read_below(bridge, index, depth + 1, depth == 1 ? speed : 0);
  }

  static uint64_t narrower(uint64_t a, uint64_t b) {
    return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
  }

  Status read_device(const XmlElement& device, uint32_t parent, uint64_t port_speed) {
    const PciRole role = role_of(device);
    if (role != PciRole::kGpu && role != PciRole::kNic) {
      remember_switches(device);
      return {};
    }
    assembly_.set_line(device.line);
    Node node;
    node.parent = parent;
    node.bus_id = pci_address(device.value("pci_busid"));
    if (node.bus_id.empty()) return xml_error(device, "a PCI device without an address");
    if (assembly_.at_bus(node.bus_id) != kNoNode)
      return xml_error(device, "a second device at " + node.bus_id);
    const uint64_t speed = narrower(parse_pci_speed(device), port_speed);
    node.model = as_model(info(device, "PCIDevice"));
    if (role == PciRole::kGpu) {
      describe_gpu(device, node);
    } else {
      describe_nic(device, speed, node);
    }
    const uint32_t index = assembly_.add(std::move(node), speed);
    for (const XmlElement& child : device.children) {
      const auto id = Scanner(child.value("gp_index")).number(0, INT64_MAX);
      if (id) gpu_by_id_["OSDev:" + std::to_string(*id)] = index;
    }
    if (role == PciRole::kGpu) gpu_by_id_["PCIDev:" + std::string(device.value("gp_index"))] = index;
    return {};
  }

  void describe_gpu(const XmlElement& device, Node& node) {
    node.kind = NodeKind::kGpu;
    node.os_index = gpu_number_[node.bus_id];
    node.name = "gpu" + std::to_string(node.os_index);
    const PciType type = parse_pci_type(device.value("pci_type"));
    if (const GpuModel* model = find_gpu(type.vendor, type.device)) node.model = model->name;
    for (const XmlElement& child : device.children) {
      if (const std::string_view name = info(child, "GPUModel"); !name.empty()) node.model = as_model(name);
    }
    if (node.model.empty() && type.device != 0) node.model = format("%04x:%04x", type.vendor, type.device);
    if (const auto known = gpu_memory_.find(node.bus_id); known != gpu_memory_.end()) {
      node.memory_bytes = known->second;
      linked_to_processor_ = true;
    }
  }

  void describe_nic(const XmlElement& device, uint64_t pci_speed, Node& node) {
    node.kind = NodeKind::kNic;
    uint32_t ports = 0;
    for (const int kind : {kOsOpenFabrics, kOsNetwork}) {
      for (const XmlElement& child : device.children) {
        if (child.value("osdev_type") != std::to_string(kind)) continue;
        if (ports == 0 || kind == kOsOpenFabrics) ++ports;
        if (node.name.empty()) node.name = as_name(child.value("name"));
      }
    }
    if (node.name.empty()) node.name = "nic-" + node.bus_id;
    node.count = std::max(ports, 1u);
    node.bytes_per_s = {pci_speed > 0 ? pci_speed : uint64_t{1'250'000'000}, Origin::kAssumed};
    has_cards_ = true;
  }

  /// Switches between GPUs have no node yet: the matrix of links may not name them.
  void remember_switches(const XmlElement& object) {
    if (object.value("type") == "PCIDev" && role_of(object) == PciRole::kNvswitch) {
      switch_by_id_["PCIDev:" + std::string(object.value("gp_index"))] =
          pci_address(object.value("pci_busid"));
    }
    for (const XmlElement& child : object.children) remember_switches(child);
  }

  /// Adds the objects that a matrix names. The bounds hold while reading: the type stands before each name.
  static Status read_names(const XmlElement& list, const std::string& type, std::vector<std::string>& names) {
    constexpr size_t kNamesMax = 4096;
    for (Scanner scanner(list.text); !scanner.at_end();) {
      const std::string_view word = scanner.word();
      if (word.empty()) return xml_error(list, "expected a list of objects, found " + scanner.quote());
      if (names.size() >= kNamesMax) return xml_error(list, format("more than %zu objects", kNamesMax));
      names.push_back(type + std::string(word));
    }
    return {};
  }

  /// The matrix of link speeds, in megabytes per second.
  Status read_wires(const XmlElement& matrix) {
    assembly_.set_line(matrix.line);
    std::vector<std::string> names;
    std::vector<uint64_t> values;
    const bool is_mixed = matrix.name == "distances2hetero";  // names have their types
    if (matrix.value("type").size() > kNameBytesMax)
      return xml_error(matrix, format("a type of more than %zu bytes", kNameBytesMax));
    const std::string type = is_mixed ? "" : std::string(matrix.value("type")) + ":";
    for (const XmlElement& child : matrix.children) {
      if (child.name == "indexes") {
        TUTTI_TRY(read_names(child, type, names));
      } else if (child.name == "u64values") {
        const auto list = parse_list(child.text);
        if (!list) return xml_error(child, "expected a list of numbers");
        values.insert(values.end(), list->begin(), list->end());
      }
    }
    if (values.size() != names.size() * names.size()) {
      return xml_error(matrix, format("%zu objects need %zu values, found %zu", names.size(),
                                      names.size() * names.size(), values.size()));
    }
    const LinkKind kind = matrix.value("name") == "XGMIBandwidth" ? LinkKind::kXgmi : LinkKind::kNvlink;
    for (size_t i = 0; i < names.size(); ++i) {
      for (size_t j = 0; j < names.size(); ++j) {
        if (i != j && values[i * names.size() + j] > 0)
          add_wires(names[i], names[j], values[i * names.size() + j], kind);
      }
    }
    return {};
  }

  void add_wires(const std::string& a, const std::string& b, uint64_t megabytes, LinkKind kind) {
    constexpr uint64_t kMegabytesMax = 100'000'000;
    constexpr uint64_t kMega = 1'000'000;
    const auto gpu_a = gpu_by_id_.find(a);
    const auto gpu_b = gpu_by_id_.find(b);
    const auto switch_a = switch_by_id_.find(a);
    const auto switch_b = switch_by_id_.find(b);
    if (megabytes > kMegabytesMax)
      return assembly_.note("a link between GPUs of more than 100 TB/s is left out");
    Assembly::Wires wires;
    wires.kind = kind;
    wires.bytes_per_s = {megabytes * kMega, assembly_.origin()};
    const uint32_t any_gpu = gpu_a != gpu_by_id_.end()   ? gpu_a->second
                             : gpu_b != gpu_by_id_.end() ? gpu_b->second
                                                         : 0;
    const GpuModel* model = find_gpu(assembly_.node(any_gpu).model);
    const uint64_t one =
        model != nullptr && model->link_bytes_per_s > 0 ? model->link_bytes_per_s / kMega : 25'000;
    wires.count = static_cast<uint32_t>(std::max<uint64_t>(1, megabytes / one));
    if (gpu_a != gpu_by_id_.end() && gpu_b != gpu_by_id_.end()) {
      assembly_.connect_gpus(gpu_a->second, gpu_b->second, wires);
    } else if (gpu_a != gpu_by_id_.end() && switch_b != switch_by_id_.end()) {
      assembly_.connect_to_switch(gpu_a->second, switch_b->second, wires);
    } else if (switch_a != switch_by_id_.end() && gpu_b != gpu_by_id_.end()) {
      assembly_.connect_to_switch(gpu_b->second, switch_a->second, wires);
    } else if (switch_a != switch_by_id_.end() && switch_b != switch_by_id_.end()) {
      assembly_.connect_switches(switch_a->second, switch_b->second, wires);
    } else {
      assembly_.note("links between GPUs name an object that is not in the file");
    }
  }

  void note_gaps() {
    if (cores_ == 0) assembly_.note("the file shows no cores");
    if (has_cards_)
      assembly_.note("hwloc does not tell the speed of network cards; that of their PCI links is assumed");
    if (linked_to_processor_) {
      assembly_.note(
          "the GPUs' memory belongs to the processors, so links join the two; their speed is unknown, and "
          "only PCI counts");
    }
  }

  Assembly& assembly_;
  bool has_machine_ = false;
  bool has_cards_ = false;
  bool linked_to_processor_ = false;
  size_t caches_ = 0;
  size_t cores_ = 0;
  std::map<const XmlElement*, uint32_t> packages_;
  std::vector<Memory> memories_;
  std::map<uint32_t, uint32_t> seen_thread_;
  std::map<std::string, int32_t> gpu_number_;
  std::map<std::string, uint64_t> gpu_memory_;
  std::map<std::string, uint32_t> gpu_by_id_;        // "OSDev:802", "PCIDev:449"
  std::map<std::string, std::string> switch_by_id_;  // to the bus id
};

}  // namespace

Status add_hwloc(const XmlElement& topology, Assembly& assembly) {
  return Importer(assembly).run(topology);
}

Result<Imported> import_hwloc(const XmlElement& topology, Origin origin) {
  Assembly assembly(origin, "host");
  TUTTI_TRY(add_hwloc(topology, assembly));
  return std::move(assembly).finish();
}

}  // namespace tutti::topology
