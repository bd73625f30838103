// Recursive multiplying: in each phase groups of k ranks exchange their sums, all with all. With k = 2 it is
// recursive doubling. A higher radix k needs fewer phases but more messages.
#include "algorithms/builder.h"
#include "algorithms/generators.h"

namespace tutti::generators {
namespace {

/// Makes the plan of one rank. Ranks beyond the largest power of the radix are folded into groups. The
/// groups' leaders run the phases.
class RecursiveMultiplying {
 public:
  RecursiveMultiplying(uint32_t radix, const Request& request, uint32_t rank)
      : radix_(radix),
        rank_(rank),
        fold_(request.rank_count, radix),
        group_(fold_.group_of(rank)),
        builder_(request, rank) {
    builder_.canonical(fold_.is_canonical());
  }

  Plan make() {
    const uint32_t leader = fold_.first_rank(group_);
    if (rank_ != leader) {
      builder_.step(kAll, {input(kAll)}, {to(leader, Allow::kReference)});
      builder_.step(kAll, {from(leader, Allow::kReference)}, {output(kAll)});
      return builder_.take();
    }
    // A rank reads its own operand from the input until the output holds a partial sum.
    std::vector<End> operands{input(kAll)};
    for (uint32_t i = 1; i < fold_.size(group_); ++i) operands.push_back(from(rank_ + i, Allow::kReference));
    for (uint32_t distance = 1; distance < fold_.groups(); distance *= radix_) {
      operands = meet(std::move(operands), distance);
    }
    std::vector<End> sinks{output(kAll)};
    for (uint32_t i = 1; i < fold_.size(group_); ++i) sinks.push_back(to(rank_ + i, Allow::kReference));
    builder_.finish(kAll, std::move(operands), std::move(sinks));
    return builder_.take();
  }

 private:
  static constexpr Chunks kAll{0, 1};

  /// Reduces `operands` and sends the result to the other ranks of the phase. Returns the phase's operands,
  /// in rank order. The next phase overwrites partial sums, so they travel as copies.
  std::vector<End> meet(std::vector<End> operands, uint32_t distance) {
    const uint32_t digit = group_ / distance % radix_;
    std::vector<End> sinks;
    std::vector<End> met;
    const bool is_input = operands.size() == 1;
    for (uint32_t i = 0; i < radix_; ++i) {
      if (i == digit) {
        met.push_back(is_input ? input(kAll) : output(kAll));
        if (!is_input) sinks.push_back(output(kAll));
        continue;
      }
      const uint32_t peer = fold_.first_rank(group_ + i * distance - digit * distance);
      sinks.push_back(to(peer, Allow::kCopy));
      met.push_back(from(peer, Allow::kCopy));
    }
    builder_.step(kAll, std::move(operands), std::move(sinks));
    return met;
  }

  uint32_t radix_;
  uint32_t rank_;
  Fold fold_;
  uint32_t group_;
  Builder builder_;
};

bool supports_radix(uint32_t radix, const Request& request) {
  return request.rank_count == 1 ||
         (request.rank_count >= radix && is_legal(request, Fold(request.rank_count, radix).is_canonical()));
}

}  // namespace

bool supports_recursive_doubling(const Request& request, const Facts&) {
  return supports_radix(2, request);
}
bool supports_recursive_multiplying_3(const Request& request, const Facts&) {
  return supports_radix(3, request);
}
bool supports_recursive_multiplying_4(const Request& request, const Facts&) {
  return supports_radix(4, request);
}

/// Recursive doubling all-reduce: in phase i ranks 2^i apart exchange their sums.
/// Shapes: input and output are [count] of T; in place allowed.
/// Cost: 1 + log2 P steps, log2 P latencies; each rank sends log2 P messages. If P is no power of two, P -
/// 2^m ranks send their operand to a neighbour and receive the result from it: at most two more latencies,
/// and one more message for those neighbours.
/// Scratch: none.
/// Association: canonical for powers of two and if the fold fits the canonical tree (3, 6, 7, 12, 14, 15,
/// ...).
/// Errors: none of its own.
/// Source: Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH",
/// 2005.
Plan make_recursive_doubling_all_reduce(const Request& request, const Facts&, uint32_t rank) {
  return RecursiveMultiplying(2, request, rank).make();
}

/// Recursive multiplying all-reduce with radix 3: groups of 3 ranks exchange all with all in each phase.
/// Shapes: input and output are [count] of T; in place allowed. P >= 3.
/// Cost: 1 + log3 P steps, log3 P latencies; each rank sends 2 log3 P messages; the fold as recursive
/// doubling, with groups of up to 3.
/// Scratch: none.
/// Association: its own, except for 3, 5 and 6 ranks.
/// Errors: none of its own.
/// Source: Ruefenacht, Bull & Booth, "Generalisation of recursive doubling for AllReduce", 2017.
Plan make_recursive_multiplying_3(const Request& request, const Facts&, uint32_t rank) {
  return RecursiveMultiplying(3, request, rank).make();
}

/// Recursive multiplying all-reduce with radix 4: groups of 4 ranks exchange all with all in each phase.
/// Shapes: input and output are [count] of T; in place allowed. P >= 4.
/// Cost: 1 + log4 P steps, log4 P latencies; each rank sends 3 log4 P messages; the fold as recursive
/// doubling, with groups of up to 4.
/// Scratch: none.
/// Association: canonical for powers of two and if the fold fits.
/// Errors: none of its own.
/// Source: Ruefenacht, Bull & Booth 2017.
Plan make_recursive_multiplying_4(const Request& request, const Facts&, uint32_t rank) {
  return RecursiveMultiplying(4, request, rank).make();
}

}  // namespace tutti::generators
