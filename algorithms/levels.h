// Levels: groups of ranks inside larger groups, as many levels as the topology has (Facts::levels): ranks of
// a cache, of a package, of a host, of a rack. For algorithms that work level by level.
//
// Every rank has a place. A place is a number with one digit for each level: the rank's group within its
// group of the next level. So two ranks whose places differ in one digit are counterparts at that level.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace tutti::generators {

class Levels {
 public:
  /// Levels that are not regular are left out: groups of a level must have one size, and lie inside groups of
  /// the next level. Without any, all ranks are one level. Without Facts::levels, hosts are a level. Time and
  /// memory are proportional to the rank count, for each level.
  Levels(const Request& request, const Facts& facts);

  uint32_t count() const { return static_cast<uint32_t>(sizes_.size()); }
  /// How many groups of the level below (level 0: ranks) make a group.
  uint32_t size(uint32_t level) const { return sizes_[level]; }
  /// What a digit of the level counts.
  uint32_t stride(uint32_t level) const { return strides_[level]; }
  uint32_t digit(uint32_t place, uint32_t level) const { return place / strides_[level] % sizes_[level]; }

  uint32_t rank_at(uint32_t place) const { return rank_at_[place]; }
  /// Takes time in proportion to the rank count.
  uint32_t place_of(uint32_t rank) const;

  /// Whether a reduction level by level, each group in the canonical tree, equals the canonical tree over all
  /// ranks.
  bool is_canonical() const;

 private:
  std::vector<uint32_t> sizes_;
  std::vector<uint32_t> strides_;
  std::vector<uint32_t> rank_at_;
};

}  // namespace tutti::generators
