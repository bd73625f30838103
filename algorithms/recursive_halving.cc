// Recursive halving: a reduce-scatter in log2 P phases. Distant ranks exchange first, so a rank always keeps
// a contiguous range of blocks around its own block.
#include "algorithms/builder.h"
#include "algorithms/generators.h"

namespace tutti::generators {
namespace {

class RecursiveHalving {
 public:
  RecursiveHalving(const Request& request, const Facts& facts, uint32_t rank)
      : rank_(rank),
        rank_count_(request.rank_count),
        fold_(request.rank_count, 2),
        group_(fold_.group_of(rank)),
        builder_(request, rank) {
    // The longest message is all blocks if ranks are folded, else half the blocks.
    window_ = window_of(folds() ? rank_count_ : rank_count_ / 2, facts);
    builder_.slots_needed(window_).scratch_chunks(rank_count_).canonical(fold_.groups() == 2);
  }

  Plan make() {
    const uint32_t leader = fold_.first_rank(group_);
    const Chunks all{0, rank_count_};
    if (rank_ != leader) {
      for_each_piece(all, window_, [&](Chunks piece) {
        builder_.step(piece, {input(piece)}, {to(leader, Allow::kReference)});
      });
      builder_.step({rank_, 1}, {from(leader, Allow::kCopy)}, {output({0, 1})});
      return builder_.take();
    }
    const bool has_member = fold_.size(group_) == 2;
    if (has_member) {
      for_each_piece(all, window_, [&](Chunks piece) {
        builder_.step(piece, {input(piece), from(rank_ + 1, Allow::kReference)}, {scratch(piece)});
      });
    }
    halve(has_member);
    return builder_.take();
  }

 private:
  bool folds() const { return fold_.groups() != rank_count_; }

  /// How a message of a phase travels. Only the first phase of a rank without a folded member reads the
  /// input.
  Allow allow_for(uint32_t group, uint32_t distance) const {
    const bool from_input = distance == fold_.groups() / 2 && fold_.size(group) == 1;
    return from_input ? Allow::kReference : Allow::kCopy;
  }

  void halve(bool sums_in_scratch) {
    uint32_t begin = 0;
    uint32_t end = fold_.groups();
    for (uint32_t distance = end / 2; distance > 0; distance /= 2) {
      const uint32_t middle = begin + distance;
      const bool is_upper = (group_ & distance) != 0;
      const Chunks lower = fold_.blocks(begin, middle);
      const Chunks upper = fold_.blocks(middle, end);
      const uint32_t peer_group = group_ ^ distance;
      const uint32_t peer = fold_.first_rank(peer_group);
      const auto own = [&](Chunks piece) { return sums_in_scratch ? scratch(piece) : input(piece); };
      const auto receive = [&](Chunks piece) {
        const End other = from(peer, allow_for(peer_group, distance));
        if (distance > 1) {
          builder_.step(piece, in_order(!is_upper, own(piece), other), {scratch(piece)});
          return;
        }
        // The last phase, block by block: the rank's own block, and the block of the rank that folded into
        // it.
        const End sink = piece.first == rank_ ? output({0, 1}) : to(rank_ + 1, Allow::kCopy);
        builder_.finish(piece, in_order(!is_upper, own(piece), other), {sink});
      };
      const uint32_t window = distance > 1 ? window_ : 1;
      exchange(
          is_upper ? lower : upper, is_upper ? upper : lower, window,
          [&](Chunks piece) { builder_.step(piece, {own(piece)}, {to(peer, allow_for(group_, distance))}); },
          receive);
      (is_upper ? begin : end) = middle;
      sums_in_scratch = true;
    }
  }

  uint32_t rank_;
  uint32_t rank_count_;
  Fold fold_;
  uint32_t group_;
  uint32_t window_ = 1;
  Builder builder_;
};

}  // namespace

bool supports_recursive_halving(const Request& request, const Facts&) {
  return !request.variable_counts && is_legal(request, Fold(request.rank_count, 2).groups() <= 2);
}

/// Recursive halving reduce-scatter.
/// Shapes: input is [P * count], output [count] of T, equal blocks; in place allowed.
/// Cost: 2 log2 P steps if half the blocks fit the slots of a link, log2 P latencies; each rank sends P-1
/// blocks. If P is no power of two, P - 2^m ranks first send all their blocks to a neighbour and receive
/// their result from it: two more latencies.
/// Scratch: P chunks.
/// Association: its own above three ranks.
/// Errors: none of its own.
/// Source: Thakur, Rabenseifner & Gropp 2005.
Plan make_recursive_halving(const Request& request, const Facts& facts, uint32_t rank) {
  return RecursiveHalving(request, facts, rank).make();
}

}  // namespace tutti::generators
