// Direct two-shot: each rank receives its chunk from all ranks, reduces the chunk, and sends the result to
// all ranks. Every byte is reduced once.
#include "algorithms/builder.h"
#include "algorithms/generators.h"

namespace tutti::generators {

// Without publish a rank's chunk and its result take the same link. The step that sends results receives
// chunks from the same ranks, so a link holds two chunks at a time.
bool supports_direct_two_shot(const Request&, const Facts& facts) {
  return facts.can_publish || facts.slots >= 2;
}

/// Direct two-shot all-reduce.
/// Shapes: input and output are [count] of T; in place allowed; the last chunks may be short or empty.
/// Cost: 2P-1 steps up to 8 ranks, two message latencies; a rank sends (P-1)/P of the message and publishes
/// 1/P (without publish: sends 2(P-1)/P); it reads and reduces P chunks.
/// Scratch: as direct one-shot.
/// Association: canonical for any P.
/// Errors: none of its own.
/// Source: reduce-scatter + all-gather (Rabenseifner 2004) with direct exchanges, the "two-shot" of GPU
/// libraries.
Plan make_direct_two_shot(const Request& request, const Facts& facts, uint32_t rank) {
  const uint32_t rank_count = request.rank_count;
  Builder builder(request, rank);
  builder.chunks_per_block(rank_count)
      .slots_needed(facts.can_publish ? 1 : 2)
      .scratch_chunks(Builder::tree_scratch_chunks(rank_count))
      .canonical(true);
  const auto peer = [&](uint32_t i) { return (rank + i) % rank_count; };

  // By reference: a rank writes a peer's chunk of its output only after that peer's result has arrived. By
  // then the peer has read this rank's input.
  for (uint32_t i = 1; i < rank_count; ++i) {
    const Chunks chunk{peer(i), 1};
    builder.step(chunk, {input(chunk)}, {to(peer(i), Allow::kReference)});
  }

  const Chunks own{rank, 1};
  const auto operand = [&](uint32_t from_rank) {
    return from_rank == rank ? input(own) : from(from_rank, Allow::kReference);
  };
  // One step writes the result to the output and sends it. So the step may also store the result in the
  // readers' outputs.
  const bool one_step = facts.can_publish || rank_count <= kMaxStepSinks;
  const Allow allow = one_step ? Allow::kDirectWrite : Allow::kReference;
  std::vector<End> readers;
  if (facts.can_publish) {
    readers.push_back(publish(allow));
  } else {
    for (uint32_t i = 1; i < rank_count; ++i) readers.push_back(to(peer(i), allow));
  }
  const size_t with_result = std::min<size_t>(readers.size(), kMaxStepSinks - 1);
  std::vector<End> sinks{output(own)};
  sinks.insert(sinks.end(), readers.begin(), readers.begin() + static_cast<ptrdiff_t>(with_result));
  readers.erase(readers.begin(), readers.begin() + static_cast<ptrdiff_t>(with_result));
  builder.reduce_in_rank_order(own, operand, std::move(sinks));
  builder.spread(own, output(own), readers);

  for (uint32_t i = 1; i < rank_count; ++i) {
    const Chunks chunk{peer(i), 1};
    const End result =
        facts.can_publish ? published_by(peer(i), Allow::kReference) : from(peer(i), Allow::kReference);
    builder.step(chunk, {result}, {output(chunk)});
  }
  return builder.take();
}

}  // namespace tutti::generators
