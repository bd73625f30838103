// Order: the ranks from neighbour to neighbour, as rings and chains visit them (Facts::order). An order that
// does not fit the request counts as none, so that plans for other rank counts can be made from the same
// facts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "plan/plan.h"

namespace tutti::generators {

class Order {
 public:
  Order(const Request& request, const Facts& facts)
      : order_(facts.order.size() == request.rank_count ? facts.order : std::span<const uint32_t>()) {}

  uint32_t rank_at(uint32_t place) const { return order_.empty() ? place : order_[place]; }
  /// Takes time in proportion to the rank count.
  uint32_t place_of(uint32_t rank) const {
    if (order_.empty()) return rank;
    return static_cast<uint32_t>(std::find(order_.begin(), order_.end(), rank) - order_.begin());
  }

 private:
  std::span<const uint32_t> order_;
};

}  // namespace tutti::generators
