#include "topology/graph.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/hash.h"

namespace tutti::topology {
namespace {

constexpr std::array<std::string_view, kNodeKinds> kNodeNames = {"host",     "package", "numa",   "l3",
                                                                 "core",     "bridge",  "switch", "gpu",
                                                                 "nvswitch", "nic",     "device", "fabric"};
constexpr std::array<std::string_view, kLinkKinds> kLinkNames = {"inside", "packages", "pci",
                                                                 "nvlink", "xgmi",     "network"};
constexpr std::array<std::string_view, kOrigins> kOriginNames = {"assumed", "file", "hwloc",
                                                                 "sysfs",   "nvml", "measured"};
constexpr size_t kModelBytesMax = 96;
constexpr uint32_t kDepthMax = 64;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_.:+/-").find(c) != std::string_view::npos;
}

bool is_model_character(char c) {
  return c >= ' ' && c <= '~' && c != '"' && c != '\\';
}

Status refused(const std::string& text) {
  return {Code::kInvalidArgument, text};
}

std::pair<uint64_t, LinkKind> key_of(uint32_t a, uint32_t b, LinkKind kind) {
  return {uint64_t{std::min(a, b)} << 32 | std::max(a, b), kind};
}

/// Only what holds parts may be a parent.
bool can_hold(NodeKind parent, NodeKind child) {
  switch (parent) {
    case NodeKind::kCore:
    case NodeKind::kGpu:
    case NodeKind::kNvswitch:
    case NodeKind::kNic:
    case NodeKind::kDevice: return false;
    case NodeKind::kFabric: return child == NodeKind::kFabric || child == NodeKind::kHost;
    default: return child != NodeKind::kHost && child != NodeKind::kFabric;
  }
}

class Hasher {
 public:
  void number(uint64_t value) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(value >> (8 * i));
    hash_ = hash_bytes(bytes, sizeof bytes, hash_);
  }
  void text(std::string_view value) {
    number(value.size());
    hash_ = hash_bytes(value.data(), value.size(), hash_);
  }
  void fact(const Fact& fact) {
    number(fact.value);
    number(static_cast<uint64_t>(fact.origin) << 32 | fact.spread_percent);
  }
  uint64_t result() const { return hash_; }

 private:
  uint64_t hash_ = kHashSeed;
};

/// Groups indices by an owner: counts, then prefix sums, then places. `owner(i)` is below `owner_count`.
template <class Owner>
std::vector<uint32_t> begins_of(size_t count, size_t owner_count, const Owner& owner) {
  std::vector<uint32_t> begins(owner_count + 1, 0);
  for (size_t i = 0; i < count; ++i) ++begins[owner(i) + 1];
  for (size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
  return begins;
}

}  // namespace

std::string_view kind_name(NodeKind kind) {
  return kNodeNames[static_cast<size_t>(kind)];
}
std::string_view kind_name(LinkKind kind) {
  return kLinkNames[static_cast<size_t>(kind)];
}
std::string_view origin_name(Origin origin) {
  return kOriginNames[static_cast<size_t>(origin)];
}

std::string as_name(std::string_view name) {
  std::string result(name.substr(0, kNameBytesMax));
  for (char& c : result) {
    if (!is_name_character(c)) c = '_';
  }
  return result.empty() ? "unnamed" : result;
}

std::string as_model(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, kModelBytesMax)) {
    if (is_model_character(c)) result += c;
  }
  while (!result.empty() && result.back() == ' ') result.pop_back();
  return result;
}

std::span<const Link> Graph::links_of(uint32_t node) const {
  return std::span(links_).subspan(links_begin_[node], links_begin_[node + 1] - links_begin_[node]);
}

std::span<const uint32_t> Graph::children_of(uint32_t node) const {
  const uint32_t owner = node + 1;  // kNoNode becomes 0
  return std::span(children_).subspan(children_begin_[owner],
                                      children_begin_[owner + 1] - children_begin_[owner]);
}

std::vector<uint32_t> Graph::of_kind(NodeKind kind) const {
  std::vector<uint32_t> result;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].kind == kind) result.push_back(i);
  }
  return result;
}

uint32_t Graph::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? kNoNode : found->second;
}

uint32_t Graph::around(uint32_t node, NodeKind kind) const {
  while (node != kNoNode && nodes_[node].kind != kind) node = nodes_[node].parent;
  return node;
}

uint64_t Graph::digest() const {
  Hasher hasher;
  hasher.number(nodes_.size());
  for (const Node& node : nodes_) {
    hasher.number(static_cast<uint64_t>(node.kind) << 32 | node.parent);
    hasher.text(node.name);
    hasher.text(node.bus_id);
    hasher.text(node.model);
    hasher.number(uint64_t{static_cast<uint32_t>(node.os_index)} << 32 | node.count);
    hasher.number(node.memory_bytes);
    hasher.fact(node.bytes_per_s);
  }
  hasher.number(edges_.size());
  for (const Edge& edge : edges_) {
    hasher.number(uint64_t{edge.a} << 32 | edge.b);
    hasher.number(static_cast<uint64_t>(edge.kind) << 32 | edge.count);
    hasher.fact(edge.bytes_per_s);
    hasher.fact(edge.latency_ns);
  }
  for (const auto& curve : slices_.curves) {
    hasher.number(curve.size());
    for (const SlicePoint& point : curve) {
      hasher.number(point.bytes);
      hasher.fact(point.ns);
    }
  }
  for (const auto& [name, field] : kSliceFacts) hasher.fact(slices_.*field);
  return hasher.result();
}

GraphBuilder::GraphBuilder(const Graph& start)
    : nodes_(start.nodes_),
      edges_(start.edges_),
      slices_(start.slices_),
      calls_(start.calls_),
      by_name_(start.by_name_) {
  for (uint32_t i = 0; i < edges_.size(); ++i) {
    by_ends_.emplace(key_of(edges_[i].a, edges_[i].b, edges_[i].kind), i);
  }
}

Result<uint32_t> GraphBuilder::add(Node node) {
  const std::string subject = std::string(kind_name(node.kind)) + " '" + as_name(node.name) + "'";
  if (nodes_.size() >= kNodesMax) return refused(format("more than %u nodes", kNodesMax));
  if (node.name.empty() || node.name.size() > kNameBytesMax ||
      !std::all_of(node.name.begin(), node.name.end(), is_name_character)) {
    return refused(subject + ": a name has 1 to 64 letters, digits and _ . : + / -");
  }
  if (by_name_.contains(node.name)) return refused(subject + ": the name is taken");
  if (node.bus_id.size() > kNameBytesMax ||
      !std::all_of(node.bus_id.begin(), node.bus_id.end(), is_name_character)) {
    return refused(subject + ": a bus id has letters, digits and _ . : + / -");
  }
  if (node.model.size() > kModelBytesMax ||
      !std::all_of(node.model.begin(), node.model.end(), is_model_character)) {
    return refused(subject + ": a model has at most 96 printable characters and no quotes");
  }
  if (node.count == 0) return refused(subject + ": the count is 0");
  if (node.parent != kNoNode) {
    if (node.parent >= nodes_.size()) return refused(subject + ": the parent does not exist");
    const Node& parent = nodes_[node.parent];
    if (!can_hold(parent.kind, node.kind)) {
      return refused(subject + " cannot lie in " + std::string(kind_name(parent.kind)) + " '" + parent.name +
                     "'");
    }
    uint32_t depth = 0;
    for (uint32_t above = node.parent; above != kNoNode; above = nodes_[above].parent) ++depth;
    if (depth > kDepthMax) return refused(subject + format(": more than %u nodes around it", kDepthMax));
  }
  const auto index = static_cast<uint32_t>(nodes_.size());
  by_name_.emplace(node.name, index);
  nodes_.push_back(std::move(node));
  return index;
}

Status GraphBuilder::connect(const Edge& edge) {
  if (edges_.size() >= kEdgesMax) return refused(format("more than %u links", kEdgesMax));
  if (edge.a >= nodes_.size() || edge.b >= nodes_.size()) return refused("an end of the link does not exist");
  const std::string subject = "link " + nodes_[edge.a].name + " " + nodes_[edge.b].name;
  if (edge.a == edge.b) return refused(subject + ": both ends are the same node");
  if (edge.bytes_per_s.value == 0) return refused(subject + ": the speed is 0");
  if (edge.count == 0) return refused(subject + ": the count is 0");
  const auto index = static_cast<uint32_t>(edges_.size());
  if (!by_ends_.emplace(key_of(edge.a, edge.b, edge.kind), index).second) {
    return refused(subject + ": a second link of kind " + std::string(kind_name(edge.kind)));
  }
  edges_.push_back(edge);
  return {};
}

uint32_t GraphBuilder::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? kNoNode : found->second;
}

std::string GraphBuilder::unused_name(std::string_view name) const {
  std::string base = as_name(name);
  if (!by_name_.contains(base)) return base;
  base.resize(std::min(base.size(), kNameBytesMax - 8));
  uint32_t& number = next_number_[base];
  while (true) {
    std::string candidate = base + "." + std::to_string(++number);
    if (!by_name_.contains(candidate)) return candidate;
  }
}

Edge* GraphBuilder::edge_between(uint32_t a, uint32_t b, LinkKind kind) {
  const auto found = by_ends_.find(key_of(a, b, kind));
  return found == by_ends_.end() ? nullptr : &edges_[found->second];
}

Graph GraphBuilder::finish() && {
  Graph graph;
  graph.nodes_ = std::move(nodes_);
  graph.edges_ = std::move(edges_);
  graph.slices_ = std::move(slices_);
  graph.calls_ = std::move(calls_);
  graph.by_name_ = std::move(by_name_);
  const size_t node_count = graph.nodes_.size();

  const auto parent_of = [&](size_t i) { return size_t{graph.nodes_[i].parent + 1}; };
  graph.children_begin_ = begins_of(node_count, node_count + 1, parent_of);
  graph.children_.resize(node_count);
  std::vector<uint32_t> next = graph.children_begin_;
  for (uint32_t i = 0; i < node_count; ++i) graph.children_[next[parent_of(i)]++] = i;

  const auto end_of = [&](size_t i) {
    return size_t{i % 2 == 0 ? graph.edges_[i / 2].a : graph.edges_[i / 2].b};
  };
  const size_t end_count = 2 * graph.edges_.size();
  graph.links_begin_ = begins_of(end_count, node_count, end_of);
  graph.links_.resize(end_count);
  next = graph.links_begin_;
  for (uint32_t i = 0; i < end_count; ++i) {
    graph.links_[next[end_of(i)]++] = {i / 2, static_cast<uint32_t>(end_of(i ^ 1u))};
  }
  return graph;
}

}  // namespace tutti::topology
