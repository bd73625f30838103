#include "tools/tutti_plan/graph_costs.h"

#include <algorithm>
#include <map>
#include <set>

#include "topology/paths.h"
#include "topology/search.h"

namespace tutti::tool {
namespace {

using namespace topology;

constexpr double kPerMicrosecond = 1e-6;
/// A GPU reads and writes its own memory at 2 TB/s or more, and looks at a flag within about half a
/// microsecond.
constexpr double kGpuMemoryBytesPerUs = 2e6;
constexpr double kGpuStepUs = 0.5;

double microseconds(uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1000;
}
double per_microsecond(uint64_t bytes_per_s) {
  return static_cast<double>(bytes_per_s) * kPerMicrosecond;
}

/// The slowest and the longest of some paths.
struct Hops {
  uint64_t bytes_per_s = UINT64_MAX;
  uint64_t latency_ns = 0;
  bool is_joined = true;

  void add(const Graph& graph, uint32_t a, uint32_t b) {
    const auto path = WidestPaths(graph, a).to(b);
    is_joined = is_joined && path;
    if (!path) return;
    bytes_per_s = std::min(bytes_per_s, path->bytes_per_s);
    latency_ns = std::max(latency_ns, path->latency_ns);
  }
};

}  // namespace

Result<GraphCosts> costs_of(const Graph& graph) {
  const auto offers = search(graph);
  if (!offers) return offers.status();
  GraphCosts result;
  std::map<uint32_t, uint32_t> number;
  for (const uint32_t rank : offers->ranks) {
    const auto next = static_cast<uint32_t>(number.size());
    result.host_of.push_back(number.try_emplace(graph.around(rank, NodeKind::kHost), next).first->second);
  }
  result.host_count = static_cast<uint32_t>(number.size());

  // The first host stands for all, and its way to the next host for the network.
  const auto& ring = offers->rings.front();
  Hops inside;
  Hops network;
  uint32_t ranks = 0;
  std::set<uint32_t> cards;
  for (size_t i = 0; i < ring.size(); ++i) {
    const uint32_t a = ring[i];
    const uint32_t b = ring[(i + 1) % ring.size()];
    if (result.host_of[a] != 0) continue;
    ++ranks;
    if (offers->nic_of[a] != kNoNode) cards.insert(offers->nic_of[a]);
    (result.host_of[b] == 0 ? inside : network).add(graph, offers->ranks[a], offers->ranks[b]);
  }
  if (!inside.is_joined || !network.is_joined) {
    return Status(Code::kInvalidArgument, "the graph has ranks that nothing joins");
  }
  Costs& costs = result.costs;
  if (inside.bytes_per_s != UINT64_MAX) {
    costs.link_latency_us = microseconds(inside.latency_ns);
    costs.link_bytes_per_us = per_microsecond(inside.bytes_per_s);
  }
  costs.cores = ranks;
  if (graph.node(offers->ranks[0]).kind == NodeKind::kGpu) {
    costs.memory_bytes_per_us = kGpuMemoryBytesPerUs;
    costs.step_overhead_us = kGpuStepUs;
  } else {
    costs.memory_bytes_per_us = costs.link_bytes_per_us;  // a core's copy, from memory to memory
  }
  if (network.bytes_per_s != UINT64_MAX) {
    uint64_t together = 0;
    for (const uint32_t card : cards) together += graph.node(card).bytes_per_s.value;
    costs.network_latency_us = microseconds(network.latency_ns);
    costs.network_bytes_per_us = per_microsecond(std::max(together, network.bytes_per_s));
  }
  return result;
}

}  // namespace tutti::tool
