// Dissemination: in phase i every rank sends its result so far to the rank 2^i after it. Works for any rank
// count. Some operands arrive twice, which is harmless for the barrier's or.
#include "algorithms/builder.h"
#include "algorithms/generators.h"

namespace tutti::generators {

/// Dissemination barrier: input and output are one byte, the or over all ranks.
/// Shapes: input and output are [1] of uint8; in place allowed.
/// Cost: 1 + ceil(log2 P) steps, ceil(log2 P) latencies and messages.
/// Scratch: none.
/// Errors: none of its own.
/// Source: Hensgen, Finkel & Manber, "Two algorithms for barrier synchronization", 1988.
Plan make_dissemination_barrier(const Request& request, const Facts&, uint32_t rank) {
  const uint32_t rank_count = request.rank_count;
  Builder builder(request, rank);
  const Chunks all{0, 1};
  // The next phase overwrites a rank's result so far, so the result travels as a copy.
  const auto after = [&](uint32_t distance) { return to((rank + distance) % rank_count, Allow::kCopy); };
  const auto before = [&](uint32_t distance) {
    return from((rank + rank_count - distance) % rank_count, Allow::kCopy);
  };
  builder.step(all, {input(all)}, {after(1)});
  for (uint32_t distance = 1; distance < rank_count; distance *= 2) {
    const End known = distance == 1 ? input(all) : output(all);
    std::vector<End> sinks{output(all)};
    if (distance * 2 < rank_count) sinks.push_back(after(distance * 2));
    builder.step(all, {known, before(distance)}, std::move(sinks));
  }
  return builder.take();
}

}  // namespace tutti::generators
