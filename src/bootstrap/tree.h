// The tree through which ranks meet: binomial, rooted at rank 0. A rank's parent has its number with the
// lowest set bit cleared, so a rank and all below it are consecutive, neighbours in rank (mostly on one host)
// are neighbours in the tree, and nobody has more than log2(rank count) children or is further than that from
// the root.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace tutti::tree {

/// Not defined for rank 0.
inline uint32_t parent_of(uint32_t rank) {
  return rank & (rank - 1);
}

/// Ranks of the subtree of `rank`: [rank, rank + subtree_count).
inline uint32_t subtree_count(uint32_t rank, uint32_t rank_count) {
  const uint32_t full = rank == 0 ? std::bit_ceil(rank_count) : rank & (0 - rank);
  return std::min(full, rank_count - rank);
}

/// In increasing order, which is also that of their subtrees.
inline std::vector<uint32_t> children_of(uint32_t rank, uint32_t rank_count) {
  std::vector<uint32_t> children;
  const uint32_t end = rank == 0 ? std::bit_ceil(rank_count) : rank & (0 - rank);
  for (uint32_t step = 1; step < end && step < rank_count - rank; step *= 2) children.push_back(rank + step);
  return children;
}

}  // namespace tutti::tree
