#include "topology/search.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "core/hash.h"
#include "topology/flow.h"
#include "topology/paths.h"
#include "topology/rings.h"

namespace tutti::topology {
namespace {

/// A part of the graph as a graph of its own. Positions are in the order of the whole graph's nodes and
/// edges.
struct Part {
  std::vector<uint32_t> nodes;
  std::vector<uint32_t> edges;
};

Graph cut_out(const Graph& graph, const Part& part) {
  std::map<uint32_t, uint32_t> position;
  GraphBuilder builder;
  for (const uint32_t index : part.nodes) {
    Node node = graph.node(index);
    const auto parent = position.find(node.parent);
    node.parent = parent == position.end() ? kNoNode : parent->second;
    const auto added = builder.add(std::move(node));
    position[index] = added ? *added : 0;
  }
  for (const uint32_t index : part.edges) {
    Edge edge = graph.edge(index);
    edge.a = position[edge.a];
    edge.b = position[edge.b];
    (void)builder.connect(edge).is_ok();
  }
  return std::move(builder).finish();
}

/// What is found once for all hosts of one shape. Numbers are positions in the host's part.
struct Shape {
  Graph graph;
  std::vector<uint32_t> ranks;
  std::vector<uint32_t> nic_of;  // of each rank; kNoNode
  std::vector<uint32_t> nics;
  HostRings rings;
  std::map<std::pair<uint32_t, uint32_t>, std::optional<Path>> paths;

  const std::optional<Path>& path(uint32_t a, uint32_t b) {
    const auto [known, is_new] = paths.try_emplace({a, b}, std::nullopt);
    if (is_new) known->second = WidestPaths(graph, a).to(b);
    return known->second;
  }
};

/// The nearest card by distance and speed, but cards in turn among equally near ones.
void assign_cards(Shape& shape) {
  std::map<uint32_t, uint32_t> users;
  for (const uint32_t rank : shape.ranks) {
    const WidestPaths paths(shape.graph, rank);
    uint32_t best = kNoNode;
    const auto key = [&](uint32_t nic) {
      const uint64_t speed = std::min(paths.bytes_per_s(nic), shape.graph.node(nic).bytes_per_s.value);
      return std::tuple(distance_between(shape.graph, rank, nic), UINT64_MAX - speed, users[nic], nic);
    };
    for (const uint32_t nic : shape.nics) {
      if (paths.bytes_per_s(nic) > 0 && (best == kNoNode || key(nic) < key(best))) best = nic;
    }
    if (best != kNoNode) ++users[best];
    shape.nic_of.push_back(best);
  }
}

class Searcher {
 public:
  explicit Searcher(const Graph& graph) : graph_(graph), loads_(graph) {}

  Result<Offers> run() {
    offers_.ranks = graph_.of_kind(NodeKind::kGpu);
    if (offers_.ranks.empty()) offers_.ranks = graph_.of_kind(NodeKind::kCore);
    if (offers_.ranks.size() < 2) {
      return Status(Code::kInvalidArgument,
                    format("a search needs two GPUs or two cores, found %zu", offers_.ranks.size()));
    }
    split_hosts();
    order_by_host();
    add_levels();
    add_rings();
    add_trees();
    add_hierarchy();
    add_bounds();
    return std::move(offers_);
  }

 private:
  struct Host {
    Part part;
    uint32_t first_rank = 0;
    Shape* shape = nullptr;
  };

  /// Nodes and links of each host, and the network between as one more part.
  void split_hosts() {
    const size_t node_count = graph_.nodes().size();
    std::vector<uint32_t> host_of(node_count, kNoNode);
    std::map<uint32_t, uint32_t> number;
    for (uint32_t i = 0; i < node_count; ++i) {
      const Node& node = graph_.node(i);
      // Parents come first, so a parent's host is known.
      host_of[i] = node.kind == NodeKind::kHost ? i : node.parent == kNoNode ? kNoNode : host_of[node.parent];
      if (node.kind == NodeKind::kHost) {
        number[i] = static_cast<uint32_t>(hosts_.size());
        hosts_.emplace_back();
      }
      if (host_of[i] != kNoNode) {
        hosts_[number[host_of[i]]].part.nodes.push_back(i);
      } else {
        fabric_.nodes.push_back(i);
      }
    }
    for (uint32_t i = 0; i < graph_.edges().size(); ++i) {
      const uint32_t a = host_of[graph_.edge(i).a];
      const uint32_t b = host_of[graph_.edge(i).b];
      if (a == b && a != kNoNode) hosts_[number[a]].part.edges.push_back(i);
      if (a == b && a == kNoNode) fabric_.edges.push_back(i);
    }
    fabric_graph_ = cut_out(graph_, fabric_);
    for (Host& host : hosts_) host.shape = shape_of(host.part);
  }

  /// Hosts with equal kinds, parents, links and speeds share a shape.
  Shape* shape_of(const Part& part) {
    uint64_t hash = kHashSeed;
    const auto add = [&](uint64_t value) { hash = hash_bytes(&value, sizeof value, hash); };
    const auto position = [&](uint32_t node) {
      return static_cast<uint64_t>(std::lower_bound(part.nodes.begin(), part.nodes.end(), node) -
                                   part.nodes.begin());
    };
    for (const uint32_t node : part.nodes) {
      add(static_cast<uint64_t>(graph_.node(node).kind));
      add(position(graph_.node(node).parent));
      add(graph_.node(node).bytes_per_s.value);
    }
    for (const uint32_t index : part.edges) {
      const Edge& edge = graph_.edge(index);
      add(position(edge.a) << 32 | position(edge.b));
      add(edge.bytes_per_s.value);
      add(edge.latency_ns.value);
      add(static_cast<uint64_t>(edge.kind));
    }
    auto& shape = shapes_[{hash, part.nodes.size()}];
    if (shape) return shape.get();
    shape = std::make_unique<Shape>();
    shape->graph = cut_out(graph_, part);
    const bool has_gpus = graph_.node(offers_.ranks[0]).kind == NodeKind::kGpu;
    shape->ranks = shape->graph.of_kind(has_gpus ? NodeKind::kGpu : NodeKind::kCore);
    shape->nics = shape->graph.of_kind(NodeKind::kNic);
    assign_cards(*shape);
    shape->rings = find_host_rings(shape->graph, shape->ranks);
    return shape.get();
  }

  /// Ranks host by host, hosts in the order of their switches, so that neighbours in a ring are near.
  void order_by_host() {
    std::vector<size_t> order(hosts_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::vector<uint32_t> leaf(hosts_.size(), kNoNode);
    for (size_t h = 0; h < hosts_.size(); ++h) {
      for (const uint32_t nic : hosts_[h].shape->nics)
        leaf[h] = std::min(leaf[h], switch_of(hosts_[h].part.nodes[nic]));
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return leaf[a] < leaf[b]; });
    std::vector<Host> sorted;
    offers_.ranks.clear();
    for (const size_t h : order) {
      Host& host = sorted.emplace_back(std::move(hosts_[h]));
      host.first_rank = static_cast<uint32_t>(offers_.ranks.size());
      offers_.complete = offers_.complete && host.shape->rings.complete;
      for (size_t i = 0; i < host.shape->ranks.size(); ++i) {
        offers_.ranks.push_back(host.part.nodes[host.shape->ranks[i]]);
        const uint32_t nic = host.shape->nic_of[i];
        offers_.nic_of.push_back(nic == kNoNode ? kNoNode : host.part.nodes[nic]);
      }
    }
    std::erase_if(sorted, [](const Host& host) { return host.shape->ranks.empty(); });
    hosts_ = std::move(sorted);
  }

  /// The first network switch that a card is joined to; kNoNode if there is none.
  uint32_t switch_of(uint32_t nic) const {
    for (const Link& link : graph_.links_of(nic)) {
      if (graph_.node(link.other).kind == NodeKind::kFabric) return link.other;
    }
    return kNoNode;
  }

  /// A level is kept if its groups are fewer than those of the level before, and more than one.
  void add_level(NodeKind kind, const std::vector<uint32_t>& place_of_rank) {
    if (std::find(place_of_rank.begin(), place_of_rank.end(), kNoNode) != place_of_rank.end()) return;
    Level level;
    level.kind = kind;
    std::map<uint32_t, uint32_t> number;
    for (const uint32_t place : place_of_rank) {
      const auto next = static_cast<uint32_t>(number.size());
      level.group_of.push_back(number.try_emplace(place, next).first->second);
    }
    level.group_count = static_cast<uint32_t>(number.size());
    if (level.group_count < fewest_groups_) {
      fewest_groups_ = level.group_count;
      if (level.group_count > 1) offers_.levels.push_back(std::move(level));
    } else if (kind == NodeKind::kHost && !offers_.levels.empty() &&
               offers_.levels.back().group_count == level.group_count) {
      // The same groups by their better name.
      offers_.levels.back().kind = kind;
    }
  }

  void add_levels() {
    const std::vector<uint32_t>& ranks = offers_.ranks;
    fewest_groups_ = static_cast<uint32_t>(ranks.size());
    const auto add_around = [&](NodeKind kind) {
      std::vector<uint32_t> places;
      for (const uint32_t rank : ranks) places.push_back(graph_.around(rank, kind));
      add_level(kind, places);
    };
    add_around(NodeKind::kL3);
    // GPUs that links of their own join are near, wherever their processors are.
    add_level(NodeKind::kNvswitch, linked_gpus());
    for (const NodeKind kind : {NodeKind::kPciSwitch, NodeKind::kNuma, NodeKind::kPackage, NodeKind::kHost})
      add_around(kind);
    // Hosts below the same switches. With rails each card has another switch; the lowest stands for all.
    std::vector<uint32_t> lowest(ranks.size(), kNoNode);
    for (const Host& host : hosts_) {
      uint32_t leaf = kNoNode;
      for (const uint32_t nic : host.shape->nics) leaf = std::min(leaf, switch_of(host.part.nodes[nic]));
      std::fill_n(lowest.begin() + host.first_rank, host.shape->ranks.size(), leaf);
    }
    add_level(NodeKind::kFabric, lowest);
  }

  /// For each rank the lowest node that it reaches over links between GPUs.
  std::vector<uint32_t> linked_gpus() const {
    std::vector<uint32_t> lowest(graph_.nodes().size());
    std::iota(lowest.begin(), lowest.end(), 0u);
    const auto find = [&](uint32_t node) {
      while (lowest[node] != node) node = lowest[node] = lowest[lowest[node]];
      return node;
    };
    for (const Edge& edge : graph_.edges()) {
      if (edge.kind != LinkKind::kNvlink && edge.kind != LinkKind::kXgmi) continue;
      const uint32_t a = find(edge.a);
      const uint32_t b = find(edge.b);
      lowest[std::max(a, b)] = std::min(a, b);
    }
    std::vector<uint32_t> places;
    for (const uint32_t rank : offers_.ranks) places.push_back(find(rank));
    return places;
  }

  /// Adds the traffic of a hop between two ranks. False if nothing joins them.
  bool add_hop(size_t host_a, uint32_t a, size_t host_b, uint32_t b) {
    Host& from = hosts_[host_a];
    Host& to = hosts_[host_b];
    if (host_a == host_b) return add_inside(from, from.shape->ranks[a], from.shape->ranks[b]);
    const uint32_t out = from.shape->nic_of[a];
    const uint32_t in = to.shape->nic_of[b];
    return out != kNoNode && in != kNoNode && add_inside(from, from.shape->ranks[a], out) &&
           add_network(from.part.nodes[out], to.part.nodes[in]) && add_inside(to, in, to.shape->ranks[b]);
  }

  bool add_inside(Host& host, uint32_t a, uint32_t b) {
    const auto& path = host.shape->path(a, b);
    if (!path) return false;
    for (size_t i = 0; i < path->edges.size(); ++i) {
      const uint32_t direction = Loads::arc(host.shape->graph, path->edges[i], path->nodes[i]) & 1;
      loads_.add(2 * host.part.edges[path->edges[i]] + direction);
    }
    return true;
  }

  bool add_network(uint32_t from, uint32_t to) {
    const uint32_t first = switch_of(from);
    const uint32_t last = switch_of(to);
    if (first == kNoNode || last == kNoNode) return false;
    add_arc(from, first);
    add_arc(last, to);
    if (first == last) return true;
    const auto [known, is_new] = network_ways_.try_emplace({first, last});
    if (is_new) known->second = network_way(first, last);
    for (const uint32_t arc : known->second) loads_.add(arc);
    return !known->second.empty();
  }

  /// The arcs between two switches; none if nothing joins them.
  std::vector<uint32_t> network_way(uint32_t first, uint32_t last) {
    const auto position = [&](uint32_t node) {
      return static_cast<uint32_t>(std::lower_bound(fabric_.nodes.begin(), fabric_.nodes.end(), node) -
                                   fabric_.nodes.begin());
    };
    auto& paths = fabric_paths_[first];
    if (!paths) paths = std::make_unique<WidestPaths>(fabric_graph_, position(first));
    std::vector<uint32_t> arcs;
    const auto path = paths->to(position(last));
    for (size_t i = 0; path && i < path->edges.size(); ++i) {
      arcs.push_back(2 * fabric_.edges[path->edges[i]] +
                     (Loads::arc(fabric_graph_, path->edges[i], path->nodes[i]) & 1));
    }
    return arcs;
  }

  void add_arc(uint32_t from, uint32_t to) {
    for (const Link& link : graph_.links_of(from)) {
      if (link.other == to) return loads_.add(Loads::arc(graph_, link.edge, from));
    }
  }

  uint32_t channel_count() const {
    size_t channels = 1;
    for (const Host& host : hosts_) {
      channels = std::max(channels, host.shape->rings.rings.size());
      if (hosts_.size() == 1) continue;
      const std::set<uint32_t> cards(host.shape->nic_of.begin(), host.shape->nic_of.end());
      channels = std::max(channels, cards.size());
    }
    return static_cast<uint32_t>(channels);
  }

  /// The ranks of a host in a channel's order. A ring leaves each host at the rank before the one at which it
  /// came, and so with another card; the next host starts at that rank's number. So every channel uses every
  /// card, and cards talk to cards of their own number.
  std::vector<uint32_t> host_order(size_t host, uint32_t channel) const {
    const auto& rings = hosts_[host].shape->rings.rings;
    const auto& ring = rings[channel % rings.size()];
    const size_t count = ring.size();
    const size_t start = (channel + count - host % count) % count;
    std::vector<uint32_t> order;
    for (size_t i = 0; i < count; ++i) order.push_back(ring[(start + i) % count]);
    return order;
  }

  void add_rings() {
    loads_ = Loads(graph_);
    bool joined = true;
    for (uint32_t channel = 0; channel < channel_count(); ++channel) {
      std::vector<std::pair<size_t, uint32_t>> stops;
      for (size_t host = 0; host < hosts_.size(); ++host) {
        for (const uint32_t rank : host_order(host, channel)) stops.emplace_back(host, rank);
      }
      auto& ring = offers_.rings.emplace_back();
      for (size_t i = 0; i < stops.size(); ++i) {
        const auto& [host, rank] = stops[i];
        const auto& [next_host, next_rank] = stops[(i + 1) % stops.size()];
        ring.push_back(hosts_[host].first_rank + rank);
        // With one host the search has chosen the ways, and knows the speed.
        if (hosts_.size() > 1) joined = joined && add_hop(host, rank, next_host, next_rank);
      }
    }
    if (hosts_.size() == 1) {
      offers_.ring_bytes_per_s = hosts_[0].shape->rings.bytes_per_s;
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
    const size_t host_count = hosts_.size();
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
          parent[hosts_[host].first_rank + order[i]] = hosts_[above].first_rank + to;
          joined = joined && add_hop(host, order[i], above, to) && add_hop(above, to, host, order[i]);
        }
      }
    }
    uint32_t narrowest = 0;
    const uint64_t each = loads_.speed(&narrowest);
    offers_.tree_bytes_per_s = joined ? bus_speed(each * offers_.trees.size()) : 0;
  }

  std::vector<uint32_t> chain_of(size_t host, uint32_t channel) const {
    const auto& rings = hosts_[host].shape->rings.rings;
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
    if (hosts_.size() < 2) return;
    double slowest_inside = 0;
    for (const Host& host : hosts_) {
      const double count = static_cast<double>(host.shape->ranks.size());
      const double speed = static_cast<double>(host.shape->rings.bytes_per_s);
      if (count > 1 && speed == 0) return;
      if (count > 1) slowest_inside = std::max(slowest_inside, 2 * (count - 1) / count / speed);
    }
    // Every rank talks to the ranks of its number in neighbouring hosts: a ring of hosts for each.
    loads_ = Loads(graph_);
    for (size_t host = 0; host < hosts_.size(); ++host) {
      const size_t next = (host + 1) % hosts_.size();
      const size_t count = hosts_[host].shape->ranks.size();
      if (count != hosts_[next].shape->ranks.size()) return;
      for (uint32_t rank = 0; rank < count; ++rank) {
        if (!add_hop(host, rank, next, rank)) return;
      }
    }
    uint32_t narrowest = 0;
    const double count = static_cast<double>(hosts_.size());
    const double together =
        static_cast<double>(loads_.speed(&narrowest)) * static_cast<double>(hosts_[0].shape->ranks.size());
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
    if (groups > kFlowsMax && shapes_.size() > 1) return;
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
  Offers offers_;
  std::vector<Host> hosts_;
  Part fabric_;
  Graph fabric_graph_;
  std::map<std::pair<uint64_t, size_t>, std::unique_ptr<Shape>> shapes_;
  std::map<uint32_t, std::unique_ptr<WidestPaths>> fabric_paths_;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> network_ways_;
  Loads loads_;
  uint32_t fewest_groups_ = 0;  // of the levels so far
};

}  // namespace

Result<Offers> search(const Graph& graph) {
  return Searcher(graph).run();
}

}  // namespace tutti::topology
