// Order: the ranks from neighbour to neighbour, as rings, chains and trees visit them (Facts::order). An
// order that does not fit the request counts as none, so that plans for other rank counts can be made from
// the same facts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "plan/plan.h"

namespace tutti::generators {

class Order {
 public:
  /// `channel` < channels_of(request, facts).
  Order(const Request& request, const Facts& facts, uint32_t channel = 0) {
    if (fits(request, facts))
      order_ = facts.order.subspan(size_t{channel} * request.rank_count, request.rank_count);
  }
  /// How many orders there are; 1 if ranks stand in rank order.
  static uint32_t channels_of(const Request& request, const Facts& facts) {
    return fits(request, facts) ? static_cast<uint32_t>(facts.order.size() / request.rank_count) : 1;
  }

  uint32_t rank_at(uint32_t place) const { return order_.empty() ? place : order_[place]; }
  /// Takes time in proportion to the rank count.
  uint32_t place_of(uint32_t rank) const {
    if (order_.empty()) return rank;
    return static_cast<uint32_t>(std::find(order_.begin(), order_.end(), rank) - order_.begin());
  }

 private:
  static bool fits(const Request& request, const Facts& facts) {
    return !facts.order.empty() && facts.order.size() % request.rank_count == 0 &&
           facts.order.size() / request.rank_count <= kPlanChannels;
  }

  std::span<const uint32_t> order_;
};

}  // namespace tutti::generators
