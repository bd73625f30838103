// Rings inside one host: orders of its GPUs that together use as much of the links as a bounded search finds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "topology/graph.h"
#include "topology/paths.h"

namespace tutti::topology {

/// The traffic of hops on each direction of each link. Arc 2e goes from a to b of edge e, arc 2e + 1 back.
class Loads {
 public:
  explicit Loads(const Graph& graph) : graph_(&graph), load_(2 * graph.edges().size(), 0) {}

  static uint32_t arc(const Graph& graph, uint32_t edge, uint32_t from) {
    return 2 * edge + (graph.edge(edge).a == from ? 0 : 1);
  }
  void add(uint32_t arc) { ++load_[arc]; }
  void add(const Path& path);
  /// The speed of each hop if all run at once and links are shared evenly; *narrowest gets the edge that
  /// limits. UINT64_MAX without load.
  uint64_t speed(uint32_t* narrowest) const;

 private:
  const Graph* graph_;
  std::vector<uint64_t> load_;
};

struct HostRings {
  std::vector<std::vector<uint32_t>> rings;  ///< positions in `parts`; each starts with 0
  uint64_t bytes_per_s = 0;                  ///< of all rings together
  bool complete = true;                      ///< the search was not cut short
};

/// Deterministic; the work is bounded by steps, not by time. Up to 24 parts are ordered; more are left in
/// their order, which follows the machine. Each ring is directed: a link serves one ring in each direction.
HostRings find_host_rings(const Graph& host, std::span<const uint32_t> parts);

}  // namespace tutti::topology
