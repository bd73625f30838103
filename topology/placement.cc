#include "topology/placement.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "plan/plan.h"
#include "topology/levels.h"
#include "topology/pci.h"
#include "topology/rings.h"

namespace tutti::topology {
namespace {

/// Orders and levels of ranks whose places are known.
class Arranger {
 public:
  Arranger(const Routes& routes, std::vector<uint32_t> places, const std::vector<bool>& is_bound)
      : routes_(routes), is_bound_(is_bound), placement_{.places = std::move(places)} {}

  Placement run() {
    find_orders();
    keep_levels();
    return std::move(placement_);
  }

 private:
  /// A host's ranks, in the order of their places if they are bound.
  std::vector<std::vector<uint32_t>> ranks_by_host() const {
    std::vector<std::vector<uint32_t>> hosts(routes_.hosts().size());
    for (uint32_t rank = 0; rank < placement_.places.size(); ++rank)
      hosts[routes_.host_of()[placement_.places[rank]]].push_back(rank);
    for (size_t host = 0; host < hosts.size(); ++host) {
      if (!is_bound_[host]) continue;
      std::ranges::stable_sort(hosts[host], {}, [&](uint32_t rank) { return placement_.places[rank]; });
    }
    std::erase_if(hosts, [](const auto& ranks) { return ranks.empty(); });
    return hosts;
  }

  /// An order for each card of the host with the most, so that rings together use all cards. All hosts are
  /// entered at one position, so that the prices of equal hosts can be folded (topology/simulate.h).
  void find_orders() {
    const std::vector<std::vector<uint32_t>> hosts = ranks_by_host();
    std::vector<std::vector<uint32_t>> starts;
    size_t channels = 1;
    for (const auto& ranks : hosts) {
      std::vector<uint32_t> places;
      for (const uint32_t rank : ranks) places.push_back(placement_.places[rank]);
      starts.push_back(ring_starts(routes_, places));
      if (hosts.size() > 1) channels = std::max(channels, starts.back().size());
    }
    channels = std::min<size_t>(channels, kPlanChannels);
    for (size_t channel = 0; channel < channels; ++channel) {
      std::vector<uint32_t> order;
      for (size_t host = 0; host < hosts.size(); ++host) {
        const auto& ranks = hosts[host];
        const size_t entry = starts[host][channel % starts[host].size()];
        for (size_t i = 0; i < ranks.size(); ++i) order.push_back(ranks[(entry + i) % ranks.size()]);
      }
      const auto first = std::ranges::find(order, 0u);
      std::rotate(order.begin(), first, order.end());  // clang 14 cannot compile ranges::rotate
      placement_.order.insert(placement_.order.end(), order.begin(), order.end());
    }
    if (channels == 1 && std::ranges::is_sorted(placement_.order)) placement_.order.clear();
  }

  /// Ranks that may run anywhere in their host have no neighbours there.
  void keep_levels() {
    const bool are_bound = std::ranges::all_of(is_bound_, [](bool host_is_bound) { return host_is_bound; });
    for (Level& level : find_levels(routes_, placement_.places, are_bound))
      placement_.levels.push_back(std::move(level.group_of));
  }

  const Routes& routes_;
  const std::vector<bool>& is_bound_;
  Placement placement_;
};

class Placer {
 public:
  Placer(const Routes& routes, std::span<const uint32_t> host_of, std::span<const CpuSet> cpus)
      : routes_(routes),
        graph_(routes.graph()),
        host_of_(host_of),
        cpus_(cpus),
        users_(routes.ranks().size()) {}

  Result<Placement> run() {
    number_hosts();
    is_bound_.assign(routes_.hosts().size(), true);
    for (uint32_t rank = 0; rank < host_of_.size(); ++rank) {
      const uint32_t host = host_of_[rank] < host_number_.size() ? host_number_[host_of_[rank]] : kNoNode;
      if (host == kNoNode) {
        return Status(Code::kInvalidArgument,
                      format("rank %u is on host %u, which the graph does not have", rank, host_of_[rank]));
      }
      place(rank, host);
    }
    return Arranger(routes_, std::move(places_), is_bound_).run();
  }

 private:
  /// From hosts in the order of the graph to those of the routes, which follow the switches.
  void number_hosts() {
    const std::vector<uint32_t> nodes = graph_.of_kind(NodeKind::kHost);
    host_number_.assign(nodes.size(), kNoNode);
    for (uint32_t host = 0; host < routes_.hosts().size(); ++host) {
      const uint32_t node = graph_.around(routes_.hosts()[host].nodes.front(), NodeKind::kHost);
      const auto found = std::lower_bound(nodes.begin(), nodes.end(), node);
      if (found != nodes.end()) host_number_[static_cast<size_t>(found - nodes.begin())] = host;
    }
  }

  bool may_run(uint32_t rank, uint32_t place) const {
    const int32_t cpu = graph_.node(routes_.ranks()[place]).os_index;
    return cpu >= 0 && static_cast<size_t>(cpu) < cpus_[rank].size() &&
           cpus_[rank].test(static_cast<size_t>(cpu));
  }

  void place(uint32_t rank, uint32_t host) {
    const Routes::Host& at = routes_.hosts()[host];
    const uint32_t last = at.first_rank + at.rank_count();
    uint32_t best = kNoNode;
    uint32_t allowed = 0;
    for (uint32_t place = at.first_rank; place < last; ++place) {
      if (!may_run(rank, place)) continue;
      ++allowed;
      if (best == kNoNode || users_[place] < users_[best]) best = place;
    }
    if (allowed == 0) {
      const auto first = users_.begin() + at.first_rank;
      best = static_cast<uint32_t>(std::min_element(first, users_.begin() + last) - users_.begin());
    }
    if (allowed == 0 || allowed == at.rank_count()) is_bound_[host] = false;
    ++users_[best];
    places_.push_back(best);
  }

  const Routes& routes_;
  const Graph& graph_;
  std::span<const uint32_t> host_of_;
  std::span<const CpuSet> cpus_;
  std::vector<uint32_t> users_;        ///< ranks at each place
  std::vector<uint32_t> host_number_;  ///< by the graph's host: that of the routes
  std::vector<bool> is_bound_;         ///< by the routes' host: every rank there may use only a part of it
  std::vector<uint32_t> places_;
};

}  // namespace

Result<Placement> place_ranks(const Routes& routes, std::span<const uint32_t> host_of,
                              std::span<const CpuSet> cpus) {
  return Placer(routes, host_of, cpus).run();
}

Placement arrange_ranks(const Routes& routes, std::vector<uint32_t> places) {
  return Arranger(routes, std::move(places), std::vector<bool>(routes.hosts().size(), true)).run();
}

Placement arrange_devices(const Routes& routes, std::vector<uint32_t> places) {
  std::vector<uint32_t> gpus;
  for (const uint32_t place : places) gpus.push_back(routes.ranks()[place]);
  Placement placement{.places = std::move(places)};
  if (gpus.size() <= 2) return placement;
  HostRings rings = find_host_rings(routes.graph(), gpus);
  if (rings.bytes_per_s == 0) return placement;
  rings.rings.resize(std::min<size_t>(rings.rings.size(), kPlanChannels));
  for (const auto& ring : rings.rings)
    placement.order.insert(placement.order.end(), ring.begin(), ring.end());
  if (std::ranges::is_sorted(placement.order)) placement.order.clear();
  for (Level& level : find_levels(routes, placement.places, true))
    placement.levels.push_back(std::move(level.group_of));
  return placement;
}

Result<Placement> place_devices(const Routes& routes, std::span<const std::string> pci_addresses) {
  const Graph& graph = routes.graph();
  if (graph.of_kind(NodeKind::kHost).size() > 1)
    return Status(Code::kInvalidArgument, "the graph has several hosts, and the devices are in one");
  std::vector<uint32_t> places;
  for (uint32_t rank = 0; rank < pci_addresses.size(); ++rank) {
    const auto is_its_gpu = [&](uint32_t node) {
      return graph.node(node).kind == NodeKind::kGpu &&
             pci_address(graph.node(node).bus_id) == pci_addresses[rank];
    };
    const auto found = std::ranges::find_if(routes.ranks(), is_its_gpu);
    if (pci_addresses[rank].empty() || found == routes.ranks().end()) {
      return Status(Code::kInvalidArgument,
                    format("rank %u's device %s is not in the graph", rank, pci_addresses[rank].c_str()));
    }
    places.push_back(static_cast<uint32_t>(found - routes.ranks().begin()));
    if (std::ranges::count(places, places.back()) > 1)
      return Status(Code::kInvalidArgument, format("rank %u shares its device", rank));
  }
  return arrange_devices(routes, std::move(places));
}

std::vector<uint32_t> order_by_hosts(std::span<const uint32_t> host_of) {
  std::vector<uint32_t> order(host_of.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, [&](uint32_t rank) { return std::pair(host_of[rank], rank); });
  if (std::ranges::is_sorted(order)) order.clear();
  return order;
}

}  // namespace tutti::topology
