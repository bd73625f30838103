#include "topology/placement.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "plan/plan.h"

namespace tutti::topology {
namespace {

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
    find_order();
    find_groups();
    return std::move(placement_);
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
    placement_.places.push_back(best);
  }

  void find_order() {
    std::vector<uint32_t> order(host_of_.size());
    std::iota(order.begin(), order.end(), 0u);
    const auto key = [&](uint32_t rank) {
      const uint32_t place = placement_.places[rank];
      const uint32_t host = routes_.host_of()[place];
      return std::pair(host, is_bound_[host] ? place : 0);
    };
    std::ranges::stable_sort(order, {}, key);
    std::rotate(order.begin(), std::ranges::find(order, 0u),
                order.end());  // clang 14 cannot compile ranges::rotate
    if (!std::ranges::is_sorted(order)) placement_.order = std::move(order);
  }

  /// The largest parts of a single host that have some of the ranks and not all.
  void find_groups() {
    if (routes_.hosts().size() > 1 || !is_bound_[0]) return;
    for (const NodeKind kind : {NodeKind::kPackage, NodeKind::kNuma, NodeKind::kL3}) {
      std::vector<uint64_t> labels;
      for (const uint32_t place : placement_.places)
        labels.push_back(graph_.around(routes_.ranks()[place], kind));
      std::vector<uint32_t> groups = tutti::number_hosts(labels);
      const uint32_t count = *std::ranges::max_element(groups) + 1;
      if (count == 1 || count == groups.size()) continue;
      placement_.group_of = std::move(groups);
      return;
    }
  }

  const Routes& routes_;
  const Graph& graph_;
  std::span<const uint32_t> host_of_;
  std::span<const CpuSet> cpus_;
  std::vector<uint32_t> users_;        ///< ranks at each place
  std::vector<uint32_t> host_number_;  ///< by the graph's host: that of the routes
  std::vector<bool> is_bound_;         ///< by the routes' host: every rank there may use only a part of it
  Placement placement_;
};

}  // namespace

Result<Placement> place_ranks(const Routes& routes, std::span<const uint32_t> host_of,
                              std::span<const CpuSet> cpus) {
  return Placer(routes, host_of, cpus).run();
}

std::vector<uint32_t> order_by_hosts(std::span<const uint32_t> host_of) {
  std::vector<uint32_t> order(host_of.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, [&](uint32_t rank) { return std::pair(host_of[rank], rank); });
  if (std::ranges::is_sorted(order)) order.clear();
  return order;
}

}  // namespace tutti::topology
