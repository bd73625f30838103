// Double binary tree: two binary trees over the same ranks, each for half of the message. An inner rank of
// one tree is a leaf of the other, so every rank's links are busy in both directions. The trees stand over
// the ranks in the order of Facts::order, so that most of their links join neighbours.
//
// Each tree has an up lane (sums to the root) and a down lane (results back). So the next round's sums climb
// while this round's result descends.
#include <array>

#include "algorithms/builder.h"
#include "algorithms/generators.h"
#include "algorithms/order.h"

namespace tutti::generators {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;

/// A rank's neighbours in a tree.
struct Neighbours {
  uint32_t parent = kNobody;
  std::array<uint32_t, 2> children{kNobody, kNobody};  ///< lower positions, higher positions
};

/// The root of the in-order tree over positions (after, last]: `after` plus the largest power of two that
/// fits.
uint32_t root_position(uint32_t after, uint32_t last) {
  return after + floor_power(last - after);
}

/// A position's neighbours in the in-order tree over positions 1..count. Odd positions are leaves.
Neighbours find_neighbours(uint32_t position, uint32_t count) {
  uint32_t after = 0;
  uint32_t last = count;
  Neighbours found;
  for (uint32_t at = root_position(after, last); at != position; at = root_position(after, last)) {
    found.parent = at;
    (position < at ? last : after) = position < at ? at - 1 : at;
  }
  if (position - 1 > after) found.children[0] = root_position(after, position - 1);
  if (last > position) found.children[1] = root_position(position, last);
  return found;
}

/// Tree 0 has the rank of place p at position p + 1. Tree 1 is the mirror image of tree 0 for even P, and is
/// shifted by one for odd P. Both turn odd positions into even positions, except for the position that wraps
/// around: its rank is a leaf in both trees.
class TreeRanks {
 public:
  TreeRanks(uint32_t tree, const Request& request, const Facts& facts)
      : order_(request, facts),
        rank_count_(request.rank_count),
        mirrored_(tree == 1 && request.rank_count % 2 == 0),
        shift_(tree == 1 ? 1 : 0) {}

  uint32_t position(uint32_t rank) const {
    const uint32_t place = order_.place_of(rank);
    return mirrored_ ? rank_count_ - place : (place + shift_) % rank_count_ + 1;
  }
  uint32_t rank(uint32_t position) const {
    return order_.rank_at(mirrored_ ? rank_count_ - position
                                    : (position - 1 + rank_count_ - shift_) % rank_count_);
  }
  bool is_mirrored() const { return mirrored_; }

 private:
  Order order_;
  uint32_t rank_count_;
  bool mirrored_;
  uint32_t shift_;
};

void add_tree(Builder& builder, uint32_t tree, uint32_t rank, const TreeRanks& ranks, uint32_t rank_count) {
  const Neighbours near = find_neighbours(ranks.position(rank), rank_count);
  const bool is_root = near.parent == kNobody;
  const Chunks half{tree, 1};
  const auto channel = static_cast<uint8_t>(tree);
  const auto is_leaf = [&](uint32_t position) {
    const Neighbours its = find_neighbours(position, rank_count);
    return its.children[0] == kNobody && its.children[1] == kNobody;
  };

  // A leaf sends its input. Only the result overwrites the input. Partial sums are in no buffer.
  const auto add_operand = [&](std::vector<End>& operands, uint32_t child) {
    if (child == kNobody) return;
    operands.push_back(from(ranks.rank(child), is_leaf(child) ? Allow::kReference : Allow::kCopy, channel));
  };
  std::vector<End> operands;
  add_operand(operands, near.children[0]);
  operands.push_back(input(half));
  add_operand(operands, near.children[1]);
  if (ranks.is_mirrored()) std::reverse(operands.begin(), operands.end());

  std::vector<End> results{output(half)};
  for (const uint32_t child : near.children) {
    if (child != kNobody) results.push_back(to(ranks.rank(child), Allow::kReference, channel));
  }

  builder.next_lane();
  if (is_root) {
    builder.finish(half, std::move(operands), std::move(results));
    return;
  }
  const uint32_t parent = ranks.rank(near.parent);
  const Allow up = operands.size() == 1 ? Allow::kReference : Allow::kCopy;
  builder.step(half, std::move(operands), {to(parent, up, channel)});
  builder.next_lane();
  builder.step(half, {from(parent, Allow::kReference, channel)}, std::move(results));
}

}  // namespace

bool supports_double_binary_tree(const Request& request, const Facts&) {
  return is_legal(request, request.rank_count <= 2);
}

/// Double binary tree all-reduce.
/// Shapes: input and output are [count] of T; in place allowed; cut into 2 chunks, one for each tree.
/// Cost: at most 4 steps in 4 lanes, 2 floor(log2 P) latencies; each rank sends at most two messages' bytes
/// (a chunk up in each tree, and its children's results).
/// Scratch: none.
/// Association: its own above two ranks.
/// Errors: none of its own.
/// Source: Sanders, Speck & Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
/// 2009.
Plan make_double_binary_tree(const Request& request, const Facts& facts, uint32_t rank) {
  Builder builder(request, rank);
  builder.chunks_per_block(2).canonical(request.rank_count <= 2);
  for (const uint32_t tree : {0u, 1u})
    add_tree(builder, tree, rank, TreeRanks(tree, request, facts), request.rank_count);
  return builder.take();
}

}  // namespace tutti::generators
