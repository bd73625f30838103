// BinomialTree: the tree of binomial broadcast, gather and scatter. Ranks are renumbered so that the root is
// 0. The parent of v is v without its lowest set bit. The subtree of v is the range [v, v +
// subtree(v).count).
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/builder.h"

namespace tutti::generators {

class BinomialTree {
 public:
  BinomialTree(uint32_t rank_count, uint32_t root) : rank_count_(rank_count), root_(root) {}

  /// A rank's number, counted from the root.
  uint32_t position(uint32_t rank) const { return (rank + rank_count_ - root_) % rank_count_; }
  uint32_t rank(uint32_t position) const { return (position + root_) % rank_count_; }

  /// For position > 0.
  uint32_t parent(uint32_t position) const { return position & (position - 1); }
  /// The positions of the subtree, `position` first.
  Chunks subtree(uint32_t position) const;
  /// The children, those with the largest subtrees first.
  std::vector<uint32_t> children(uint32_t position) const;
  /// Number of ranks in the largest subtree below the root.
  uint32_t largest_subtree() const;

 private:
  /// The distance to the next position outside this position's subtree.
  uint32_t reach(uint32_t position) const;

  uint32_t rank_count_;
  uint32_t root_;
};

}  // namespace tutti::generators
