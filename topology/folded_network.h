// Folded network: the links between switches where all hosts send at the same time.
//
// Hosts of one shape do the same (plan/fold.h): each sends a message from one of its cards to a card of the
// host that is so many hosts away. Of the links that are alike, the one with the most messages counts. Kept
// with the routes, because all algorithms meet the same ways.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "plan/fold.h"
#include "topology/key_numbers.h"

namespace tutti::topology {

class Routes;

class FoldedNetwork {
 public:
  /// The first hosts of the routes, which have one shape.
  FoldedNetwork(const Routes& routes, uint32_t hosts);

  /// Links that are alike carry so many messages at the most.
  struct Load {
    uint32_t kind = 0;  ///< below kind_count()
    uint32_t arc = 0;   ///< the first of the kind on this way
    float messages = 0;
  };
  struct Way {
    uint32_t first_load = 0;
    uint32_t load_count = 0;
    bool is_joined = false;
    double latency_us = 0;  ///< of the longest way
  };
  /// Numbers of cards are positions in HostShape::nics. `routes` are those of the constructor. Finds each way
  /// once.
  const Way& way(Routes& routes, HostShift shift, uint32_t from_card, uint32_t to_card, uint32_t host);
  std::span<const Load> loads_of(const Way& way) const {
    return std::span(loads_).subspan(way.first_load, way.load_count);
  }
  uint32_t kind_count() const { return static_cast<uint32_t>(kinds_.size()); }

 private:
  /// From one switch to another; looked up once. No arcs: nothing joins them.
  struct Between {
    const std::vector<uint32_t>* arcs = nullptr;
    double latency_us = 0;
  };

  Way find(Routes& routes, HostShift shift, uint32_t from_card, uint32_t to_card, uint32_t host);
  /// Valid until the next call.
  const Between& between(Routes& routes, uint32_t from, uint32_t to);
  uint32_t kind_of(const Routes& routes, uint32_t arc);

  uint32_t hosts_;
  uint32_t cards_;
  std::vector<std::vector<uint32_t>> switch_of_card_;  ///< by card, then by host: index in switches_
  std::vector<std::vector<uint32_t>> alike_from_;  ///< the same: hosts from this one on that share its switch
  std::vector<uint32_t> switches_;
  std::vector<uint64_t> cards_of_;  ///< by switch node: a bit for each card that it joins
  KeyNumbers number_of_pair_;       ///< of switches, from and to: index in between_
  std::vector<Between> between_;
  std::vector<std::vector<uint32_t>>
      number_of_;  ///< by shift and pair of cards, then by host: index in ways_
  std::vector<Way> ways_;
  std::vector<Load> loads_;
  std::map<std::tuple<uint64_t, uint64_t, uint64_t>, uint32_t> kinds_;
  std::vector<uint32_t> kind_of_arc_;
  std::vector<uint32_t> messages_;  ///< of arcs, of the way that is being found
  std::vector<uint32_t> loaded_;    ///< arcs with messages
};

}  // namespace tutti::topology
