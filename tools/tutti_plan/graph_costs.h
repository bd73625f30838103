// GraphCosts: the price's constants from a machine's graph, for tutti-plan --topology.
//
// The price knows one kind of link inside a host and one network. So the slowest hop of a ring stands for all
// hops, and all cards of a host for one. What a graph does not know keeps the price's default.
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "plan/price.h"
#include "topology/graph.h"

namespace tutti::tool {

struct GraphCosts {
  Costs costs;                    ///< host_of is not set
  std::vector<uint32_t> host_of;  ///< of each rank of the graph, as in Facts
  uint32_t host_count = 1;
};

/// Errors: kInvalidArgument if the graph has less than two ranks, or ranks that nothing joins.
Result<GraphCosts> costs_of(const topology::Graph& graph);

}  // namespace tutti::tool
