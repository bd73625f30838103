#include "topology/paths.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>

namespace tutti::topology {
namespace {

bool is_gpu_link(LinkKind kind) {
  return kind == LinkKind::kNvlink || kind == LinkKind::kXgmi;
}

/// The wires from `a` to `b` if GPU links join them directly or over one switch: their number at the narrower
/// end, and their kind.
std::optional<std::pair<uint32_t, LinkKind>> gpu_wires(const Graph& graph, uint32_t a, uint32_t b) {
  std::optional<std::pair<uint32_t, LinkKind>> best;
  const auto consider = [&](uint32_t count, LinkKind kind) {
    if (!best || count > best->first) best = {count, kind};
  };
  for (const Link& link : graph.links_of(a)) {
    const Edge& edge = graph.edge(link.edge);
    if (!is_gpu_link(edge.kind)) continue;
    if (link.other == b) consider(edge.count, edge.kind);
    if (graph.node(link.other).kind != NodeKind::kNvswitch) continue;
    for (const Link& second : graph.links_of(link.other)) {
      const Edge& onward = graph.edge(second.edge);
      if (second.other == b && is_gpu_link(onward.kind)) {
        consider(std::min(edge.count, onward.count), edge.kind);
      }
    }
  }
  return best;
}

uint32_t depth_of(const Graph& graph, uint32_t node) {
  uint32_t depth = 0;
  while ((node = graph.node(node).parent) != kNoNode) ++depth;
  return depth;
}

/// The nearest node around both; kNoNode if there is none. *switches: PCI switches passed, the common one
/// included.
uint32_t common_parent(const Graph& graph, uint32_t a, uint32_t b, uint32_t* switches) {
  uint32_t depth_a = depth_of(graph, a);
  uint32_t depth_b = depth_of(graph, b);
  const auto up = [&](uint32_t& node) {
    node = graph.node(node).parent;
    if (node != kNoNode && graph.node(node).kind == NodeKind::kPciSwitch) ++*switches;
  };
  while (depth_a > depth_b) up(a), --depth_a;
  while (depth_b > depth_a) up(b), --depth_b;
  while (a != b) {
    up(a);
    if (a != b) b = graph.node(b).parent;
    if (a != b && b != kNoNode && graph.node(b).kind == NodeKind::kPciSwitch) ++*switches;
  }
  return a;
}

}  // namespace

WidestPaths::WidestPaths(const Graph& graph, uint32_t source)
    : graph_(graph), source_(source), inside_(widths(true)) {
  const bool has_fabric = std::any_of(graph.nodes().begin(), graph.nodes().end(),
                                      [](const Node& node) { return node.kind == NodeKind::kFabric; });
  anywhere_ = has_fabric ? widths(false) : inside_;
}

bool WidestPaths::passes(Place place, uint32_t next, bool inside_host) const {
  const bool to_network = graph_.node(next).kind == NodeKind::kFabric;
  if (next == source_ || (inside_host && to_network)) return false;
  const uint32_t at = place / 2;
  if (at == source_) return true;
  switch (graph_.node(at).kind) {
    case NodeKind::kCore:
    case NodeKind::kGpu:
    case NodeKind::kDevice: return false;
    // A card joins its host to the network. Bytes do not turn round in the card.
    case NodeKind::kNic: return (place % 2 != 0) != to_network;
    default: return true;
  }
}

WidestPaths::Place WidestPaths::place_at(uint32_t next, uint32_t at) const {
  const bool is_entered =
      graph_.node(next).kind == NodeKind::kNic && graph_.node(at).kind == NodeKind::kFabric;
  return 2 * next + (is_entered ? 1 : 0);
}

std::vector<uint64_t> WidestPaths::widths(bool inside_host) const {
  std::vector<uint64_t> width(2 * graph_.nodes().size(), 0);
  std::priority_queue<std::pair<uint64_t, Place>> queue;
  width[2 * source_] = std::numeric_limits<uint64_t>::max();
  queue.push({width[2 * source_], 2 * source_});
  while (!queue.empty()) {
    const auto [reached, at] = queue.top();
    queue.pop();
    if (reached < width[at]) continue;
    for (const Link& link : graph_.links_of(at / 2)) {
      if (!passes(at, link.other, inside_host)) continue;
      const uint64_t onward = std::min(reached, graph_.edge(link.edge).bytes_per_s.value);
      const Place next = place_at(link.other, at / 2);
      if (onward <= width[next]) continue;
      width[next] = onward;
      queue.push({onward, next});
    }
  }
  std::vector<uint64_t> of_nodes(graph_.nodes().size());
  for (size_t i = 0; i < of_nodes.size(); ++i) of_nodes[i] = std::max(width[2 * i], width[2 * i + 1]);
  return of_nodes;
}

bool WidestPaths::is_inside_host(uint32_t target) const {
  const uint32_t host = graph_.around(source_, NodeKind::kHost);
  return host != kNoNode && host == graph_.around(target, NodeKind::kHost);
}

uint64_t WidestPaths::bytes_per_s(uint32_t target) const {
  return is_inside_host(target) ? inside_[target] : anywhere_[target];
}

void WidestPaths::find_ways(uint64_t width, bool inside_host) {
  if (ways_width_ == width && ways_inside_host_ == inside_host) return;
  ways_width_ = width;
  ways_inside_host_ = inside_host;
  // Latency, links, place: the order in which places are settled, and which of two ways there is better.
  using Cost = std::tuple<uint64_t, uint32_t, Place>;
  ways_.assign(2 * graph_.nodes().size(), {});
  std::vector<Way>& ways = ways_;
  std::priority_queue<Cost, std::vector<Cost>, std::greater<>> queue;
  ways[2 * source_].latency = 0;
  queue.push({0, 0, 2 * source_});
  while (!queue.empty()) {
    const auto [latency, links, at] = queue.top();
    queue.pop();
    if (latency != ways[at].latency || links != ways[at].links) continue;
    for (const Link& link : graph_.links_of(at / 2)) {
      const Edge& edge = graph_.edge(link.edge);
      if (edge.bytes_per_s.value < width || !passes(at, link.other, inside_host)) continue;
      const Place next = place_at(link.other, at / 2);
      Way& way = ways[next];
      const Way onward = {latency + edge.latency_ns.value, links + 1, at, link.edge};
      if (!onward.is_better_than(way)) continue;
      way = onward;
      queue.push({way.latency, way.links, next});
    }
  }
}

std::optional<Path> WidestPaths::to(uint32_t target) {
  const uint64_t width = bytes_per_s(target);
  if (width == 0) return std::nullopt;
  find_ways(width, is_inside_host(target));
  Path path;
  path.bytes_per_s = width;
  Place at = 2 * target;
  if (ways_[at + 1].is_better_than(ways_[at])) ++at;
  path.latency_ns = ways_[at].latency;
  for (; at != 2 * source_; at = ways_[at].before) {
    path.nodes.push_back(at / 2);
    path.edges.push_back(ways_[at].edge);
  }
  path.nodes.push_back(source_);
  std::reverse(path.nodes.begin(), path.nodes.end());
  std::reverse(path.edges.begin(), path.edges.end());
  return path;
}

Distance distance_between(const Graph& graph, uint32_t a, uint32_t b) {
  if (a == b) return Distance::kSelf;
  if (gpu_wires(graph, a, b)) return Distance::kNvlink;
  const uint32_t host = graph.around(a, NodeKind::kHost);
  if (host != graph.around(b, NodeKind::kHost)) return Distance::kNet;

  uint32_t switches = 0;
  const uint32_t parent = common_parent(graph, a, b, &switches);
  if (parent == kNoNode) return Distance::kSys;
  switch (graph.node(parent).kind) {
    case NodeKind::kL3: return Distance::kL3;
    case NodeKind::kPciSwitch: return switches > 1 ? Distance::kPxb : Distance::kPix;
    case NodeKind::kBridge: return Distance::kPhb;
    default: break;
  }
  const uint32_t numa = graph.around(a, NodeKind::kNuma);
  if (numa != graph.around(b, NodeKind::kNuma)) return Distance::kSys;
  if (numa == kNoNode && graph.node(parent).kind == NodeKind::kHost) return Distance::kSys;
  // Some sources do not show host bridges. Then all PCI devices of the NUMA node share one.
  const auto is_pci = [&](uint32_t node) {
    const NodeKind kind = graph.node(node).kind;
    return kind == NodeKind::kGpu || kind == NodeKind::kNic || kind == NodeKind::kDevice;
  };
  const bool shows_bridges =
      graph.around(a, NodeKind::kBridge) != kNoNode || graph.around(b, NodeKind::kBridge) != kNoNode;
  return is_pci(a) && is_pci(b) && !shows_bridges ? Distance::kPhb : Distance::kNode;
}

std::string distance_text(const Graph& graph, uint32_t a, uint32_t b) {
  const Distance distance = distance_between(graph, a, b);
  switch (distance) {
    case Distance::kSelf: return "X";
    case Distance::kNvlink: {
      const auto wires = gpu_wires(graph, a, b);
      return (wires->second == LinkKind::kNvlink ? "NV" : "XG") + std::to_string(wires->first);
    }
    case Distance::kL3: return "L3";
    case Distance::kPix: return "PIX";
    case Distance::kPxb: return "PXB";
    case Distance::kPhb: return "PHB";
    case Distance::kNode: return "NODE";
    case Distance::kSys: return "SYS";
    case Distance::kNet: return "NET";
  }
  return "";
}

}  // namespace tutti::topology
