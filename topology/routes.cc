#include "topology/routes.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>

#include "core/hash.h"
#include "topology/rings.h"

namespace tutti::topology {
namespace {

/// A part of the graph as a graph of its own. Positions are in the order of the whole graph's nodes and
/// edges.
Graph cut_out(const Graph& graph, const std::vector<uint32_t>& nodes, const std::vector<uint32_t>& edges) {
  std::map<uint32_t, uint32_t> position;
  GraphBuilder builder;
  for (const uint32_t index : nodes) {
    Node node = graph.node(index);
    const auto parent = position.find(node.parent);
    node.parent = parent == position.end() ? kNoNode : parent->second;
    const auto added = builder.add(std::move(node));
    position[index] = added ? *added : 0;
  }
  for (const uint32_t index : edges) {
    Edge edge = graph.edge(index);
    edge.a = position[edge.a];
    edge.b = position[edge.b];
    (void)builder.connect(edge).is_ok();
  }
  return std::move(builder).finish();
}

uint32_t position_of(const std::vector<uint32_t>& sorted, uint32_t value) {
  return static_cast<uint32_t>(std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin());
}

/// The nearest card by distance and speed, but cards in turn among equally near ones.
void assign_cards(HostShape& shape) {
  std::map<uint32_t, uint32_t> users;
  for (const uint32_t rank : shape.ranks) {
    WidestPaths paths(shape.graph, rank);
    uint32_t best = kNoNode;
    const auto key = [&](uint32_t nic) {
      const uint64_t speed = std::min(paths.bytes_per_s(nic), shape.graph.node(nic).bytes_per_s.value);
      return std::tuple(distance_between(shape.graph, rank, nic), UINT64_MAX - speed, users[nic], nic);
    };
    for (const uint32_t nic : shape.nics) {
      if (paths.bytes_per_s(nic) > 0 && (best == kNoNode || key(nic) < key(best))) best = nic;
    }
    if (best != kNoNode) ++users[best];
    shape.nic_of.push_back(best);
  }
}

}  // namespace

const std::optional<Path>& HostShape::path(uint32_t a, uint32_t b) {
  const auto [known, is_new] = paths_.try_emplace({a, b}, std::nullopt);
  if (is_new) known->second = WidestPaths(graph, a).to(b);
  return known->second;
}

Result<Routes> Routes::of(const Graph& graph, RanksAre ranks) {
  const bool has_gpus = ranks == RanksAre::kGpus && !graph.of_kind(NodeKind::kGpu).empty();
  const size_t count = graph.of_kind(has_gpus ? NodeKind::kGpu : NodeKind::kCore).size();
  if (count < 2) {
    return Status(Code::kInvalidArgument, format("a search needs two GPUs or two cores, found %zu", count));
  }
  Routes routes(graph);
  routes.split_hosts(has_gpus);
  routes.order_hosts();
  if (const size_t found = routes.ranks_.size(); found < 2) {
    return Status(
        Code::kInvalidArgument,
        format("a search needs two GPUs or two cores that lie in hosts; of %zu, %zu do", count, found));
  }
  return routes;
}

/// Nodes and links of each host, and the network between as one more part.
void Routes::split_hosts(bool has_gpus) {
  const size_t node_count = graph_->nodes().size();
  std::vector<uint32_t> host_of(node_count, kNoNode);
  std::map<uint32_t, uint32_t> number;
  for (uint32_t i = 0; i < node_count; ++i) {
    const Node& node = graph_->node(i);
    // Parents come first, so a parent's host is known.
    host_of[i] = node.kind == NodeKind::kHost ? i : node.parent == kNoNode ? kNoNode : host_of[node.parent];
    if (node.kind == NodeKind::kHost) {
      number[i] = static_cast<uint32_t>(hosts_.size());
      hosts_.emplace_back();
    }
    (host_of[i] != kNoNode ? hosts_[number[host_of[i]]].nodes : fabric_nodes_).push_back(i);
  }
  for (uint32_t i = 0; i < graph_->edges().size(); ++i) {
    const uint32_t a = host_of[graph_->edge(i).a];
    const uint32_t b = host_of[graph_->edge(i).b];
    if (a == b) (a != kNoNode ? hosts_[number[a]].edges : fabric_edges_).push_back(i);
  }
  fabric_ = std::make_unique<Graph>(cut_out(*graph_, fabric_nodes_, fabric_edges_));
  for (Host& host : hosts_) host.shape = shape_of(host, has_gpus);
}

/// Hosts with equal kinds, parents, links and speeds share a shape.
HostShape* Routes::shape_of(const Host& host, bool has_gpus) {
  uint64_t hash = kHashSeed;
  const auto add = [&](uint64_t value) { hash = hash_bytes(&value, sizeof value, hash); };
  const auto position = [&](uint32_t node) { return uint64_t{position_of(host.nodes, node)}; };
  for (const uint32_t node : host.nodes) {
    add(static_cast<uint64_t>(graph_->node(node).kind));
    add(position(graph_->node(node).parent));
    add(graph_->node(node).bytes_per_s.value);
  }
  for (const uint32_t index : host.edges) {
    const Edge& edge = graph_->edge(index);
    add(position(edge.a) << 32 | position(edge.b));
    add(edge.bytes_per_s.value);
    add(edge.latency_ns.value);
    add(static_cast<uint64_t>(edge.kind));
  }
  auto& shape = shapes_[{hash, host.nodes.size()}];
  if (shape) return shape.get();
  shape = std::make_unique<HostShape>();
  shape->graph = cut_out(*graph_, host.nodes, host.edges);
  shape->ranks = shape->graph.of_kind(has_gpus ? NodeKind::kGpu : NodeKind::kCore);
  shape->nics = shape->graph.of_kind(NodeKind::kNic);
  assign_cards(*shape);
  return shape.get();
}

void Routes::order_hosts() {
  std::vector<uint32_t> leaf;
  for (const Host& host : hosts_) {
    uint32_t lowest = kNoNode;
    for (const uint32_t nic : host.shape->nics) lowest = std::min(lowest, switch_of(host.nodes[nic]));
    leaf.push_back(lowest);
  }
  std::vector<size_t> order(hosts_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return leaf[a] < leaf[b]; });
  std::vector<Host> sorted;
  for (const size_t h : order) {
    if (!hosts_[h].shape->ranks.empty()) sorted.push_back(std::move(hosts_[h]));
  }
  number_ranks(std::move(sorted));
}

void Routes::number_ranks(std::vector<Host> sorted) {
  hosts_ = std::move(sorted);
  folded_.clear();
  ranks_.clear();
  nic_of_.clear();
  host_of_.clear();
  for (uint32_t number = 0; number < hosts_.size(); ++number) {
    Host& host = hosts_[number];
    host.first_rank = static_cast<uint32_t>(ranks_.size());
    for (uint32_t i = 0; i < host.rank_count(); ++i) {
      const uint32_t nic = host.shape->nic_of[i];
      ranks_.push_back(host.nodes[host.shape->ranks[i]]);
      nic_of_.push_back(nic == kNoNode ? kNoNode : host.nodes[nic]);
      host_of_.push_back(number);
      has_shared_cards_ =
          has_shared_cards_ || switches_of_rank(static_cast<uint32_t>(ranks_.size() - 1)).size() > 1;
    }
  }
}

bool Routes::keep_ranks(std::span<const uint32_t> places) {
  if (std::adjacent_find(places.begin(), places.end(), std::greater_equal<>()) != places.end()) return false;
  std::vector<Host> kept;
  for (auto first = places.begin(); first != places.end();) {
    Host host = std::move(hosts_[host_of_[*first]]);
    std::vector<uint32_t> ranks;
    for (; first != places.end() && *first < host.first_rank + host.rank_count(); ++first)
      ranks.push_back(host.shape->ranks[*first - host.first_rank]);
    host.shape = part_of(host.shape, ranks);
    kept.push_back(std::move(host));
  }
  number_ranks(std::move(kept));
  return true;
}

HostShape* Routes::part_of(HostShape* shape, const std::vector<uint32_t>& ranks) {
  auto& part = parts_[{shape, ranks}];
  if (part == nullptr) {
    part = std::make_unique<HostShape>();
    part->graph = shape->graph;
    part->ranks = ranks;
    part->nics = shape->nics;
    assign_cards(*part);
  }
  return part.get();
}

uint32_t Routes::switch_of(uint32_t nic) const {
  uint32_t first = kNoNode;
  for (const Link& link : graph_->links_of(nic)) {
    if (graph_->node(link.other).kind == NodeKind::kFabric) first = std::min(first, link.other);
  }
  return first;
}

uint32_t Routes::switch_of_rank(uint32_t rank) const {
  return nic_of_[rank] == kNoNode ? kNoNode : switch_of(nic_of_[rank]);
}

std::vector<uint32_t> Routes::switches_of_rank(uint32_t rank) const {
  std::vector<uint32_t> switches;
  if (nic_of_[rank] == kNoNode) return switches;
  for (const Link& link : graph_->links_of(nic_of_[rank])) {
    if (graph_->node(link.other).kind == NodeKind::kFabric) switches.push_back(link.other);
  }
  return switches;
}

std::pair<uint32_t, uint32_t> Routes::switches_between(uint32_t from, uint32_t to) {
  const std::pair both(switch_of_rank(from), switch_of_rank(to));
  if (!has_shared_cards_ || both.first == both.second) return both;
  const std::vector<uint32_t> firsts = switches_of_rank(from);
  const std::vector<uint32_t> lasts = switches_of_rank(to);
  for (const uint32_t first : firsts) {
    if (std::ranges::find(lasts, first) != lasts.end()) return {first, first};
  }
  for (const uint32_t first : firsts) {
    for (const uint32_t last : lasts) {
      if (!between_switches(first, last).empty()) return {first, last};
    }
  }
  return both;
}

bool Routes::meet_elsewhere(uint32_t from, uint32_t to) {
  return has_shared_cards_ &&
         switches_between(from, to) != std::pair(switch_of_rank(from), switch_of_rank(to));
}

bool Routes::add_route(uint32_t from, uint32_t to, std::vector<uint32_t>& arcs) {
  const Host& host = hosts_[host_of_[from]];
  if (host_of_[from] == host_of_[to]) {
    const uint32_t a = host.shape->ranks[from - host.first_rank];
    return add_inside(host, a, host.shape->ranks[to - host.first_rank], arcs);
  }
  const auto [first, last] = switches_between(from, to);
  if (last == kNoNode || !add_way_out(from, first, arcs)) return false;
  if (first != last) {
    const auto& middle = between_switches(first, last);
    if (middle.empty()) return false;
    arcs.insert(arcs.end(), middle.begin(), middle.end());
  }
  return add_way_in(to, last, arcs);
}

bool Routes::add_way_out(uint32_t rank, std::vector<uint32_t>& arcs) {
  return add_way_out(rank, switch_of_rank(rank), arcs);
}

bool Routes::add_way_out(uint32_t rank, uint32_t first, std::vector<uint32_t>& arcs) {
  const Host& host = hosts_[host_of_[rank]];
  const uint32_t at = rank - host.first_rank;
  if (first == kNoNode || !add_inside(host, host.shape->ranks[at], host.shape->nic_of[at], arcs))
    return false;
  add_arc(nic_of_[rank], first, arcs);
  return true;
}

bool Routes::add_way_in(uint32_t rank, std::vector<uint32_t>& arcs) {
  return add_way_in(rank, switch_of_rank(rank), arcs);
}

bool Routes::add_way_in(uint32_t rank, uint32_t last, std::vector<uint32_t>& arcs) {
  if (last == kNoNode) return false;
  const Host& host = hosts_[host_of_[rank]];
  const uint32_t at = rank - host.first_rank;
  add_arc(last, nic_of_[rank], arcs);
  return add_inside(host, host.shape->nic_of[at], host.shape->ranks[at], arcs);
}

bool Routes::add_inside(const Host& host, uint32_t from, uint32_t to, std::vector<uint32_t>& arcs) const {
  const auto& path = host.shape->path(from, to);
  if (!path) return false;
  for (size_t i = 0; i < path->edges.size(); ++i) {
    const uint32_t direction = Loads::arc(host.shape->graph, path->edges[i], path->nodes[i]) & 1;
    arcs.push_back(2 * host.edges[path->edges[i]] + direction);
  }
  return true;
}

const std::vector<uint32_t>& Routes::between_switches(uint32_t first, uint32_t last) {
  const auto [known, is_new] = between_switches_.try_emplace(uint64_t{first} << 32 | last);
  if (!is_new) return known->second;
  auto& paths = fabric_paths_[first];
  if (!paths) paths = std::make_unique<WidestPaths>(*fabric_, position_of(fabric_nodes_, first));
  const auto path = paths->to(position_of(fabric_nodes_, last));
  for (size_t i = 0; path && i < path->edges.size(); ++i) {
    known->second.push_back(2 * fabric_edges_[path->edges[i]] +
                            (Loads::arc(*fabric_, path->edges[i], path->nodes[i]) & 1));
  }
  return known->second;
}

void Routes::add_arc(uint32_t from, uint32_t to, std::vector<uint32_t>& arcs) const {
  for (const Link& link : graph_->links_of(from)) {
    if (link.other == to) return arcs.push_back(Loads::arc(*graph_, link.edge, from));
  }
}

}  // namespace tutti::topology
