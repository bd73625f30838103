// Scatter and all-gather: a broadcast of a long message. The root scatters one chunk for each rank down a
// binomial tree. Then the ranks pass the chunks around a ring. Each link carries the message once.
#include "algorithms/binomial_tree.h"
#include "algorithms/builder.h"
#include "algorithms/generators.h"

namespace tutti::generators {
namespace {

// The ring receives and sends in one step: see ring.cc.
constexpr uint32_t kRingSlots = 2;

/// Chunks have the numbers of the tree's positions, so a subtree's chunks are consecutive.
class ScatterAllGather {
 public:
  ScatterAllGather(const Request& request, const Facts& facts, uint32_t rank)
      : rank_count_(request.rank_count),
        tree_(request.rank_count, request.root),
        position_(tree_.position(rank)),
        window_(window_of(tree_.largest_subtree(), facts)),
        builder_(request, rank) {
    builder_.chunks_per_block(rank_count_).slots_needed(std::max(kRingSlots, window_));
  }

  Plan make() {
    scatter();
    pass_around();
    const Chunks all{0, rank_count_};
    if (position_ == 0) builder_.step(all, {input(all)}, {output(all)});
    return builder_.take();
  }

 private:
  // Every chunk is written once, so every message may travel by reference.
  End send_to(uint32_t position) const { return to(tree_.rank(position), Allow::kReference); }
  End receive_from(uint32_t position) const { return from(tree_.rank(position), Allow::kReference); }
  End had(Chunks chunks) const { return position_ == 0 ? input(chunks) : output(chunks); }
  bool gets_from_tree(uint32_t position, uint32_t chunk) const {
    const Chunks subtree = tree_.subtree(position);
    return chunk >= subtree.first && chunk < subtree.end();
  }

  void scatter() {
    if (position_ != 0) {
      for_each_piece(tree_.subtree(position_), window_, [&](Chunks piece) {
        builder_.step(piece, {receive_from(tree_.parent(position_))}, {output(piece)});
      });
    }
    for (const uint32_t child : tree_.children(position_)) {
      for_each_piece(tree_.subtree(child), window_,
                     [&](Chunks piece) { builder_.step(piece, {had(piece)}, {send_to(child)}); });
    }
  }

  /// An all-gather around the ring. No rank receives chunks that the tree has brought, so the root receives
  /// nothing.
  void pass_around() {
    const uint32_t next = (position_ + 1) % rank_count_;
    for (uint32_t i = 0; i < rank_count_; ++i) {
      const uint32_t at = (position_ + rank_count_ - i) % rank_count_;
      const Chunks chunk{at, 1};
      const bool is_sent = i + 1 < rank_count_ && !gets_from_tree(next, at);
      if (gets_from_tree(position_, at)) {
        if (is_sent) builder_.step(chunk, {had(chunk)}, {send_to(next)});
        continue;
      }
      std::vector<End> sinks{output(chunk)};
      if (is_sent) sinks.push_back(send_to(next));
      builder_.step(chunk, {receive_from((position_ + rank_count_ - 1) % rank_count_)}, std::move(sinks));
    }
  }

  uint32_t rank_count_;
  BinomialTree tree_;
  uint32_t position_;
  uint32_t window_;
  Builder builder_;
};

}  // namespace

bool supports_scatter_all_gather(const Request&, const Facts& facts) {
  return facts.slots >= kRingSlots;
}

/// Scatter and all-gather broadcast.
/// Shapes: input (at the root) and output are [count] of T; in place at the root allowed; cut into P chunks.
/// Cost: at most P + log2 P steps, log2 P + P-1 latencies; the root sends less than two messages' bytes,
/// other ranks about one message's.
/// Scratch: none.
/// Errors: none of its own.
/// Source: van de Geijn, in Barnett et al., "Interprocessor collective communication library (InterCom)",
/// 1994.
Plan make_scatter_all_gather(const Request& request, const Facts& facts, uint32_t rank) {
  return ScatterAllGather(request, facts, rank).make();
}

}  // namespace tutti::generators
