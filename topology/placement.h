// Placement: where the ranks of a communicator are on the job's graph, and which ranks are near each other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/cpu.h"
#include "core/result.h"
#include "topology/routes.h"

namespace tutti::topology {

struct Placement {
  std::vector<uint32_t> places;                    ///< of each rank, in Routes::ranks()
  std::vector<uint32_t> order = {};                ///< as Facts::order
  std::vector<std::vector<uint32_t>> levels = {};  ///< as Facts::levels
};

/// Ranks on cores. `host_of`: the host of each rank, in the order of the graph's hosts. `cpus`: where each
/// rank may run, by the system's numbers. A rank that may run anywhere gets the core with the fewest ranks.
/// Only ranks that are bound have neighbours inside their host. Errors: kInvalidArgument: a host that the
/// graph does not have, or that has no core.
Result<Placement> place_ranks(const Routes& routes, std::span<const uint32_t> host_of,
                              std::span<const CpuSet> cpus);

/// Ranks that stay at these places.
Placement arrange_ranks(const Routes& routes, std::vector<uint32_t> places);

/// Ranks that stay at these GPUs, all of one host. Orders are the rings that the search finds on the links
/// between them, as many as a plan may have. Without links between all of them there are no orders, and two
/// ranks need none.
Placement arrange_devices(const Routes& routes, std::vector<uint32_t> places);

/// The same, by PCI addresses. Errors: kInvalidArgument: the graph has several hosts, or no GPU at an
/// address, or ranks share a GPU.
Result<Placement> place_devices(const Routes& routes, std::span<const std::string> pci_addresses);

/// Ranks host by host, rank 0 first; within a host in rank order. Empty if that is the order of the ranks.
std::vector<uint32_t> order_by_hosts(std::span<const uint32_t> host_of);

}  // namespace tutti::topology
