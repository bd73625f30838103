// Recursive halving and doubling (Rabenseifner): a reduce-scatter that halves the data in every phase, then
// an all-gather that doubles it again. Moves as few bytes as the ring.
//
// Neighbours exchange first, and the distance doubles. So a rank's sums always cover an aligned subtree of
// ranks: the canonical tree, with the lower half as left operand.
#include "algorithms/builder.h"
#include "algorithms/generators.h"

namespace tutti::generators {
namespace {

class HalvingDoubling {
 public:
  HalvingDoubling(const Request& request, const Facts& facts, uint32_t rank)
      : rank_(rank),
        fold_(request.rank_count, 2),
        group_(fold_.group_of(rank)),
        all_{0, fold_.groups()},
        builder_(request, rank) {
    // The longest message is all chunks if ranks are folded, else the first half. At least two slots, because
    // the step that completes a chunk receives from the rank to which the step sends, and that rank's
    // previous chunk may still wait on the link.
    const bool folds = fold_.groups() != request.rank_count;
    window_ = window_of(std::max(2u, folds ? fold_.groups() : fold_.groups() / 2), facts);
    builder_.chunks_per_block(fold_.groups()).slots_needed(window_).canonical(fold_.is_canonical());
  }

  Plan make() {
    const uint32_t leader = fold_.first_rank(group_);
    if (rank_ != leader) {
      each_piece(all_, [&](Chunks piece) { builder_.step(piece, {input(piece)}, {reference_to(leader)}); });
      each_piece(all_,
                 [&](Chunks piece) { builder_.step(piece, {reference_from(leader)}, {output(piece)}); });
      return builder_.take();
    }
    const bool has_member = fold_.size(group_) == 2;
    if (has_member) {
      each_piece(all_, [&](Chunks piece) {
        builder_.step(piece, {input(piece), reference_from(rank_ + 1)}, {output(piece)});
      });
    }
    halve(has_member);
    double_back();
    if (has_member) {
      each_piece(all_,
                 [&](Chunks piece) { builder_.step(piece, {output(piece)}, {reference_to(rank_ + 1)}); });
    }
    return builder_.take();
  }

 private:
  // A sent chunk is overwritten only by the result that its receiver makes of it.
  static End reference_to(uint32_t peer) { return to(peer, Allow::kReference); }
  static End reference_from(uint32_t peer) { return from(peer, Allow::kReference); }

  template <class Body>
  void each_piece(Chunks range, const Body& body) {
    for_each_piece(range, window_, body);
  }

  uint32_t partner(uint32_t distance) const { return fold_.first_rank(group_ ^ distance); }

  /// Whether the step that completes a chunk also sends the result.
  bool sends_at_once() const { return window_ >= 2; }

  /// Leaves one complete chunk in kept_. If sends_at_once(), the chunk is on its way to the last partner.
  void halve(bool sums_in_output) {
    kept_ = all_;
    for (uint32_t distance = 1; distance < fold_.groups(); distance *= 2) {
      const bool is_upper = (group_ & distance) != 0;
      const uint32_t half = kept_.count / 2;
      const Chunks lower{kept_.first, half};
      const Chunks upper{kept_.first + half, half};
      kept_ = is_upper ? upper : lower;
      const uint32_t peer = partner(distance);
      const auto own = [&](Chunks piece) { return sums_in_output ? output(piece) : input(piece); };
      exchange(
          is_upper ? lower : upper, kept_, window_,
          [&](Chunks piece) { builder_.step(piece, {own(piece)}, {reference_to(peer)}); },
          [&](Chunks piece) {
            std::vector<End> operands = in_order(!is_upper, own(piece), reference_from(peer));
            if (distance * 2 < fold_.groups()) {
              builder_.step(piece, std::move(operands), {output(piece)});
              return;
            }
            std::vector<End> sinks{output(piece)};
            if (sends_at_once()) sinks.push_back(reference_to(peer));
            builder_.finish(piece, std::move(operands), std::move(sinks));
          });
      sums_in_output = true;
    }
  }

  void double_back() {
    for (uint32_t distance = fold_.groups() / 2; distance > 0; distance /= 2) {
      const bool is_upper = (group_ & distance) != 0;
      const Chunks other{is_upper ? kept_.first - kept_.count : kept_.end(), kept_.count};
      const uint32_t peer = partner(distance);
      const bool is_sent = kept_.count == 1 && sends_at_once();
      const Chunks sent{kept_.first, is_sent ? 0 : kept_.count};
      exchange(
          sent, other, window_,
          [&](Chunks piece) { builder_.step(piece, {output(piece)}, {reference_to(peer)}); },
          [&](Chunks piece) { builder_.step(piece, {reference_from(peer)}, {output(piece)}); });
      kept_ = {std::min(kept_.first, other.first), kept_.count * 2};
    }
  }

  uint32_t rank_;
  Fold fold_;
  uint32_t group_;
  Chunks all_;
  Chunks kept_;
  uint32_t window_ = 1;
  Builder builder_;
};

}  // namespace

bool supports_recursive_halving_doubling(const Request& request, const Facts&) {
  return is_legal(request, Fold(request.rank_count, 2).is_canonical());
}

/// Recursive halving and doubling all-reduce.
/// Shapes: input and output are [count] of T; in place allowed; cut into 2^m <= P chunks, the last may be
/// short.
/// Cost: 4 log2 P - 1 steps if half the chunks fit the slots of a link, 2 log2 P latencies; each rank sends
/// 2(P-1)/P of the message. If P is no power of two, P - 2^m ranks send the message to a neighbour and
/// receive the result from it: two more latencies.
/// Scratch: none.
/// Association: canonical for powers of two and if the fold fits the canonical tree (3, 6, 7, 12, ...).
/// Errors: none of its own.
/// Source: Rabenseifner, "Optimization of collective reduction operations", 2004.
Plan make_recursive_halving_doubling(const Request& request, const Facts& facts, uint32_t rank) {
  return HalvingDoubling(request, facts, rank).make();
}

}  // namespace tutti::generators
