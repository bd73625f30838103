// Direct one-shot: every rank sends its whole input to all ranks and reduces all inputs. One message latency
// for any rank count, but a rank reads P messages: good for short messages.
#include "algorithms/builder.h"
#include "algorithms/generators.h"

namespace tutti::generators {

/// Direct one-shot all-reduce. Also the direct barrier (the or of one byte from each rank).
/// Shapes: input and output are [count] of T; in place allowed.
/// Cost: 2 steps for 2 to 8 ranks, at most 2 + ceil(P/8) up to 64; one message latency; a rank writes its
/// message once (publish) or P-1 times (links) and reads P messages.
/// Scratch: ceil(P/8) chunks above 8 ranks (and 8 more for each further factor of 8).
/// Association: canonical for any P.
/// Errors: none of its own.
/// Source: the flat ("allpair", "one-shot") all-reduce of shared-memory and GPU libraries, e.g. Li, Hoefler &
/// Snir, "NUMA-aware shared-memory collective communication for MPI", 2013.
Plan make_direct_one_shot(const Request& request, const Facts& facts, uint32_t rank) {
  const uint32_t rank_count = request.rank_count;
  Builder builder(request, rank);
  builder.scratch_chunks(Builder::tree_scratch_chunks(rank_count)).canonical(true);
  const Chunks all{0, 1};
  // In place the output overwrites the input while other ranks may still read the input. So in place the
  // message is copied.
  const Allow allow = request.in_place ? Allow::kCopy : Allow::kReference;
  const bool publishes = publish_to_each_other(request, facts);
  if (publishes) {
    builder.step(all, {input(all)}, {publish(allow)});
  } else {
    std::vector<End> peers;
    for (uint32_t i = 1; i < rank_count; ++i) peers.push_back(to((rank + i) % rank_count, allow));
    builder.spread(all, input(all), peers);
  }
  const auto operand = [&](uint32_t from_rank) {
    if (from_rank == rank) return input(all);
    return publishes ? published_by(from_rank, allow) : from(from_rank, allow);
  };
  builder.reduce_in_rank_order(all, operand, {output(all)});
  return builder.take();
}

}  // namespace tutti::generators
