// Recursive doubling: an all-gather in log2 P phases. Neighbours exchange first. A rank always has an
// aligned, contiguous range of blocks, so no block passes through scratch.
#include "algorithms/builder.h"
#include "algorithms/generators.h"

namespace tutti::generators {
namespace {

class RecursiveDoubling {
 public:
  RecursiveDoubling(const Request& request, const Facts& facts, uint32_t rank)
      : rank_(rank),
        rank_count_(request.rank_count),
        fold_(request.rank_count, 2),
        group_(fold_.group_of(rank)),
        builder_(request, rank) {
    // The longest message is all blocks if ranks are folded, else half the blocks.
    const bool folds = fold_.groups() != rank_count_;
    window_ = window_of(folds ? rank_count_ : rank_count_ / 2, facts);
    builder_.slots_needed(window_);
  }

  Plan make() {
    const uint32_t leader = fold_.first_rank(group_);
    const Chunks own{rank_, 1};
    if (rank_ != leader) {
      builder_.step(own, {input({0, 1})}, {output(own), to(leader, Allow::kReference)});
      receive_all_but(own, leader);
      return builder_.take();
    }
    const bool has_member = fold_.size(group_) == 2;
    if (has_member) {
      const Chunks folded{rank_ + 1, 1};
      builder_.step(own, {input({0, 1})}, {output(own)});
      builder_.step(folded, {from(rank_ + 1, Allow::kReference)}, {output(folded)});
    } else {
      builder_.step(own, {input({0, 1})}, {output(own), to(partner(1), Allow::kReference)});
    }
    for (uint32_t distance = 1; distance < fold_.groups(); distance *= 2) meet(distance, has_member);
    if (has_member) send_all_but({rank_ + 1, 1});
    return builder_.take();
  }

 private:
  uint32_t partner(uint32_t distance) const { return fold_.first_rank(group_ ^ distance); }

  void meet(uint32_t distance, bool has_member) {
    const uint32_t begin = group_ & ~(distance - 1);
    const uint32_t peer_begin = begin ^ distance;
    const uint32_t peer = partner(distance);
    Chunks sent = fold_.blocks(begin, begin + distance);
    // The step that copied the rank's own block has also sent it.
    if (distance == 1 && !has_member) sent.count = 0;
    exchange(
        sent, fold_.blocks(peer_begin, peer_begin + distance), distance == 1 ? 1 : window_,
        [&](Chunks piece) { builder_.step(piece, {output(piece)}, {to(peer, Allow::kReference)}); },
        [&](Chunks piece) { builder_.step(piece, {from(peer, Allow::kReference)}, {output(piece)}); });
  }

  template <class Body>
  void each_piece_but(Chunks hole, const Body& body) {
    for_each_piece({0, hole.first}, window_, body);
    for_each_piece({hole.end(), rank_count_ - hole.end()}, window_, body);
  }
  void send_all_but(Chunks own) {
    each_piece_but(own, [&](Chunks piece) {
      builder_.step(piece, {output(piece)}, {to(rank_ + 1, Allow::kReference)});
    });
  }
  void receive_all_but(Chunks own, uint32_t leader) {
    each_piece_but(
        own, [&](Chunks piece) { builder_.step(piece, {from(leader, Allow::kReference)}, {output(piece)}); });
  }

  uint32_t rank_;
  uint32_t rank_count_;
  Fold fold_;
  uint32_t group_;
  uint32_t window_ = 1;
  Builder builder_;
};

}  // namespace

/// Recursive doubling all-gather. Blocks may differ in size.
/// Shapes: input is [count], output [P * count] of T; in place allowed.
/// Cost: 2 log2 P steps if half the blocks fit the slots of a link, log2 P latencies; each rank sends P-1
/// blocks. If P is no power of two, P - 2^m ranks send their block to a neighbour and receive all other
/// blocks from it: two more latencies (bruck needs none).
/// Scratch: none.
/// Errors: none of its own.
/// Source: Thakur, Rabenseifner & Gropp 2005.
Plan make_recursive_doubling_all_gather(const Request& request, const Facts& facts, uint32_t rank) {
  return RecursiveDoubling(request, facts, rank).make();
}

}  // namespace tutti::generators
