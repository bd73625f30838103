// Placements: the hosts of a communicator's ranks, for tests of algorithms that look at hosts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/algorithm.h"

namespace tutti::test {

struct Placement {
  std::string name;
  std::vector<uint32_t> host_of;
  uint32_t host_count = 1;
  std::vector<uint32_t> order = {};                ///< Facts::order
  std::vector<std::vector<uint32_t>> levels = {};  ///< Facts::levels

  uint32_t rank_count() const { return static_cast<uint32_t>(host_of.size()); }
  /// The facts of a communicator with this placement. They borrow from this object.
  Facts facts(uint32_t slots = 8) const {
    return {.can_publish = false,
            .host_count = host_count,
            .host_of = host_of,
            .levels = levels,
            .order = order,
            .slots = slots};
  }
};

/// Ranks with equal labels share a host.
inline Placement place(std::string name, const std::vector<uint64_t>& labels) {
  Placement placement{std::move(name), number_hosts(labels)};
  for (const uint32_t host : placement.host_of)
    placement.host_count = std::max(placement.host_count, host + 1);
  return placement;
}

/// 0 0 1 1 2 2: hosts of `sizes` ranks, one after another.
inline Placement place_contiguous(const std::vector<uint32_t>& sizes) {
  std::string name = "contiguous";
  std::vector<uint64_t> labels;
  for (uint32_t host = 0; host < sizes.size(); ++host) {
    name += (host == 0 ? " " : "+") + std::to_string(sizes[host]);
    labels.insert(labels.end(), sizes[host], host);
  }
  return place(std::move(name), labels);
}

/// 0 1 2 0 1 2.
inline Placement place_cyclic(uint32_t hosts, uint32_t ranks_each) {
  std::vector<uint64_t> labels;
  for (uint32_t rank = 0; rank < hosts * ranks_each; ++rank) labels.push_back(rank % hosts);
  return place("cyclic " + std::to_string(hosts) + "x" + std::to_string(ranks_each), labels);
}

/// Hosts with different numbers of ranks, in order and mixed.
inline std::vector<Placement> uneven_placements() {
  return {place_contiguous({1, 2}),
          place_contiguous({2, 1}),
          place_contiguous({4, 2}),
          place_contiguous({2, 2, 4}),
          place_contiguous({4, 4, 3}),
          place_contiguous({8, 8, 8, 1}),
          place_contiguous({1, 5}),
          place_contiguous({7, 2, 3}),
          place_contiguous({9, 1, 4}),
          place_contiguous({1, 1, 1, 10}),
          place_contiguous({8, 7, 6, 5, 4, 3, 2, 1}),
          place("mixed 010", {0, 1, 0}),
          place("mixed 0110", {0, 1, 1, 0}),
          place("mixed 001011102", {0, 0, 1, 0, 1, 1, 1, 0, 2}),
          place("mixed 012210012", {0, 1, 2, 2, 1, 0, 0, 1, 2, 0})};
}

/// The same ranks, visited host by host, and within a host from the last to the first.
inline Placement by_hosts(Placement placement) {
  for (uint32_t host = 0; host < placement.host_count; ++host) {
    for (uint32_t rank = placement.rank_count(); rank-- > 0;) {
      if (placement.host_of[rank] == host) placement.order.push_back(rank);
    }
  }
  std::rotate(placement.order.begin(), std::find(placement.order.begin(), placement.order.end(), 0u),
              placement.order.end());
  placement.name += ", host by host";
  return placement;
}

/// The same with a second order, in which each host's ranks stand one place farther.
inline Placement with_two_orders(Placement placement) {
  placement = by_hosts(std::move(placement));
  std::vector<uint32_t> second;
  for (auto first = placement.order.begin(); first != placement.order.end();) {
    const auto last = std::find_if(first, placement.order.end(), [&](uint32_t rank) {
      return placement.host_of[rank] != placement.host_of[*first];
    });
    second.insert(second.end(), first + 1, last);
    second.push_back(*first);
    first = last;
  }
  placement.order.insert(placement.order.end(), second.begin(), second.end());
  placement.name += ", two orders";
  return placement;
}

/// Groups in groups, the innermost first: 2, 3, 4 are pairs of ranks, three pairs a host, four hosts. In
/// turns: ranks are dealt out to hosts, and on each host to its groups.
inline Placement place_levels(const std::vector<uint32_t>& sizes, bool in_turns) {
  uint32_t ranks = 1;
  std::string name = in_turns ? "levels in turns" : "levels";
  for (const uint32_t size : sizes) {
    ranks *= size;
    name += " " + std::to_string(size);
  }
  std::vector<std::vector<uint64_t>> labels(sizes.size() - 1);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    uint32_t whole = ranks;
    uint32_t inside = rank;
    uint64_t label = 0;
    for (size_t level = sizes.size() - 1; level > 0; --level) {
      const uint32_t parts = sizes[level];
      label = label * parts + (in_turns ? inside % parts : inside / (whole / parts));
      inside = in_turns ? inside / parts : inside % (whole / parts);
      whole /= parts;
      labels[level - 1].push_back(label);
    }
  }
  Placement placement = place(std::move(name), labels.back());
  for (const std::vector<uint64_t>& level : labels) placement.levels.push_back(number_hosts(level));
  return placement;
}

/// Levels inside hosts, between hosts, of one host only; in blocks and in turns.
inline std::vector<Placement> level_placements() {
  std::vector<Placement> all;
  for (const bool in_turns : {false, true}) {
    all.push_back(place_levels({2, 2, 2}, in_turns));
    all.push_back(place_levels({3, 2, 2}, in_turns));
    all.push_back(place_levels({2, 3, 3}, in_turns));
    all.push_back(place_levels({2, 1, 4}, in_turns));
    all.push_back(place_levels({2, 2, 2, 3}, in_turns));
  }
  // More groups than one step can reduce, at the smallest level and at the largest.
  all.push_back(place_levels({9, 2, 2}, true));
  all.push_back(place_levels({2, 2, 9}, false));
  // Pairs are regular, and hosts of one and of two pairs are not.
  Placement mixed = place("irregular hosts", {0, 0, 1, 1, 1, 1});
  mixed.levels = {{0, 0, 1, 1, 2, 2}, mixed.host_of};
  all.push_back(mixed);
  return all;
}

/// One host with these groups in the place of hosts.
inline Placement as_groups(Placement placement) {
  if (placement.levels.empty() && placement.host_count > 1) placement.levels = {placement.host_of};
  placement.host_of.assign(placement.host_of.size(), 0);
  placement.host_count = 1;
  placement.name += " as groups of one host";
  return placement;
}

/// Whether the algorithm's plans depend on Facts::order.
inline bool follows_order(const Algorithm& algorithm) {
  return algorithm.name == "ring" || algorithm.name == "chain" || algorithm.name == "double_binary_tree";
}

/// Whether the algorithm looks at hosts.
inline bool is_hierarchical(const Algorithm& algorithm) {
  return algorithm.name.starts_with("hierarchical");
}
/// Whether hosts can run its plans. Plans with multicast need hardware between devices.
inline bool runs_on_hosts(const Algorithm& algorithm) {
  return algorithm.name != "multicast";
}

}  // namespace tutti::test
