#include "topology/search.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "topology/flow.h"
#include "topology/levels.h"
#include "topology/paths.h"
#include "topology/rings.h"
#include "topology/routes.h"

namespace tutti::topology {
namespace {

class Searcher {
 public:
  explicit Searcher(Routes routes) : graph_(routes.graph()), routes_(std::move(routes)), loads_(graph_) {}

  Offers run() {
    offers_.ranks = routes_.ranks();
    offers_.nic_of = routes_.nic_of();
    for (const Routes::Host& host : routes_.hosts()) {
      const auto [known, is_new] = rings_.try_emplace(host.shape);
      if (is_new) known->second = find_host_rings(host.shape->graph, host.shape->ranks);
      offers_.complete = offers_.complete && known->second.complete;
    }
    std::vector<uint32_t> places(offers_.ranks.size());
    std::iota(places.begin(), places.end(), 0u);
    offers_.levels = find_levels(routes_, places, true);
    add_rings();
    add_trees();
    add_hierarchy();
    add_bounds();
    return std::move(offers_);
  }

 private:
  const std::vector<Routes::Host>& hosts() const { return routes_.hosts(); }
  const HostRings& rings_of(size_t host) const { return rings_.at(hosts()[host].shape); }

  /// Adds the traffic of a hop between two ranks. False if nothing joins them.
  bool add_hop(size_t host_a, uint32_t a, size_t host_b, uint32_t b) {
    arcs_.clear();
    if (!routes_.add_route(hosts()[host_a].first_rank + a, hosts()[host_b].first_rank + b, arcs_))
      return false;
    for (const uint32_t arc : arcs_) loads_.add(arc);
    return true;
  }

  uint32_t channel_count() const {
    size_t channels = 1;
    for (const Routes::Host& host : hosts()) {
      channels = std::max(channels, rings_.at(host.shape).rings.size());
      if (hosts().size() == 1) continue;
      const std::set<uint32_t> cards(host.shape->nic_of.begin(), host.shape->nic_of.end());
      channels = std::max(channels, cards.size());
    }
    return static_cast<uint32_t>(channels);
  }

  /// The ranks of a host in a channel's order. A ring leaves each host at the rank before the one at which it
  /// came, and so with another card; the next host starts at that rank's number. So cards talk to cards of
  /// their own number.
  std::vector<uint32_t> host_order(size_t host, uint32_t channel) const {
    const auto& rings = rings_of(host).rings;
    const auto& ring = rings[channel % rings.size()];
    std::vector<uint32_t> places;
    for (const uint32_t rank : ring) places.push_back(hosts()[host].first_rank + rank);
    const std::vector<uint32_t> starts = ring_starts(routes_, places);
    const uint32_t start = channel < starts.size() ? starts[channel] : channel;
    const auto count = static_cast<uint32_t>(ring.size());
    const auto entry = static_cast<uint32_t>((start % count + count - host % count) % count);
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < count; ++i) order.push_back(ring[(entry + i) % count]);
    return order;
  }

  void add_rings() {
    loads_ = Loads(graph_);
    bool joined = true;
    for (uint32_t channel = 0; channel < channel_count(); ++channel) {
      std::vector<std::pair<size_t, uint32_t>> stops;
      for (size_t host = 0; host < hosts().size(); ++host) {
        for (const uint32_t rank : host_order(host, channel)) stops.emplace_back(host, rank);
      }
      auto& ring = offers_.rings.emplace_back();
      for (size_t i = 0; i < stops.size(); ++i) {
        const auto& [host, rank] = stops[i];
        const auto& [next_host, next_rank] = stops[(i + 1) % stops.size()];
        ring.push_back(hosts()[host].first_rank + rank);
        // With one host the search has chosen the ways, and knows the speed.
        if (hosts().size() > 1) joined = joined && add_hop(host, rank, next_host, next_rank);
      }
    }
    if (hosts().size() == 1) {
      offers_.ring_bytes_per_s = rings_of(0).bytes_per_s;
      return limit_of_one_host();
    }
    uint32_t narrowest = 0;
    const uint64_t each = loads_.speed(&narrowest);
    offers_.ring_bytes_per_s = joined ? each * offers_.rings.size() : 0;
    offers_.ring_limit = joined ? edge_text(narrowest) : "some hosts are not joined";
  }

  void limit_of_one_host() {
    if (offers_.ring_bytes_per_s == 0) {
      offers_.ring_limit = "some ranks are not joined";
      return;
    }
    for (const auto& ring : offers_.rings) {
      for (size_t i = 0; i < ring.size(); ++i) (void)add_hop(0, ring[i], 0, ring[(i + 1) % ring.size()]);
    }
    uint32_t narrowest = 0;
    loads_.speed(&narrowest);
    offers_.ring_limit = edge_text(narrowest);
  }

  std::string edge_text(uint32_t index) const {
    const Edge& edge = graph_.edge(index);
    return std::string(kind_name(edge.kind)) + " " + graph_.node(edge.a).name + " - " +
           graph_.node(edge.b).name;
  }

  /// Chains inside hosts; between hosts a binary tree, and for every second channel the mirrored one, so that
  /// hosts in the middle of one are leaves of the other.
  void add_trees() {
    loads_ = Loads(graph_);
    bool joined = true;
    const size_t host_count = hosts().size();
    const auto host_at = [&](size_t place, uint32_t channel) {
      return channel % 2 == 0 ? place : host_count - 1 - place;
    };
    for (uint32_t channel = 0; channel < channel_count(); ++channel) {
      auto& parent = offers_.trees.emplace_back(offers_.ranks.size(), kNoNode);
      for (size_t place = 0; place < host_count; ++place) {
        const size_t host = host_at(place, channel);
        const auto order = chain_of(host, channel);
        for (size_t i = 0; i < order.size(); ++i) {
          if (i == 0 && place == 0) continue;
          const size_t above = i > 0 ? host : host_at((place - 1) / 2, channel);
          const uint32_t to = i > 0 ? order[i - 1] : chain_of(above, channel)[0];
          parent[hosts()[host].first_rank + order[i]] = hosts()[above].first_rank + to;
          joined = joined && add_hop(host, order[i], above, to) && add_hop(above, to, host, order[i]);
        }
      }
    }
    uint32_t narrowest = 0;
    const uint64_t each = loads_.speed(&narrowest);
    offers_.tree_bytes_per_s = joined ? bus_speed(each * offers_.trees.size()) : 0;
  }

  std::vector<uint32_t> chain_of(size_t host, uint32_t channel) const {
    const auto& rings = rings_of(host).rings;
    const auto& ring = rings[channel % rings.size()];
    std::vector<uint32_t> order;
    for (size_t i = 0; i < ring.size(); ++i) order.push_back(ring[(channel + i) % ring.size()]);
    return order;
  }

  /// Bytes of the message per second as bus bandwidth.
  uint64_t bus_speed(uint64_t message_bytes_per_s) const {
    const double count = static_cast<double>(offers_.ranks.size());
    return static_cast<uint64_t>(static_cast<double>(message_bytes_per_s) * 2 * (count - 1) / count);
  }

  /// Reduce-scatter in each host, all-reduce of the parts between hosts, all-gather in each host.
  void add_hierarchy() {
    if (hosts().size() < 2) return;
    double slowest_inside = 0;
    for (const Routes::Host& host : hosts()) {
      const double count = static_cast<double>(host.shape->ranks.size());
      const double speed = static_cast<double>(rings_.at(host.shape).bytes_per_s);
      if (count > 1 && speed == 0) return;
      if (count > 1) slowest_inside = std::max(slowest_inside, 2 * (count - 1) / count / speed);
    }
    // Every rank talks to the ranks of its number in neighbouring hosts: a ring of hosts for each.
    loads_ = Loads(graph_);
    for (size_t host = 0; host < hosts().size(); ++host) {
      const size_t next = (host + 1) % hosts().size();
      const size_t count = hosts()[host].shape->ranks.size();
      if (count != hosts()[next].shape->ranks.size()) return;
      for (uint32_t rank = 0; rank < count; ++rank) {
        if (!add_hop(host, rank, next, rank)) return;
      }
    }
    uint32_t narrowest = 0;
    const double count = static_cast<double>(hosts().size());
    const double together =
        static_cast<double>(loads_.speed(&narrowest)) * static_cast<double>(hosts()[0].shape->ranks.size());
    const double seconds_of_byte = slowest_inside + 2 * (count - 1) / count / together;
    offers_.hierarchy_bytes_per_s = bus_speed(static_cast<uint64_t>(1 / seconds_of_byte));
  }

  /// In any partition into G groups, all groups together must send 2 (G - 1) times the message: each byte of
  /// the result needs a contribution from every other group, and must reach every other group.
  void add_bounds() {
    const size_t count = offers_.ranks.size();
    std::vector<uint32_t> alone(count);
    std::iota(alone.begin(), alone.end(), 0u);
    offers_.bound_bytes_per_s = UINT64_MAX;
    bound_by(alone, static_cast<uint32_t>(count), "each rank");
    for (const Level& level : offers_.levels)
      bound_by(level.group_of, level.group_count, std::string(kind_name(level.kind)));
    const auto middle = offers_.ranks.begin() + static_cast<ptrdiff_t>(count / 2);
    offers_.bisection_bytes_per_s =
        max_flow(graph_, std::span(offers_.ranks.begin(), middle), std::span(middle, offers_.ranks.end()));
  }

  void bound_by(const std::vector<uint32_t>& group_of, uint32_t groups, const std::string& name) {
    // With hosts of one shape the groups repeat; a sample of them gives the mean.
    constexpr uint32_t kFlowsMax = 16;
    constexpr uint32_t kSample = 4;
    const uint32_t flows = groups > kFlowsMax ? kSample : groups;
    if (groups > kFlowsMax && routes_.shape_count() > 1) return;
    double sum = 0;
    for (uint32_t group = 0; group < flows; ++group) {
      std::vector<uint32_t> inside;
      std::vector<uint32_t> outside;
      for (size_t rank = 0; rank < group_of.size(); ++rank) {
        (group_of[rank] == group ? inside : outside).push_back(offers_.ranks[rank]);
      }
      sum += static_cast<double>(max_flow(graph_, inside, outside));
    }
    const double all = sum / flows * groups;
    const uint64_t bound = bus_speed(static_cast<uint64_t>(all / 2 / (groups - 1)));
    if (bound >= offers_.bound_bytes_per_s) return;
    offers_.bound_bytes_per_s = bound;
    offers_.bound_at = name;
  }

  const Graph& graph_;
  Routes routes_;
  Offers offers_;
  std::map<const HostShape*, HostRings> rings_;
  Loads loads_;
  std::vector<uint32_t> arcs_;  // of a hop
};

}  // namespace

Result<Offers> search(const Graph& graph) {
  auto routes = Routes::of(graph);
  if (!routes) return routes.status();
  return Searcher(std::move(*routes)).run();
}

}  // namespace tutti::topology
