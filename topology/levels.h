// Levels: which ranks are near each other, from small groups to large ones, and the orders in which rings
// visit them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "topology/routes.h"

namespace tutti::topology {

/// Groups of ranks that are nearer to each other than to other ranks.
struct Level {
  NodeKind kind = NodeKind::kHost;  ///< what a group shares
  uint32_t group_count = 0;
  std::vector<uint32_t> group_of;  ///< of each rank; groups are numbered by their lowest ranks
};

/// The levels of ranks at `places`, which are positions in Routes::ranks(): a cache, GPUs that links of their
/// own join, a PCI switch, a NUMA node, a package, a host, hosts below the same switches. A level has fewer
/// groups than the level before, and more than one. `inside_hosts`: whether groups inside hosts count.
std::vector<Level> find_levels(const Routes& routes, std::span<const uint32_t> places, bool inside_hosts);

/// Where rings enter a host whose ranks stand in this order, so that each keeps another card busy: the
/// position of the first rank of each card. One position if the ranks share a card, or have none.
std::vector<uint32_t> ring_starts(const Routes& routes, std::span<const uint32_t> places);

}  // namespace tutti::topology
