#include "comm/card_order.h"

#include <string>
#include <utility>
#include <vector>

#include "topology/cards.h"

namespace tutti {
namespace {

/// Where a rank of this machine is.
struct Place {
  CpuSet cpus;
  std::string device;  ///< PCI address of its GPU; empty: none
};

uint32_t node_of(const topology::Graph& graph, const Place& place) {
  const uint32_t device = topology::at_bus(graph, place.device);
  return device != topology::kNoNode ? device : topology::core_of(graph, place.cpus);
}

std::vector<CardUse> order(const topology::Graph& graph, std::span<const Place> places, size_t own,
                           std::span<const std::string> addresses) {
  std::vector<uint32_t> ranks;
  std::vector<uint32_t> cards;
  for (const Place& place : places) ranks.push_back(node_of(graph, place));
  for (const std::string& address : addresses) cards.push_back(topology::at_bus(graph, address));
  const topology::CardOrder order = topology::order_cards(graph, cards, ranks, own);
  std::vector<CardUse> uses;
  for (const auto& [card, distance] : order.uses) {
    const bool is_known = ranks[own] != topology::kNoNode && cards[card] != topology::kNoNode;
    uses.push_back({.card = card,
                    .is_near = uses.size() < order.near_count,
                    .distance = is_known ? topology::distance_text(graph, ranks[own], cards[card]) : ""});
  }
  return uses;
}

}  // namespace

OrderCards card_order(Process& process, std::span<const RankFacts> facts, uint32_t rank) {
  std::vector<Place> places;
  size_t own = 0;
  for (uint32_t other = 0; other < facts.size(); ++other) {
    if (facts[other].machine != facts[rank].machine) continue;
    if (other == rank) own = places.size();
    places.push_back({facts[other].core_cpus(), std::string(facts[other].device.bus())});
  }
  return [&process, own, places = std::move(places)](std::span<const std::string> addresses) {
    const auto machine = process.find_machine();
    return order(machine ? machine->graph : topology::Graph(), places, own, addresses);
  };
}

}  // namespace tutti
