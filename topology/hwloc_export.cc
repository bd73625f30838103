// Writes a graph as hwloc 2's XML.
//
// hwloc needs what a graph does not have: sets of processors, of which a graph knows each core's first one;
// groups around NUMA nodes where a package has several; PCI addresses; and the ports of PCI switches.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "topology/hwloc_xml.h"
#include "topology/pci.h"

namespace tutti::topology {
namespace {

bool is_device(NodeKind kind) {
  return kind == NodeKind::kGpu || kind == NodeKind::kNic || kind == NodeKind::kPciSwitch;
}

/// A set of numbers, in hwloc's words of 32 bits.
std::string bits_text(std::span<const uint32_t> numbers) {
  std::vector<uint32_t> words(1, 0);
  for (const uint32_t number : numbers) {
    if (number / 32 >= words.size()) words.resize(number / 32 + 1, 0);
    words[number / 32] |= 1u << number % 32;
  }
  std::string text;
  for (size_t word = words.size(); word-- > 0;)
    text += (text.empty() ? "" : ",") + format("0x%08x", words[word]);
  return text;
}

class Exporter {
 public:
  explicit Exporter(const Graph& graph) : graph_(graph) {}

  std::string run(uint32_t host) {
    number_parts(host);
    number_threads();
    number_memories();
    out_ =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
        "<topology version=\"2.0\">\n";
    open(1, "Machine", host, " os_index=\"0\"");
    if (!graph_.node(host).model.empty()) write_info(2, "DMIProductName", graph_.node(host).model);
    write_parts(host, 2);
    write_wired_switches(2);
    close(1);
    write_wires();
    return out_ + "</topology>\n";
  }

 private:
  struct Range {
    uint32_t first = 0;
    uint32_t end = 0;
  };

  /// Threads of cores and NUMA nodes inside each node, in the order of writing. A machine without
  /// cores has one thread for each NUMA node, which no object shows.
  void number_parts(uint32_t node) {
    Range& threads = threads_[node];
    Range& memories = memories_[node];
    threads.first = thread_count_;
    memories.first = memory_count_;
    const Node& part = graph_.node(node);
    const bool has_cores = !graph_.of_kind(NodeKind::kCore).empty();
    if (part.kind == NodeKind::kCore) thread_count_ += part.count;
    if (part.kind == NodeKind::kNuma && !has_cores) ++thread_count_;
    if (part.kind == NodeKind::kNuma) ++memory_count_;
    for (const uint32_t child : graph_.children_of(node)) number_parts(child);
    threads_[node].end = thread_count_;
    memories_[node].end = memory_count_;
  }

  /// The system's numbers of all nodes of a kind. Empty if two nodes have one number, or if a number is
  /// unknown or too large for sets.
  std::set<uint32_t> system_numbers(NodeKind kind, int32_t numbers_max) const {
    std::set<uint32_t> numbers;
    for (const uint32_t node : graph_.of_kind(kind)) {
      const int32_t number = graph_.node(node).os_index;
      const bool is_usable = number >= 0 && number < numbers_max;
      if (!is_usable || !numbers.insert(static_cast<uint32_t>(number)).second) return {};
    }
    return numbers;
  }

  /// A core's first thread has the core's number, and the others have numbers that are left. Without usable
  /// numbers of the system, threads are numbered in the order of writing.
  void number_threads() {
    thread_numbers_.resize(thread_count_);
    std::iota(thread_numbers_.begin(), thread_numbers_.end(), 0u);
    const std::set<uint32_t> taken = system_numbers(NodeKind::kCore, 1 << 16);
    if (taken.empty()) return;
    uint32_t left = 0;
    for (const uint32_t core : graph_.of_kind(NodeKind::kCore)) {
      const Range& threads = threads_[core];
      for (uint32_t thread = threads.first; thread < threads.end; ++thread) {
        while (taken.contains(left)) ++left;
        const bool is_first = thread == threads.first;
        thread_numbers_[thread] = is_first ? static_cast<uint32_t>(graph_.node(core).os_index) : left++;
      }
    }
  }

  /// As threads are: some systems leave out numbers of NUMA nodes.
  void number_memories() {
    memory_numbers_.resize(memory_count_);
    std::iota(memory_numbers_.begin(), memory_numbers_.end(), 0u);
    // Linux has at most 1024 of them.
    if (system_numbers(NodeKind::kNuma, 1 << 10).empty()) return;
    for (const uint32_t numa : graph_.of_kind(NodeKind::kNuma))
      memory_numbers_[memories_[numa].first] = static_cast<uint32_t>(graph_.node(numa).os_index);
  }

  static std::span<const uint32_t> part_of(const std::vector<uint32_t>& numbers, const Range& range) {
    return std::span(numbers).subspan(range.first, range.end - range.first);
  }

  void line(size_t depth, const std::string& text) { out_ += std::string(2 * depth, ' ') + text + "\n"; }
  void close(size_t depth) { line(depth, "</object>"); }
  void write_info(size_t depth, const char* name, const std::string& value) {
    line(depth, format("<info name=\"%s\" value=\"", name) + xml_escaped(value) + "\"/>");
  }

  /// An object with the processors of `node`.
  void open(size_t depth, const char* type, uint32_t node, const std::string& more, const char* end = ">") {
    const std::string threads = bits_text(part_of(thread_numbers_, threads_[node]));
    // Parts below a NUMA node belong to that node.
    const uint32_t numa = graph_.around(node, NodeKind::kNuma);
    const Range& inside = memories_[numa == kNoNode ? node : numa];
    const std::string memories = bits_text(part_of(memory_numbers_, inside));
    std::string text =
        format("<object type=\"%s\"", type) + more + " gp_index=\"" + std::to_string(++objects_) + "\"";
    for (const char* prefix : {"", "complete_"}) {
      text += format(" %scpuset=\"%s\" %snodeset=\"%s\"", prefix, threads.c_str(), prefix, memories.c_str());
    }
    if (graph_.node(node).kind == NodeKind::kHost) {
      text += " allowed_cpuset=\"" + threads + "\" allowed_nodeset=\"" + memories + "\"";
    }
    line(depth, text + end);
  }

  static std::string os_index(const Node& node) {
    return node.os_index < 0 ? "" : format(" os_index=\"%d\"", node.os_index);
  }

  void write_parts(uint32_t parent, size_t depth) {
    const auto children = graph_.children_of(parent);
    const auto numas = std::count_if(children.begin(), children.end(), [&](uint32_t child) {
      return graph_.node(child).kind == NodeKind::kNuma;
    });
    for (const uint32_t child : children) {
      const Node& node = graph_.node(child);
      switch (node.kind) {
        case NodeKind::kNuma: write_numa(child, depth, numas > 1); break;
        case NodeKind::kPackage: write_part(child, "Package", os_index(node), depth); break;
        case NodeKind::kL3:
          write_part(child, "L3Cache",
                     " cache_size=\"0\" depth=\"3\" cache_linesize=\"64\" cache_associativity=\"0\" "
                     "cache_type=\"0\"",
                     depth);
          break;
        case NodeKind::kCore: write_core(child, depth); break;
        case NodeKind::kBridge: write_host_bridge(child, depth); break;
        default: break;
      }
    }
    write_bare_devices(children, depth);
  }

  void write_part(uint32_t index, const char* type, const std::string& more, size_t depth) {
    open(depth, type, index, more);
    const Node& node = graph_.node(index);
    if (node.kind == NodeKind::kPackage && !node.model.empty()) write_info(depth + 1, "CPUModel", node.model);
    write_parts(index, depth + 1);
    close(depth);
  }

  /// A NUMA node is a leaf beside the parts that it serves. Where there are several, each gets a group.
  void write_numa(uint32_t index, size_t depth, bool in_group) {
    const Node& node = graph_.node(index);
    if (in_group) open(depth, "Group", index, " kind=\"0\" subkind=\"0\"");
    const size_t inner = depth + (in_group ? 1 : 0);
    // hwloc finds memory by this number.
    const std::string number = format(" os_index=\"%u\"", memory_numbers_[memories_[index].first]);
    open(inner, "NUMANode", index, number + " local_memory=\"" + std::to_string(node.memory_bytes) + "\"",
         "/>");
    write_parts(index, inner);
    if (in_group) close(depth);
  }

  void write_core(uint32_t index, size_t depth) {
    const Node& node = graph_.node(index);
    open(depth, "Core", index, os_index(node));
    const Range all = threads_[index];
    for (uint32_t thread = all.first; thread < all.end; ++thread) {
      threads_[index] = {thread, thread + 1};
      open(depth + 1, "PU", index, format(" os_index=\"%u\"", thread_numbers_[thread]), "/>");
    }
    threads_[index] = all;
    close(depth);
  }

  /// The address of a device, or one that no other device has. A graph may hold texts that are no addresses.
  std::string bus_of(uint32_t index) const {
    const std::string known = pci_address(graph_.node(index).bus_id);
    return known.empty() ? format("%04x:%02x:%02x.0", 0xa000 + (index >> 12), index >> 4 & 0xff, index & 0xf)
                         : known;
  }

  void open_bridge(size_t depth, size_t level, const std::string& bus, uint64_t speed) {
    std::string text = "<object type=\"Bridge\" gp_index=\"" + std::to_string(++objects_) + "\"";
    text += level == 0 ? " bridge_type=\"0-1\"" : " bridge_type=\"1-1\"";
    const size_t colon = bus.find(':');
    text += format(" depth=\"%zu\" bridge_pci=\"%s:[%s-ff]\"", level, bus.substr(0, colon).c_str(),
                   bus.substr(colon + 1, 2).c_str());
    if (level > 0) {
      text += " pci_busid=\"" + bus + "\" pci_type=\"0604 [0000:0000] [0000:0000] 00\"" + speed_text(speed);
    }
    line(depth, text + ">");
  }

  static std::string speed_text(uint64_t bytes_per_s) {
    return format(" pci_link_speed=\"%llu.%06llu\"",
                  static_cast<unsigned long long>(bytes_per_s / 1'000'000'000),
                  static_cast<unsigned long long>(bytes_per_s / 1000 % 1'000'000));
  }

  uint64_t speed_up(uint32_t index) const {
    for (const Link& link : graph_.links_of(index)) {
      const Edge& edge = graph_.edge(link.edge);
      if (edge.kind == LinkKind::kPci && edge.b == index && edge.bytes_per_s.origin != Origin::kAssumed) {
        return edge.bytes_per_s.value;
      }
    }
    return 0;
  }

  void write_host_bridge(uint32_t index, size_t depth) {
    const auto children = graph_.children_of(index);
    open_bridge(depth, 0, children.empty() ? "0000:00:00.0" : bus_of(children[0]), 0);
    for (const uint32_t child : children) write_port(child, depth + 1, 1);
    close(depth);
  }

  /// Devices without a host bridge share one: a graph without bridges does not tell them apart.
  void write_bare_devices(std::span<const uint32_t> children, size_t depth) {
    bool is_open = false;
    for (const uint32_t child : children) {
      if (!is_device(graph_.node(child).kind)) continue;
      if (!is_open) open_bridge(depth, 0, bus_of(child), 0);
      is_open = true;
      write_port(child, depth + 1, 1);
    }
    if (is_open) close(depth);
  }

  /// The port above a device or switch, on an odd level, and below it the device or the switch's own port.
  void write_port(uint32_t index, size_t depth, size_t level) {
    const Node& node = graph_.node(index);
    if (!is_device(node.kind)) return;
    const std::string bus = bus_of(index);
    // Ports have no node, so they have no address. hwloc only prints it.
    std::string port = bus;
    port.back() = port.back() == '7' ? '6' : '7';
    open_bridge(depth, level, port, speed_up(index));
    if (node.kind == NodeKind::kPciSwitch) {
      open_bridge(depth + 1, level + 1, bus, speed_up(index));
      for (const uint32_t child : graph_.children_of(index)) write_port(child, depth + 2, level + 2);
      close(depth + 1);
    } else {
      write_device(index, depth + 1);
    }
    close(depth);
  }

  void write_device(uint32_t index, size_t depth) {
    const Node& node = graph_.node(index);
    const bool is_gpu = node.kind == NodeKind::kGpu;
    const GpuModel* model = is_gpu ? find_gpu(node.model) : nullptr;
    const uint32_t vendor = model != nullptr ? model->vendor : is_gpu ? 0x10de : 0;
    const uint32_t device = model != nullptr ? model->device : 0;
    line(depth, "<object type=\"PCIDev\" gp_index=\"" + std::to_string(++objects_) + "\" pci_busid=\"" +
                    bus_of(index) +
                    format("\" pci_type=\"%s [%04x:%04x] [0000:0000] 00\"", is_gpu ? "0302" : "0200", vendor,
                           device) +
                    speed_text(speed_up(index)) + ">");
    if (!is_gpu && !node.model.empty()) write_info(depth + 1, "PCIDevice", node.model);
    const uint32_t ports = is_gpu ? 1 : node.count;
    for (uint32_t port = 0; port < ports; ++port) {
      const std::string name = is_gpu ? format("nvml%d", std::max(node.os_index, 0))
                                      : node.name + (port == 0 ? "" : ".port" + std::to_string(port + 1));
      line(depth + 1, "<object type=\"OSDev\" gp_index=\"" + std::to_string(++objects_) + "\" name=\"" +
                          name + (is_gpu ? "\" subtype=\"NVML\" osdev_type=\"1\">" : "\" osdev_type=\"3\">"));
      if (is_gpu) {
        object_of_[index] = "OSDev:" + std::to_string(objects_);
        if (!node.model.empty()) write_info(depth + 2, "GPUModel", node.model);
      }
      close(depth + 1);
    }
    close(depth);
  }

  /// Switches between GPUs are PCI devices for hwloc.
  void write_wired_switches(size_t depth) {
    const std::vector<uint32_t> switches = graph_.of_kind(NodeKind::kNvswitch);
    if (switches.empty()) return;
    open_bridge(depth, 0, bus_of(switches[0]), 0);
    for (const uint32_t index : switches) {
      line(depth + 1, "<object type=\"PCIDev\" gp_index=\"" + std::to_string(++objects_) +
                          "\" subtype=\"NVSwitch\" pci_busid=\"" + bus_of(index) +
                          "\" pci_type=\"0680 [10de:0000] [0000:0000] 00\" pci_link_speed=\"0.000000\"/>");
      object_of_[index] = "PCIDev:" + std::to_string(objects_);
    }
    close(depth);
  }

  void write_wires() {
    std::vector<std::pair<uint32_t, std::string>> objects(object_of_.begin(), object_of_.end());
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> megabytes;
    for (const Edge& edge : graph_.edges()) {
      if (edge.kind != LinkKind::kNvlink && edge.kind != LinkKind::kXgmi) continue;
      megabytes[{edge.a, edge.b}] = megabytes[{edge.b, edge.a}] = edge.bytes_per_s.value / 1'000'000;
    }
    if (megabytes.empty()) return;
    line(1, format("<distances2hetero nbobjs=\"%zu\" kind=\"25\" name=\"NVLinkBandwidth\">", objects.size()));
    const auto write_list = [&](const char* tag, const std::string& list) {
      line(2, format("<%s length=\"%zu\">", tag, list.size()) + list + format("</%s>", tag));
    };
    std::string names;
    for (const auto& [node, name] : objects) names += name + " ";
    write_list("indexes", names);
    for (const auto& [row, row_name] : objects) {
      std::string values;
      for (const auto& [column, column_name] : objects) {
        const auto known = megabytes.find({row, column});
        values += std::to_string(known == megabytes.end() ? 0 : known->second) + " ";
      }
      write_list("u64values", values);
    }
    line(1, "</distances2hetero>");
  }

  const Graph& graph_;
  std::string out_;
  uint64_t objects_ = 0;
  uint32_t thread_count_ = 0;
  uint32_t memory_count_ = 0;
  std::map<uint32_t, Range> threads_;
  std::map<uint32_t, Range> memories_;
  /// The system's, by place in the order of writing.
  std::vector<uint32_t> thread_numbers_;
  std::vector<uint32_t> memory_numbers_;
  std::map<uint32_t, std::string> object_of_;
};

}  // namespace

Result<std::string> export_hwloc(const Graph& graph) {
  const std::vector<uint32_t> hosts = graph.of_kind(NodeKind::kHost);
  if (hosts.size() != 1) {
    return Status(Code::kInvalidArgument,
                  format("hwloc's form holds one host, the graph has %zu", hosts.size()));
  }
  if (graph.nodes().size() > 1u << 15) {
    return Status(Code::kInvalidArgument,
                  format("hwloc's form: %zu nodes are too many", graph.nodes().size()));
  }
  uint64_t threads = 0;
  for (const uint32_t core : graph.of_kind(NodeKind::kCore)) threads += graph.node(core).count;
  // Each thread is written with sets of all of them, which take most of a gigabyte at that number.
  if (threads > 1u << 15) {
    return Status(Code::kInvalidArgument, format("hwloc's form: %llu threads of cores are too many",
                                                 static_cast<unsigned long long>(threads)));
  }
  return Exporter(graph).run(hosts[0]);
}

}  // namespace tutti::topology
