// Cards: in which order a rank should use the network cards of its host.
//
// The nearest cards come first (distance_between). Ranks whose nearest cards are the same begin with
// different ones. All ranks of a host compute the same from the same graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/cpu.h"
#include "topology/graph.h"
#include "topology/paths.h"

namespace tutti::topology {

struct CardOrder {
  struct Use {
    size_t card = 0;  ///< index of the card
    Distance distance = Distance::kSys;
  };
  std::vector<Use> uses;
  size_t near_count = 0;  ///< the first ones: no card is nearer
};

/// The core of a rank that may use these CPUs. kNoNode: they are spread over NUMA nodes, or the graph does
/// not have them. So the rank is equally far from all cards.
uint32_t core_of(const Graph& graph, const CpuSet& cpus);
/// The node at a PCI address; kNoNode: there is none.
uint32_t at_bus(const Graph& graph, const std::string& bus_id);

/// `cards`: nodes. `ranks`: the core or GPU of every rank of the host. `own`: index of a rank. kNoNode stands
/// for a card or a rank whose place is unknown.
CardOrder order_cards(const Graph& graph, std::span<const uint32_t> cards, std::span<const uint32_t> ranks,
                      size_t own);

}  // namespace tutti::topology
