// Pairwise exchange: in every phase pairs of ranks exchange one block each. So no rank is overloaded, and a
// block is overwritten only after it was sent.
#include "algorithms/builder.h"
#include "algorithms/generators.h"

namespace tutti::generators {

/// Pairwise exchange all-to-all. Blocks may differ in size.
/// Shapes: input and output are [P * count] of T; in place allowed.
/// Cost: 2P-1 steps, P-1 latencies (about P if P is no power of two: every rank pauses once); each rank sends
/// and receives P-1 blocks.
/// Scratch: none.
/// Errors: none of its own.
/// Source: pairs by xor: Thakur, Rabenseifner & Gropp 2005; for other rank counts the round-robin tournament,
/// in which rank r meets (phase - r) mod P.
Plan make_pairwise_all_to_all(const Request& request, const Facts&, uint32_t rank) {
  const uint32_t rank_count = request.rank_count;
  const bool by_xor = floor_power(rank_count) == rank_count;
  Builder builder(request, rank);
  const Allow allow = request.in_place ? Allow::kCopy : Allow::kReference;
  for (uint32_t phase = 0; phase < rank_count; ++phase) {
    const uint32_t peer = by_xor ? rank ^ phase : (phase + rank_count - rank) % rank_count;
    const Chunks block{peer, 1};
    if (peer == rank) {
      builder.step(block, {input(block)}, {output(block)});
      continue;
    }
    builder.step(block, {input(block)}, {to(peer, allow)});
    builder.step(block, {from(peer, allow)}, {output(block)});
  }
  return builder.take();
}

}  // namespace tutti::generators
