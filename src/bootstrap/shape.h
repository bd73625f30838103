// The two shapes of a bootstrap.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace tutti {

enum class BootstrapShape : uint8_t {
  /// All ranks are on the host of the rendezvous, and talk to it over a Unix socket.
  kStar,
  /// Ranks talk to each other over the network. The rendezvous brings them together.
  kTree,
};

}  // namespace tutti

/// A binomial tree with root 0. To get a rank's parent, clear the lowest set bit. So a subtree has
/// consecutive ranks, mostly on one host, and depth and number of children are at most log2(rank count).
namespace tutti::tree {
/// Rank 0 has no parent.
inline uint32_t parent_of(uint32_t rank) {
  return rank & (rank - 1);
}

/// The subtree is [rank, rank + subtree_count).
inline uint32_t subtree_count(uint32_t rank, uint32_t rank_count) {
  const uint32_t full = rank == 0 ? std::bit_ceil(rank_count) : rank & (0 - rank);
  return std::min(full, rank_count - rank);
}

/// The children in increasing order.
inline std::vector<uint32_t> children_of(uint32_t rank, uint32_t rank_count) {
  std::vector<uint32_t> children;
  const uint32_t end = rank == 0 ? std::bit_ceil(rank_count) : rank & (0 - rank);
  for (uint32_t step = 1; step < end && step < rank_count - rank; step *= 2) children.push_back(rank + step);
  return children;
}

}  // namespace tutti::tree
