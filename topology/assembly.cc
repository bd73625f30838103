#include "topology/assembly.h"

#include <algorithm>
#include <utility>

#include "topology/assumed.h"
#include "topology/pci.h"
#include "topology/units.h"

namespace tutti::topology {
namespace {

bool is_pci_part(NodeKind kind) {
  return kind == NodeKind::kBridge || kind == NodeKind::kPciSwitch || kind == NodeKind::kGpu ||
         kind == NodeKind::kNic || kind == NodeKind::kDevice;
}

}  // namespace

Edge default_link(NodeKind child, NodeKind parent) {
  Edge edge;
  switch (child) {
    case NodeKind::kCore:
      edge.bytes_per_s = assumed::kCoreSpeed;
      edge.latency_ns = assumed::kCoreLatency;
      break;
    case NodeKind::kL3:
      edge.bytes_per_s = assumed::kL3Speed;
      edge.latency_ns = assumed::kL3Latency;
      break;
    case NodeKind::kBridge:
      edge.kind = LinkKind::kPci;
      edge.bytes_per_s = assumed::kNumaSpeed;
      edge.latency_ns = assumed::kNumaLatency;
      break;
    default:
      edge.bytes_per_s = assumed::kNumaSpeed;
      edge.latency_ns = assumed::kNumaLatency;
      break;
  }
  if (child != NodeKind::kBridge && is_pci_part(child)) {
    edge.kind = LinkKind::kPci;
    edge.bytes_per_s = assumed::kPciSpeed;
    edge.latency_ns = assumed::kPciLatency;
  }
  if (parent == NodeKind::kFabric) {
    edge.kind = LinkKind::kNetwork;
    edge.latency_ns = assumed::kNetworkLatency;
  }
  return edge;
}

Assembly::Assembly(Origin origin, std::string_view host_name) : origin_(origin) {
  Node host;
  host.kind = NodeKind::kHost;
  host.name = as_name(host_name);
  const auto added = builder_.add(std::move(host));
  if (!added) status_ = added.status();
}

void Assembly::note(const std::string& text) {
  if (std::find(notes_.begin(), notes_.end(), text) != notes_.end()) return;
  if (notes_.size() < kNotesMax) {
    notes_.push_back(text);
  } else {
    ++notes_left_out_;
  }
}

uint32_t Assembly::add(Node node, uint64_t bytes_per_s) {
  if (!status_) return host();
  node.name = builder_.unused_name(node.name);
  node.model = as_model(node.model);
  const NodeKind kind = node.kind;
  const std::string bus_id = node.bus_id;
  uint32_t above = node.parent;
  const auto added = builder_.add(std::move(node));
  if (!added) {
    refuse(added.status());
    return host();
  }
  if (!bus_id.empty()) at_bus_.emplace(bus_id, *added);
  if (kind == NodeKind::kPackage) first_package_ = std::min(first_package_, *added);
  if (kind == NodeKind::kNuma) first_numa_ = std::min(first_numa_, *added);
  if (above == host() && is_pci_part(kind)) {
    // Its source does not say where the device lies.
    above = first_package_ != kNoNode ? first_package_ : first_numa_;
    if (above != kNoNode) note("the processor of some PCI devices is unknown; the first one is assumed");
  }
  if (above == kNoNode || above == host()) return *added;
  Edge edge = default_link(kind, builder_.nodes()[above].kind);
  edge.a = above;
  edge.b = *added;
  if (bytes_per_s > 0) edge.bytes_per_s = {bytes_per_s, origin_};
  connect(edge);
  return *added;
}

void Assembly::refuse(const Status& reason) {
  const std::string prefix = line_ > 0 ? "line " + std::to_string(line_) + ": " : "";
  status_ = {reason.code(), prefix + std::string(reason.text())};
}

void Assembly::connect(const Edge& edge) {
  if (!status_) return;
  const Status connected = builder_.connect(edge);
  if (!connected) refuse(connected);
}

uint32_t Assembly::at_bus(std::string_view bus_id) const {
  const auto found = at_bus_.find(bus_id);
  return found == at_bus_.end() ? kNoNode : found->second;
}

void Assembly::set_link_speed(uint32_t node, const Fact& fact) {
  const uint32_t parent = builder_.nodes()[node].parent;
  if (parent == kNoNode || fact.value == 0) return;
  Edge* edge = builder_.edge_between(node, parent, LinkKind::kPci);
  if (edge != nullptr && fact.origin >= edge->bytes_per_s.origin) edge->bytes_per_s = fact;
}

void Assembly::keep_larger(Wires& known, const Wires& wires) {
  if (wires.bytes_per_s.value > known.bytes_per_s.value) known = wires;
}

void Assembly::connect_gpus(uint32_t a, uint32_t b, const Wires& wires) {
  if (a == b) return;
  keep_larger(gpu_wires_[{std::min(a, b), std::max(a, b)}], wires);
}

void Assembly::connect_to_switch(uint32_t gpu, const std::string& switch_bus_id, const Wires& wires) {
  keep_larger(switch_wires_[switch_bus_id][gpu], wires);
}

void Assembly::connect_switches(const std::string& a, const std::string& b, const Wires& wires) {
  if (a != b) keep_larger(trunks_[{std::min(a, b), std::max(a, b)}], wires);
}

Edge Assembly::wire_edge(uint32_t a, uint32_t b, const Wires& wires) const {
  Edge edge;
  edge.a = a;
  edge.b = b;
  edge.kind = wires.kind;
  edge.count = std::max(wires.count, 1u);
  edge.bytes_per_s = wires.bytes_per_s;
  edge.latency_ns = wires.kind == LinkKind::kXgmi ? assumed::kXgmiLatency : assumed::kNvlinkLatency;
  return edge;
}

/// One node for all switches that join the same GPUs: bytes between two GPUs use them all at once.
void Assembly::fold_switches() {
  std::map<std::set<uint32_t>, std::vector<std::string>> groups;
  for (const auto& [bus_id, gpus] : switch_wires_) {
    std::set<uint32_t> joined;
    for (const auto& [gpu, wires] : gpus) joined.insert(gpu);
    groups[joined].push_back(bus_id);
  }
  std::map<std::string, uint32_t> node_of;
  size_t number = 0;
  for (const auto& [joined, members] : groups) {
    Node node;
    node.kind = NodeKind::kNvswitch;
    node.name = groups.size() == 1 ? "nvswitch" : "nvswitch" + std::to_string(number++);
    node.parent = host();
    node.count = static_cast<uint32_t>(members.size());
    const uint32_t index = add(std::move(node));
    std::map<uint32_t, Wires> sums;
    for (const std::string& bus_id : members) {
      node_of[bus_id] = index;
      for (const auto& [gpu, wires] : switch_wires_[bus_id]) {
        Wires& sum = sums.try_emplace(gpu, Wires{wires.kind, 0, {0, wires.bytes_per_s.origin}}).first->second;
        sum.count += wires.count;
        sum.bytes_per_s.value += wires.bytes_per_s.value;
      }
    }
    for (const auto& [gpu, wires] : sums) connect(wire_edge(gpu, index, wires));
  }
  std::map<Pair, Wires> sums;
  for (const auto& [ends, wires] : trunks_) {
    const auto a = node_of.find(ends.first);
    const auto b = node_of.find(ends.second);
    if (a == node_of.end() || b == node_of.end() || a->second == b->second) continue;
    const Pair pair = {std::min(a->second, b->second), std::max(a->second, b->second)};
    Wires& sum = sums.try_emplace(pair, Wires{wires.kind, 0, {0, wires.bytes_per_s.origin}}).first->second;
    sum.count += wires.count;
    sum.bytes_per_s.value += wires.bytes_per_s.value;
  }
  for (const auto& [pair, wires] : sums) connect(wire_edge(pair.first, pair.second, wires));
}

/// Every two processors are joined: sources do not tell how.
void Assembly::join_processors() {
  std::vector<uint32_t> processors;
  for (const NodeKind kind : {NodeKind::kPackage, NodeKind::kNuma}) {
    for (uint32_t i = 0; processors.size() < 64 && i < builder_.nodes().size(); ++i) {
      if (builder_.nodes()[i].kind == kind && builder_.nodes()[i].parent == host()) processors.push_back(i);
    }
  }
  for (size_t i = 0; i < processors.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      Edge edge;
      edge.a = processors[j];
      edge.b = processors[i];
      edge.kind = LinkKind::kPackages;
      edge.bytes_per_s = assumed::kPackagesSpeed;
      edge.latency_ns = assumed::kPackagesLatency;
      connect(edge);
    }
  }
}

/// Notes what looks wrong in the source.
void Assembly::check_speeds() {
  bool has_wires = false;
  uint32_t linked_gpus = 0;
  for (const Node& node : builder_.nodes()) {
    if (node.kind != NodeKind::kGpu) continue;
    const GpuModel* model = find_gpu(node.model);
    if (model != nullptr && model->always_linked) ++linked_gpus;
  }
  std::string slow_example;
  size_t slow_switches = 0;
  size_t gpu_switches = 0;
  bool has_trunks = false;
  std::vector<uint64_t> widest_below(builder_.nodes().size(), 0);
  for (const Edge& edge : builder_.edges()) {
    if (edge.kind == LinkKind::kPci)
      widest_below[edge.a] = std::max(widest_below[edge.a], edge.bytes_per_s.value);
  }
  for (const Edge& edge : builder_.edges()) {
    const Node& above = builder_.nodes()[edge.a];
    const Node& below = builder_.nodes()[edge.b];
    has_wires |= edge.kind == LinkKind::kNvlink || edge.kind == LinkKind::kXgmi;
    has_trunks |= above.kind == NodeKind::kNvswitch && below.kind == NodeKind::kNvswitch;
    if (edge.kind != LinkKind::kPci || below.kind != NodeKind::kPciSwitch) continue;
    const uint64_t widest = widest_below[edge.b];
    if (edge.bytes_per_s.value >= widest || edge.bytes_per_s.origin == Origin::kAssumed) continue;
    if (slow_switches++ == 0) {
      slow_example = "as " + below.name + " with " + round_speed(edge.bytes_per_s.value) + " above " +
                     round_speed(widest);
    }
  }
  for (const Node& node : builder_.nodes()) gpu_switches += node.kind == NodeKind::kNvswitch ? 1 : 0;
  if (slow_switches > 0) {
    note(format("%zu PCI switches have a slower link up than below, %s; some switches report this wrongly",
                slow_switches, slow_example.c_str()));
  }
  if (gpu_switches > 1 && !has_trunks) note("the switches between GPUs form groups that nothing joins");
  if (linked_gpus > 1 && !has_wires) {
    note("no links between GPUs are known, although GPUs of this model have them; only PCI counts");
  }
}

Result<Imported> Assembly::finish() && {
  fold_switches();
  for (const auto& [pair, wires] : gpu_wires_) connect(wire_edge(pair.first, pair.second, wires));
  join_processors();
  if (!status_) return status_;
  check_speeds();
  if (notes_left_out_ > 0) notes_.push_back(format("and %zu more notes", notes_left_out_));
  return Imported{std::move(builder_).finish(), std::move(notes_)};
}

}  // namespace tutti::topology
