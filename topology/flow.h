// Maximum flow: how many bytes per second can leave a set of nodes towards another set, over all ways at
// once. By the theorem of maximum flow and minimum cut this is also the narrowest cut between the sets.
// Algorithm: Dinic, "Algorithm for solution of a problem of maximum flow in networks with power estimation",
// 1970.
#pragma once

#include <cstdint>
#include <span>

#include "topology/graph.h"

namespace tutti::topology {

/// Every node may pass bytes on: ranks on GPUs and cores do so. The sets must not overlap.
uint64_t max_flow(const Graph& graph, std::span<const uint32_t> sources, std::span<const uint32_t> sinks);

}  // namespace tutti::topology
