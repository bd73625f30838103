// Routes: the ranks of a job on its graph, and the way of bytes from one rank to another.
//
// A rank is a GPU, or a core if the graph has no GPU. Ranks are numbered host by host; hosts stand in the
// order of their network switches, so that neighbours are near. Inside a host bytes take the widest path.
// Between hosts they leave over the card of the sender and arrive over the card of the receiver. Hosts of
// equal shape share what is found inside them, so the work grows with the shapes and not with the hosts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "topology/folded_network.h"
#include "topology/graph.h"
#include "topology/paths.h"

namespace tutti::topology {

/// What a rank is. kGpus: a GPU, or a core if the graph has no GPU.
enum class RanksAre : uint8_t { kGpus, kCores };

/// What is found once for all hosts of one shape. Numbers are positions in the host's own graph.
struct HostShape {
  Graph graph;
  std::vector<uint32_t> ranks;
  std::vector<uint32_t> nic_of;  ///< of each rank: the nearest card, in turn among equally near ones; kNoNode
  std::vector<uint32_t> nics;

  /// Finds each path once.
  const std::optional<Path>& path(uint32_t a, uint32_t b);

 private:
  std::map<std::pair<uint32_t, uint32_t>, std::optional<Path>> paths_;
};

/// One direction of an edge is an *arc*: 2 * edge from a to b, and one more for the way back.
class Routes {
 public:
  struct Host {
    std::vector<uint32_t> nodes;  ///< of the whole graph, by position in the host's graph
    std::vector<uint32_t> edges;
    uint32_t first_rank = 0;
    HostShape* shape = nullptr;

    uint32_t rank_count() const { return static_cast<uint32_t>(shape->ranks.size()); }
  };

  /// The graph is borrowed. Errors: kInvalidArgument if there are less than two ranks in hosts.
  static Result<Routes> of(const Graph& graph, RanksAre ranks = RanksAre::kGpus);

  /// Makes the ranks at `places`, which are positions in ranks(), the only ranks: rank r then has place r.
  /// Cards are assigned anew, evenly over these ranks. False, and nothing changes, if the places do not
  /// ascend.
  bool keep_ranks(std::span<const uint32_t> places);

  const Graph& graph() const { return *graph_; }
  /// The hosts that have ranks.
  const std::vector<Host>& hosts() const { return hosts_; }
  size_t shape_count() const { return parts_.empty() ? shapes_.size() : parts_.size(); }
  /// Of each rank: its node, its card (kNoNode: none), its host.
  const std::vector<uint32_t>& ranks() const { return ranks_; }
  const std::vector<uint32_t>& nic_of() const { return nic_of_; }
  const std::vector<uint32_t>& host_of() const { return host_of_; }
  /// The first of the network's switches that a card is joined to, so that cards on the same switches have
  /// the same first one; kNoNode if there is none.
  uint32_t switch_of(uint32_t nic) const;
  /// The same for the card of a rank; also kNoNode if the rank has no card.
  uint32_t switch_of_rank(uint32_t rank) const;

  /// Whether a message between ranks of two hosts takes other switches than those of switch_of_rank: cards
  /// that are joined to several use one that both are joined to, or else two between which there is a way.
  bool meet_elsewhere(uint32_t from, uint32_t to);

  /// Adds the arcs from one rank to another to `arcs`. False if nothing joins them.
  bool add_route(uint32_t from, uint32_t to, std::vector<uint32_t>& arcs);
  /// The part of a route up to switch_of_rank, and from there on. False if the rank has no way there.
  bool add_way_out(uint32_t rank, std::vector<uint32_t>& arcs);
  bool add_way_in(uint32_t rank, std::vector<uint32_t>& arcs);
  /// The same for two nodes of one host, by their positions in the host.
  bool add_inside(const Host& host, uint32_t from, uint32_t to, std::vector<uint32_t>& arcs) const;
  /// The arcs between two switches of the network; none if nothing joins them.
  const std::vector<uint32_t>& between_switches(uint32_t first, uint32_t last);
  /// The network as the first `hosts` hosts use it at once.
  FoldedNetwork& folded(uint32_t hosts) { return folded_.try_emplace(hosts, *this, hosts).first->second; }

 private:
  explicit Routes(const Graph& graph) : graph_(&graph) {}
  void split_hosts(bool has_gpus);
  HostShape* shape_of(const Host& host, bool has_gpus);
  void order_hosts();
  HostShape* part_of(HostShape* shape, const std::vector<uint32_t>& ranks);
  void number_ranks(std::vector<Host> sorted);
  std::vector<uint32_t> switches_of_rank(uint32_t rank) const;
  /// Where a message between ranks of two hosts enters the network, and where it leaves.
  std::pair<uint32_t, uint32_t> switches_between(uint32_t from, uint32_t to);
  bool add_way_out(uint32_t rank, uint32_t first, std::vector<uint32_t>& arcs);
  bool add_way_in(uint32_t rank, uint32_t last, std::vector<uint32_t>& arcs);
  void add_arc(uint32_t from, uint32_t to, std::vector<uint32_t>& arcs) const;

  const Graph* graph_;
  std::vector<Host> hosts_;
  std::vector<uint32_t> ranks_;
  std::vector<uint32_t> nic_of_;
  std::vector<uint32_t> host_of_;
  bool has_shared_cards_ = false;  ///< some card is joined to several switches
  std::vector<uint32_t> fabric_nodes_;
  std::vector<uint32_t> fabric_edges_;
  std::unique_ptr<Graph> fabric_;  ///< at a fixed place, because paths_ borrow it
  std::map<std::pair<uint64_t, size_t>, std::unique_ptr<HostShape>> shapes_;
  /// Shapes of which some ranks are kept, by the whole shape and the positions of the ranks.
  std::map<std::pair<HostShape*, std::vector<uint32_t>>, std::unique_ptr<HostShape>> parts_;
  std::map<uint32_t, std::unique_ptr<WidestPaths>> fabric_paths_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> between_switches_;  ///< by both switches
  std::map<uint32_t, FoldedNetwork> folded_;
};

}  // namespace tutti::topology
