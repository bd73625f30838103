// Hierarchical over levels: as hierarchical.cc, for any number of levels of equal groups: caches, packages,
// hosts, racks (algorithms/levels.h). Each level passes only sums on to the next, so the farther apart ranks
// are, the fewer bytes travel between them.
//
// Every block has an owner. A rank is the block's agent at a level if its place has the owner's digits at
// that level and at all levels below. The agents of a level send their groups' sums to the agent of the next
// level; the last agent is the owner. Results go the same way back.
//
// All ranks of a group work on the blocks in one order, and every rank sends its messages of an exchange
// before it waits for any. So one message on each link is enough.
#include <algorithm>

#include "algorithms/builder.h"
#include "algorithms/generators.h"
#include "algorithms/hosts.h"
#include "algorithms/levels.h"

namespace tutti::generators {
namespace {

/// The step that completes a block sends the block to the ranks from which the step receives.
constexpr uint32_t kAllReduceSlots = 2;

class HierarchicalLevels {
 public:
  HierarchicalLevels(const Request& request, const Facts& facts, uint32_t rank)
      : collective_(request.collective),
        rank_(rank),
        levels_(request, facts),
        place_(levels_.place_of(rank)),
        lanes_(lanes_of(owned_bytes(request), facts)),
        result_allow_(collective_ == Collective::kAllReduce ? Allow::kDirectWrite : Allow::kReference),
        builder_(request, rank) {
    const bool is_all_reduce = collective_ == Collective::kAllReduce;
    for (uint32_t level = 0; level < levels_.count(); ++level)
      tree_chunks_ = std::max(tree_chunks_, Builder::tree_scratch_chunks(levels_.size(level)));
    scratch_chunks_ = tree_chunks_ + levels_.count() - 1;
    if (collective_ == Collective::kAllGather) scratch_chunks_ = 0;
    builder_.chunks_per_block(lanes_ * (is_all_reduce ? request.rank_count : 1))
        .scratch_chunks(lanes_ * scratch_chunks_)
        .slots_needed(is_all_reduce ? kAllReduceSlots : 1)
        .canonical(levels_.is_canonical());
  }

  Plan make() {
    for (lane_ = 0; lane_ < lanes_; ++lane_) {
      builder_.next_lane();
      complete_own();
      if (collective_ != Collective::kReduceScatter) gather_below(levels_.count(), place_);
    }
    return builder_.take();
  }

 private:
  /// The lane's part of the block whose owner has this place.
  Chunks block(uint32_t place) const { return {levels_.rank_at(place) * lanes_ + lane_, 1}; }
  /// The lane's part of a buffer of one block.
  Chunks only_chunk() const { return {lane_, 1}; }
  /// The place with another digit of a level.
  uint32_t moved(uint32_t place, uint32_t level, uint32_t digit) const {
    return place + digit * levels_.stride(level) - levels_.digit(place, level) * levels_.stride(level);
  }
  uint32_t peer(uint32_t level, uint32_t digit) const { return levels_.rank_at(moved(place_, level, digit)); }
  End send_to(uint32_t other, Allow allow) const { return to(other, allow, static_cast<uint8_t>(lane_)); }
  End receive_from(uint32_t other) const {
    return from(other, Allow::kReference, static_cast<uint8_t>(lane_));
  }

  /// Calls body(digit) for the other digits of a level, beginning behind this rank's.
  template <class Body>
  void each_other(uint32_t level, const Body& body) const {
    const uint32_t size = levels_.size(level);
    const uint32_t own = levels_.digit(place_, level);
    for (uint32_t i = 1; i < size; ++i) body((own + i) % size);
  }

  /// Everyone who gets a block from this rank, if its group at `level` has it: the counterparts below. Far
  /// ones come first, because their messages take longest.
  std::vector<End> readers_below(uint32_t level) const {
    std::vector<End> readers;
    while (level-- > 0) {
      each_other(level,
                 [&](uint32_t digit) { readers.push_back(send_to(peer(level, digit), result_allow_)); });
    }
    return readers;
  }

  struct Sum {
    std::vector<End> sinks;
    bool finish = false;
  };
  /// Reduces the operands of this rank's group at `level`, for the block of `owner`, whose digits up to this
  /// level are this rank's. On the way it sends the group's sums for all other owners of the group.
  void reduce(uint32_t level, uint32_t owner, Sum sum) {
    each_other(level, [&](uint32_t digit) {
      const uint32_t other = moved(owner, level, digit);
      // The input stays as it is until the result has come. A sum is in no buffer.
      if (level == 0) {
        builder_.step(block(other), {input(block(other))}, {send_to(peer(level, digit), Allow::kReference)});
      } else {
        reduce(level - 1, other, {.sinks = {send_to(peer(level, digit), Allow::kCopy)}});
      }
    });
    End own = input(block(owner));
    const uint32_t scratch_first = lane_ * scratch_chunks_;
    if (level > 0) {
      own = scratch({scratch_first + tree_chunks_ + level - 1, 1});
      reduce(level - 1, owner, {.sinks = {own}});
    }
    const uint32_t own_digit = levels_.digit(place_, level);
    const auto operand = [&](uint32_t digit) {
      return digit == own_digit ? own : receive_from(peer(level, digit));
    };
    builder_.reduce_in_order(
        block(owner),
        {.count = levels_.size(level), .end = operand, .scratch_first = scratch_first, .finish = sum.finish},
        std::move(sum.sinks));
  }

  /// Completes this rank's block, and sends the block to the output and to all its readers.
  void complete_own() {
    std::vector<End> readers;
    if (collective_ != Collective::kReduceScatter) readers = readers_below(levels_.count());
    std::vector<End> sinks = take_readers(readers, kMaxStepSinks - 1);
    const End own_output = output(collective_ == Collective::kReduceScatter ? only_chunk() : block(place_));
    sinks.insert(sinks.begin(), own_output);
    if (collective_ == Collective::kAllGather) {
      builder_.step(block(place_), {input(only_chunk())}, std::move(sinks));
    } else {
      reduce(levels_.count() - 1, place_, {.sinks = std::move(sinks), .finish = true});
    }
    builder_.spread(block(place_), own_output, readers);
  }

  /// This rank and its counterparts at the levels below `level` have each a block: this rank that of `owner`.
  /// Receives the counterparts' blocks, and passes them on below. Near counterparts come first: that empties
  /// the links over which blocks of far ones are passed on.
  void gather_below(uint32_t level, uint32_t owner) {
    for (uint32_t below = 0; below < level; ++below) {
      each_other(below, [&](uint32_t digit) {
        const uint32_t theirs = moved(owner, below, digit);
        std::vector<End> readers = readers_below(below);
        std::vector<End> sinks = take_readers(readers, kMaxStepSinks - 1);
        sinks.insert(sinks.begin(), output(block(theirs)));
        builder_.step(block(theirs), {receive_from(peer(below, digit))}, std::move(sinks));
        builder_.spread(block(theirs), output(block(theirs)), readers);
        gather_below(below, theirs);
      });
    }
  }

  Collective collective_;
  uint32_t rank_;
  Levels levels_;
  uint32_t place_;
  uint32_t lanes_;
  uint32_t lane_ = 0;
  uint32_t tree_chunks_ = 0;  ///< scratch of a reduction
  uint32_t scratch_chunks_ =
      0;                ///< of a lane: a reduction, and this rank's own sum of each level but the last
  Allow result_allow_;  ///< as in hierarchical.cc
  Builder builder_;
};

}  // namespace

bool supports_hierarchical_levels(const Request& request, const Facts& facts) {
  return knows_hosts(request, facts) &&
         (!request.reproducible || is_legal(request, Levels(request, facts).is_canonical()));
}

bool supports_hierarchical_levels_all_reduce(const Request& request, const Facts& facts) {
  return facts.slots >= kAllReduceSlots && supports_hierarchical_levels(request, facts);
}

/// Hierarchical all-reduce over levels: reduce-scatter level by level, then all-gather level by level.
/// Shapes: input and output are [count] of T; in place allowed; the last chunks may be short or empty.
/// Cost: 2 latencies at the largest level; a level below exchanges once for each group above it, one
/// exchange after the other. With levels of S0, S1, ... groups each, a rank sends 2(S0-1)/S0 of the message
/// at the lowest level, 2(S1-1)/S1 of 1/S0 of the message at the next, and so on.
/// Scratch: for each lane, as direct one-shot over the groups of a level, and a chunk for each level but one.
/// Association: canonical if the groups are parts of the canonical tree (Levels::is_canonical).
/// Errors: none of its own.
/// Source: hierarchical all-reduce, level by level; the algorithms for tori, e.g. Jain & Sabharwal, "Optimal
/// bucket algorithms for large MPI collectives on torus interconnects", 2010.
Plan make_hierarchical_levels_all_reduce(const Request& request, const Facts& facts, uint32_t rank) {
  return HierarchicalLevels(request, facts, rank).make();
}

/// Hierarchical reduce-scatter over levels. Blocks may differ in size.
/// Shapes: input is [P * count], output [count] of T; in place allowed.
/// Cost: latencies and bytes as the first half of the all-reduce.
/// Scratch: as hierarchical all-reduce over levels.
/// Association: as hierarchical all-reduce over levels.
/// Errors: none of its own.
/// Source: the first half of hierarchical all-reduce over levels.
Plan make_hierarchical_levels_reduce_scatter(const Request& request, const Facts& facts, uint32_t rank) {
  return HierarchicalLevels(request, facts, rank).make();
}

/// Hierarchical all-gather over levels. Blocks may differ in size.
/// Shapes: input is [count], output [P * count] of T; in place allowed.
/// Cost: latencies and bytes as the second half of the all-reduce.
/// Scratch: none.
/// Errors: none of its own.
/// Source: the second half of hierarchical all-reduce over levels.
Plan make_hierarchical_levels_all_gather(const Request& request, const Facts& facts, uint32_t rank) {
  return HierarchicalLevels(request, facts, rank).make();
}

}  // namespace tutti::generators
