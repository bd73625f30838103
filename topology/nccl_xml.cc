#include "topology/nccl_xml.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "topology/pci.h"
#include "topology/units.h"

namespace tutti::topology {
namespace {

constexpr uint64_t kMegabit = 125'000;  // bytes
constexpr uint64_t kNetMbitMax = 100'000'000;

/// A whole number, decimal or after 0x hexadecimal.
std::optional<int64_t> whole(std::string_view text) {
  int64_t value = 0;
  const bool is_hex = text.starts_with("0x");
  if (is_hex) text.remove_prefix(2);
  const auto [stop, failure] =
      std::from_chars(text.data(), text.data() + text.size(), value, is_hex ? 16 : 10);
  if (failure != std::errc() || text.empty() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

class Importer {
 public:
  explicit Importer(Origin origin) : assembly_(origin, "host") {}

  Result<Imported> run(const XmlElement& system) {
    if (system.name != "system") return xml_error(system, "expected <system>, found <" + system.name + ">");
    for (const XmlElement& cpu : system.children) {
      if (cpu.name != "cpu") continue;
      TUTTI_TRY(read_cpu(cpu));
    }
    if (assembly_.node_count() == 1) return xml_error(system, "no <cpu> inside");
    for (const auto& [gpu, element] : gpus_) TUTTI_TRY(read_wires(gpu, *element));
    if (unknown_devices_ > 0) {
      assembly_.note(format("%u PCI devices have no class, so their kind is unknown", unknown_devices_));
    }
    if (guessed_cards_ > 0) {
      assembly_.note(
          format("%u network cards have no speed; that of their PCI link is assumed", guessed_cards_));
    }
    return std::move(assembly_).finish();
  }

 private:
  /// The number of an attribute. Errors: it is no number, or out of range. Missing: `otherwise`.
  static Result<int64_t> number(const XmlElement& element, const char* key, int64_t otherwise, int64_t least,
                                int64_t most) {
    const std::string* text = element.attribute(key);
    if (text == nullptr) return otherwise;
    const auto value = whole(*text);
    if (!value || *value < least || *value > most) {
      return xml_error(element, format("<%s %s=\"%s\">: expected a number from %lld to %lld",
                                       element.name.c_str(), key, as_model(*text).c_str(),
                                       static_cast<long long>(least), static_cast<long long>(most)));
    }
    return *value;
  }

  Status read_cpu(const XmlElement& cpu) {
    assembly_.set_line(cpu.line);
    const auto index = number(cpu, "numaid", -1, -1, 1 << 20);
    if (!index) return index.status();
    Node node;
    node.kind = NodeKind::kNuma;
    node.name = "numa" + std::to_string(std::max<int64_t>(*index, 0));
    node.parent = assembly_.host();
    node.os_index = static_cast<int32_t>(*index);
    node.model = std::string(cpu.value("vendor"));
    const uint32_t numa = assembly_.add(std::move(node));
    for (const XmlElement& child : cpu.children) {
      if (child.name == "pci") TUTTI_TRY(read_pci(child, numa));
      if (child.name == "nic") TUTTI_TRY(read_nic(child, numa, {}, 0));
    }
    return {};
  }

  Status read_pci(const XmlElement& pci, uint32_t parent) {
    assembly_.set_line(pci.line);
    const std::string bus_id = pci_address(pci.value("busid"));
    if (bus_id.empty()) return xml_error(pci, "<pci> without a PCI address as busid");
    if (assembly_.at_bus(bus_id) != kNoNode) return xml_error(pci, "a second device at " + bus_id);
    const auto class_code = number(pci, "class", 0, 0, 0xffffff);
    if (!class_code) return class_code.status();
    const auto lanes = number(pci, "link_width", 0, 0, 255);
    if (!lanes) return lanes.status();
    const auto vendor = number(pci, "vendor", 0x10de, 0, 0xffff);  // early files have none and are NVIDIA's
    if (!vendor) return vendor.status();
    const auto device = number(pci, "device", 0, 0, 0xffff);
    if (!device) return device.status();
    const uint64_t speed = pci_link_speed(pci.value("link_speed"), static_cast<uint32_t>(*lanes));

    const XmlElement* gpu = child_of(pci, "gpu");
    const XmlElement* nic = child_of(pci, "nic");
    const PciRole role = pci_role(static_cast<uint32_t>(*class_code), static_cast<uint32_t>(*vendor));
    if (gpu == nullptr && nic != nullptr) return read_nic(*nic, parent, bus_id, speed);
    if (gpu == nullptr && role == PciRole::kNic) return read_nic(pci, parent, bus_id, speed);

    Node node;
    node.parent = parent;
    node.bus_id = bus_id;
    if (gpu != nullptr || role == PciRole::kGpu) {
      node.kind = NodeKind::kGpu;
      TUTTI_TRY(describe_gpu(node, gpu, static_cast<uint32_t>(*vendor), static_cast<uint32_t>(*device)));
    } else if (role == PciRole::kSwitch || child_of(pci, "pci") != nullptr) {
      node.kind = NodeKind::kPciSwitch;
      node.name = "switch-" + bus_id;
    } else {
      node.kind = NodeKind::kDevice;
      node.name = "device-" + bus_id;
      if (*class_code == 0) ++unknown_devices_;
    }
    const bool is_switch = node.kind == NodeKind::kPciSwitch;
    const uint32_t index = assembly_.add(std::move(node), speed);
    if (gpu != nullptr) gpus_.emplace_back(index, gpu);
    for (const XmlElement& child : pci.children) {
      if (is_switch && child.name == "pci") TUTTI_TRY(read_pci(child, index));
    }
    return {};
  }

  Status describe_gpu(Node& node, const XmlElement* gpu, uint32_t vendor, uint32_t device) {
    int64_t index = gpu_count_;
    if (gpu != nullptr) {
      const auto given = number(*gpu, "dev", index, 0, 1 << 20);
      if (!given) return given.status();
      index = *given;
    }
    ++gpu_count_;
    node.name = "gpu" + std::to_string(index);
    node.os_index = static_cast<int32_t>(index);
    const GpuModel* model = find_gpu(vendor, device);
    if (model != nullptr) {
      node.model = model->name;
    } else if (gpu != nullptr && gpu->attribute("gcn") != nullptr) {
      node.model = as_model("gfx " + *gpu->attribute("gcn"));
    } else if (gpu != nullptr && gpu->attribute("sm") != nullptr) {
      node.model = as_model("sm " + *gpu->attribute("sm"));
    } else if (device != 0) {
      node.model = format("%04x:%04x", vendor, device);
    }
    return {};
  }

  /// `nic` has net elements inside; or the element is a bare PCI device of the class of network cards.
  Status read_nic(const XmlElement& nic, uint32_t parent, const std::string& bus_id, uint64_t pci_speed) {
    assembly_.set_line(nic.line);
    Node node;
    node.kind = NodeKind::kNic;
    node.parent = parent;
    node.bus_id = bus_id;
    node.count = 0;
    for (const XmlElement& net : nic.children) {
      if (net.name != "net") continue;
      if (node.count == 0) node.name = as_name(net.value("name"));
      ++node.count;
      const auto mbit = number(net, "speed", 0, 0, INT64_MAX);
      if (!mbit) return mbit.status();
      if (*mbit > static_cast<int64_t>(kNetMbitMax)) {
        assembly_.note(format("line %zu: %s claims %lld Gbit/s; the speed of its PCI link is assumed",
                              net.line, as_name(net.value("name")).c_str(),
                              static_cast<long long>(*mbit / 1000)));
        continue;
      }
      node.bytes_per_s.value += static_cast<uint64_t>(*mbit) * kMegabit;
      node.bytes_per_s.origin = assembly_.origin();
    }
    if (node.count == 0) {
      node.count = 1;
      node.name = "nic" + std::to_string(nic_count_);
    }
    ++nic_count_;
    if (node.bytes_per_s.value == 0) {
      node.bytes_per_s = {pci_speed > 0 ? pci_speed : uint64_t{1'250'000'000}, Origin::kAssumed};
      ++guessed_cards_;
    }
    assembly_.add(std::move(node), pci_speed);
    return {};
  }

  Status read_wires(uint32_t gpu, const XmlElement& element) {
    const auto sm = number(element, "sm", 0, 0, 10'000);
    if (!sm) return sm.status();
    for (const XmlElement& link : element.children) {
      const bool is_xgmi = link.name == "xgmi";
      if (!is_xgmi && link.name != "nvlink") continue;
      const auto count = number(link, "count", 1, 1, 1024);
      if (!count) return count.status();
      const std::string target = pci_address(link.value("target"));
      if (target.empty()) return xml_error(link, "a link without a PCI address as target");
      Assembly::Wires wires;
      wires.kind = is_xgmi ? LinkKind::kXgmi : LinkKind::kNvlink;
      wires.count = static_cast<uint32_t>(*count);
      const auto gfx = whole(element.value("gcn"));  // some files say "gfx942"
      const uint64_t one = is_xgmi ? xgmi_speed(static_cast<uint32_t>(gfx.value_or(942)))
                                   : nvlink_speed(static_cast<uint32_t>(*sm));
      if (one == 0)
        return xml_error(link, "links between GPUs, but the GPU has no sm attribute of 60 or more");
      wires.bytes_per_s = {one * wires.count, Origin::kAssumed};
      const uint32_t other = assembly_.at_bus(target);
      if (other != kNoNode) {
        assembly_.connect_gpus(gpu, other, wires);
      } else if (link.value("tclass").starts_with("0x0680")) {
        assembly_.connect_to_switch(gpu, target, wires);
      } else {
        assembly_.note(format("line %zu: a link to %s, which is not in the file", link.line, target.c_str()));
      }
    }
    return {};
  }

  static const XmlElement* child_of(const XmlElement& element, std::string_view name) {
    for (const XmlElement& child : element.children) {
      if (child.name == name) return &child;
    }
    return nullptr;
  }

  Assembly assembly_;
  std::vector<std::pair<uint32_t, const XmlElement*>> gpus_;
  int64_t gpu_count_ = 0;
  uint32_t nic_count_ = 0;
  uint32_t unknown_devices_ = 0;
  uint32_t guessed_cards_ = 0;
};

/// Writes one host. PCI switches keep their place; host bridges do not exist in this form.
class Exporter {
 public:
  explicit Exporter(const Graph& graph) : graph_(graph) {}

  std::string run(uint32_t host) {
    out_ = "<system version=\"1\">\n";
    std::vector<uint32_t> numas;
    collect(host, numas);
    if (numas.empty()) {
      write_cpu(host, 0);
    } else {
      // Devices beside all NUMA nodes go to the first one.
      for (const uint32_t numa : numas) write_cpu(numa, graph_.node(numa).os_index);
    }
    return out_ + "</system>\n";
  }

 private:
  void collect(uint32_t node, std::vector<uint32_t>& numas) const {
    if (graph_.node(node).kind == NodeKind::kNuma) numas.push_back(node);
    for (const uint32_t child : graph_.children_of(node)) collect(child, numas);
  }

  void line(size_t depth, const std::string& text) { out_ += std::string(2 * depth, ' ') + text + "\n"; }

  void write_cpu(uint32_t cpu, int32_t index) {
    line(1, format("<cpu numaid=\"%d\" arch=\"x86_64\">", index));
    write_devices(cpu, 2);
    if (written_cpus_++ == 0) write_homeless(cpu);
    line(1, "</cpu>");
  }

  void write_homeless(uint32_t cpu) {
    for (uint32_t above = graph_.node(cpu).parent; above != kNoNode; above = graph_.node(above).parent) {
      for (const uint32_t child : graph_.children_of(above)) {
        const NodeKind kind = graph_.node(child).kind;
        if (kind != NodeKind::kNuma && kind != NodeKind::kPackage) write_node(child, 2);
      }
    }
  }

  void write_devices(uint32_t parent, size_t depth) {
    for (const uint32_t child : graph_.children_of(parent)) write_node(child, depth);
  }

  void write_node(uint32_t index, size_t depth) {
    const Node& node = graph_.node(index);
    if (node.kind == NodeKind::kBridge) return write_devices(index, depth);
    const char* class_code = node.kind == NodeKind::kGpu         ? "0x030200"
                             : node.kind == NodeKind::kNic       ? "0x020000"
                             : node.kind == NodeKind::kPciSwitch ? "0x060400"
                                                                 : nullptr;
    if (class_code == nullptr) return;
    uint64_t speed = 0;
    for (const Link& link : graph_.links_of(index)) {
      if (graph_.edge(link.edge).kind == LinkKind::kPci && graph_.edge(link.edge).b == index) {
        speed = graph_.edge(link.edge).bytes_per_s.value;
      }
    }
    const PciLink pci = pci_link_of(speed);
    std::string tag = "<pci busid=\"" + bus_of(index) + "\" class=\"" + class_code + "\"";
    const GpuModel* model = node.kind == NodeKind::kGpu ? find_gpu(node.model) : nullptr;
    if (model != nullptr) tag += format(" vendor=\"0x%04x\" device=\"0x%04x\"", model->vendor, model->device);
    tag += " link_speed=\"" + std::string(pci.lane_speed) +
           (pci.lane_speed.find('.') == std::string_view::npos ? ".0" : "") +
           format(" GT/s PCIe\" link_width=\"%u\">", pci.lanes);
    line(depth, tag);
    if (node.kind == NodeKind::kGpu) write_gpu(index, model, depth + 1);
    if (node.kind == NodeKind::kNic) write_nic(node, depth + 1);
    write_devices(index, depth + 1);
    line(depth, "</pci>");
  }

  /// The form has no speed of links, only the GPU's generation and a count.
  void write_gpu(uint32_t index, const GpuModel* model, size_t depth) {
    const Node& gpu = graph_.node(index);
    const int32_t number = std::max(gpu.os_index, 0);
    const Generation generation = generation_of(index, model);
    line(depth, format("<gpu dev=\"%d\" sm=\"%u\"", number, generation.number) +
                    (generation.is_amd ? format(" gcn=\"%u\"", generation.number) : "") +
                    format(" rank=\"%d\" gdr=\"1\">", number));
    const uint64_t one = generation.is_amd ? xgmi_speed(generation.number) : nvlink_speed(generation.number);
    for (const Link& link : graph_.links_of(index)) {
      const Edge& edge = graph_.edge(link.edge);
      if (edge.kind != LinkKind::kNvlink && edge.kind != LinkKind::kXgmi) continue;
      const bool to_switch = graph_.node(link.other).kind == NodeKind::kNvswitch;
      const uint64_t count =
          one == 0 ? edge.count : std::max<uint64_t>(1, (edge.bytes_per_s.value + one / 2) / one);
      line(depth + 1, format("<%s target=\"%s\" count=\"%llu\" tclass=\"%s\"/>",
                             edge.kind == LinkKind::kNvlink ? "nvlink" : "xgmi", bus_of(link.other).c_str(),
                             static_cast<unsigned long long>(count), to_switch ? "0x068000" : "0x030200"));
    }
    line(depth, "</gpu>");
  }

  struct Generation {
    uint32_t number;
    bool is_amd;
  };
  /// From the model, or from the name that the importer gives to others, or one whose links are usual today.
  Generation generation_of(uint32_t index, const GpuModel* model) const {
    if (model != nullptr) return {model->generation, model->is_amd()};
    Scanner scanner(graph_.node(index).model);
    const bool is_amd = scanner.take("gfx");
    if (is_amd || scanner.take("sm")) {
      if (const auto number = scanner.number(1, 10'000)) return {static_cast<uint32_t>(*number), is_amd};
    }
    const auto links = graph_.links_of(index);
    const bool has_xgmi = std::any_of(links.begin(), links.end(), [&](const Link& link) {
      return graph_.edge(link.edge).kind == LinkKind::kXgmi;
    });
    return has_xgmi ? Generation{942, true} : Generation{90, false};
  }

  void write_nic(const Node& node, size_t depth) {
    line(depth, "<nic>");
    for (uint32_t port = 0; port < node.count; ++port) {
      const std::string suffix = port == 0 ? "" : ".port" + std::to_string(port + 1);
      line(depth + 1,
           format("<net name=\"%s%s\" dev=\"%u\" speed=\"%llu\" port=\"%u\" gdr=\"1\"/>", node.name.c_str(),
                  suffix.c_str(), net_count_++,
                  static_cast<unsigned long long>(node.bytes_per_s.value / node.count / kMegabit), port + 1));
    }
    line(depth, "</nic>");
  }

  /// A node without an address, which the importer would refuse, gets one of a domain that no machine has.
  std::string bus_of(uint32_t index) const {
    const std::string known = pci_address(graph_.node(index).bus_id);
    return known.empty() ? format("ffff:%02x:%02x.0", index >> 5 & 0xff, index & 0x1f) : known;
  }

  const Graph& graph_;
  std::string out_;
  uint32_t net_count_ = 0;
  uint32_t written_cpus_ = 0;
};

}  // namespace

Result<Imported> import_nccl(const XmlElement& system, Origin origin) {
  return Importer(origin).run(system);
}

Result<std::string> export_nccl(const Graph& graph) {
  const std::vector<uint32_t> hosts = graph.of_kind(NodeKind::kHost);
  if (hosts.size() != 1) {
    return Status(Code::kInvalidArgument,
                  format("NCCL's form holds one host, the graph has %zu", hosts.size()));
  }
  return Exporter(graph).run(hosts[0]);
}

}  // namespace tutti::topology
