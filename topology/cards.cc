#include "topology/cards.h"

#include <algorithm>

#include "topology/pci.h"

namespace tutti::topology {
namespace {

std::vector<Distance> distances(const Graph& graph, std::span<const uint32_t> cards, uint32_t rank) {
  std::vector<Distance> result;
  for (const uint32_t card : cards) {
    const bool is_known = card != kNoNode && rank != kNoNode;
    result.push_back(is_known ? distance_between(graph, rank, card) : Distance::kSys);
  }
  return result;
}

/// The nearest cards, as flags.
std::vector<bool> nearest(std::span<const Distance> distances) {
  std::vector<bool> result;
  const Distance least = *std::ranges::min_element(distances);
  for (const Distance distance : distances) result.push_back(distance == least);
  return result;
}

}  // namespace

uint32_t core_of(const Graph& graph, const CpuSet& cpus) {
  uint32_t found = kNoNode;
  for (const uint32_t core : graph.of_kind(NodeKind::kCore)) {
    const int32_t number = graph.node(core).os_index;
    if (number < 0 || static_cast<size_t>(number) >= cpus.size() || !cpus.test(static_cast<size_t>(number)))
      continue;
    if (found == kNoNode) found = core;
    for (const NodeKind kind : {NodeKind::kNuma, NodeKind::kPackage}) {
      if (graph.around(core, kind) != graph.around(found, kind)) return kNoNode;
    }
  }
  return found;
}

uint32_t at_bus(const Graph& graph, const std::string& bus_id) {
  const std::string address = pci_address(bus_id);
  for (uint32_t node = 0; node < graph.nodes().size() && !address.empty(); ++node) {
    if (pci_address(graph.node(node).bus_id) == address) return node;
  }
  return kNoNode;
}

CardOrder order_cards(const Graph& graph, std::span<const uint32_t> cards, std::span<const uint32_t> ranks,
                      size_t own) {
  CardOrder order;
  if (cards.empty()) return order;
  const std::vector<Distance> distance = distances(graph, cards, ranks[own]);
  const std::vector<bool> near = nearest(distance);
  size_t sharers = 0;
  size_t turn = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (nearest(distances(graph, cards, ranks[rank])) != near) continue;
    if (rank < own) ++turn;
    ++sharers;
  }
  for (size_t card = 0; card < cards.size(); ++card) order.uses.push_back({card, distance[card]});
  std::ranges::stable_sort(order.uses, {}, &CardOrder::Use::distance);
  // Within each distance: one rank begins where the one before it ends.
  for (auto first = order.uses.begin(); first != order.uses.end();) {
    const auto last = std::find_if(
        first, order.uses.end(), [&](const CardOrder::Use& use) { return use.distance != first->distance; });
    const auto count = static_cast<size_t>(last - first);
    if (order.near_count == 0) order.near_count = count;
    const size_t start = turn * std::max<size_t>(1, count / sharers) % count;
    std::rotate(first, first + static_cast<std::ptrdiff_t>(start), last);
    first = last;
  }
  return order;
}

}  // namespace tutti::topology
