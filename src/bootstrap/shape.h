// The two shapes in which the ranks of a bootstrap talk to each other.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace tutti {

enum class BootstrapShape : uint8_t {
  /// Every rank talks to the rendezvous, over a Unix socket: all ranks are on its host.
  kStar,
  /// Ranks talk to each other over the network; the rendezvous only brings them together.
  kTree,
};

}  // namespace tutti

/// The tree is binomial, with rank 0 as its root. The number of a rank's parent is the rank's own number with
/// the lowest set bit cleared. So a rank and all ranks below it are consecutive, neighbours in number (mostly
/// on one host) are neighbours in the tree, and no rank has more than log2(rank count) children or is further
/// than that from the root.
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
