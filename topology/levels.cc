#include "topology/levels.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace tutti::topology {
namespace {

class LevelFinder {
 public:
  LevelFinder(const Routes& routes, std::span<const uint32_t> places)
      : routes_(routes), graph_(routes.graph()), places_(places), fewest_groups_(places.size()) {}

  std::vector<Level> run(bool inside_hosts) {
    if (inside_hosts) {
      add_around(NodeKind::kL3);
      // GPUs that links of their own join are near, wherever their processors are.
      add_level(NodeKind::kNvswitch, linked_gpus());
      for (const NodeKind kind : {NodeKind::kPciSwitch, NodeKind::kNuma, NodeKind::kPackage})
        add_around(kind);
    }
    add_around(NodeKind::kHost);
    add_level(NodeKind::kFabric, lowest_switches());
    return std::move(levels_);
  }

 private:
  uint32_t node_of(uint32_t place) const { return routes_.ranks()[place]; }

  /// A level is kept if its groups are fewer than those of the level before, and more than one.
  void add_level(NodeKind kind, const std::vector<uint32_t>& label_of_rank) {
    if (std::find(label_of_rank.begin(), label_of_rank.end(), kNoNode) != label_of_rank.end()) return;
    Level level;
    level.kind = kind;
    std::map<uint32_t, uint32_t> number;
    for (const uint32_t label : label_of_rank) {
      const auto next = static_cast<uint32_t>(number.size());
      level.group_of.push_back(number.try_emplace(label, next).first->second);
    }
    level.group_count = static_cast<uint32_t>(number.size());
    if (level.group_count < fewest_groups_) {
      fewest_groups_ = level.group_count;
      if (level.group_count > 1) levels_.push_back(std::move(level));
    } else if (kind == NodeKind::kHost && !levels_.empty() &&
               levels_.back().group_count == level.group_count) {
      // The same groups by their better name.
      levels_.back().kind = kind;
    }
  }

  void add_around(NodeKind kind) {
    std::vector<uint32_t> labels;
    for (const uint32_t place : places_) labels.push_back(graph_.around(node_of(place), kind));
    add_level(kind, labels);
  }

  /// Of each rank the lowest network switch of its host. With rails each card has another switch; the lowest
  /// stands for all.
  std::vector<uint32_t> lowest_switches() const {
    std::vector<uint32_t> of_host;
    for (const Routes::Host& host : routes_.hosts()) {
      uint32_t lowest = kNoNode;
      for (const uint32_t nic : host.shape->nics)
        lowest = std::min(lowest, routes_.switch_of(host.nodes[nic]));
      of_host.push_back(lowest);
    }
    std::vector<uint32_t> labels;
    for (const uint32_t place : places_) labels.push_back(of_host[routes_.host_of()[place]]);
    return labels;
  }

  /// For each rank the lowest node that it reaches over links between GPUs.
  std::vector<uint32_t> linked_gpus() const {
    std::vector<uint32_t> lowest(graph_.nodes().size());
    std::iota(lowest.begin(), lowest.end(), 0u);
    const auto find = [&](uint32_t node) {
      while (lowest[node] != node) node = lowest[node] = lowest[lowest[node]];
      return node;
    };
    for (const Edge& edge : graph_.edges()) {
      if (edge.kind != LinkKind::kNvlink && edge.kind != LinkKind::kXgmi) continue;
      const uint32_t a = find(edge.a);
      const uint32_t b = find(edge.b);
      lowest[std::max(a, b)] = std::min(a, b);
    }
    std::vector<uint32_t> labels;
    for (const uint32_t place : places_) labels.push_back(find(node_of(place)));
    return labels;
  }

  const Routes& routes_;
  const Graph& graph_;
  std::span<const uint32_t> places_;
  std::vector<Level> levels_;
  size_t fewest_groups_;  // of the levels so far
};

}  // namespace

std::vector<Level> find_levels(const Routes& routes, std::span<const uint32_t> places, bool inside_hosts) {
  return LevelFinder(routes, places).run(inside_hosts);
}

std::vector<uint32_t> ring_starts(const Routes& routes, std::span<const uint32_t> places) {
  std::vector<uint32_t> starts;
  std::set<uint32_t> cards;
  for (uint32_t i = 0; i < places.size(); ++i) {
    if (cards.insert(routes.nic_of()[places[i]]).second) starts.push_back(i);
  }
  return starts;
}

}  // namespace tutti::topology
