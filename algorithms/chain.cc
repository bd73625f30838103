// Chain: the message flows through all ranks one after another, slice by slice. The fewest bytes for
// broadcast and reduce.
#include "algorithms/builder.h"
#include "algorithms/generators.h"

namespace tutti::generators {
namespace {

/// Two ranks can always keep rank order. Three ranks keep it only if rank 2 is the root.
bool chain_is_canonical(const Request& request) {
  return request.rank_count <= 2 || (request.rank_count == 3 && request.root == 2);
}

}  // namespace

bool supports_chain(const Request& request, const Facts&) {
  return is_legal(request, chain_is_canonical(request));
}

/// Chain reduce: from the rank after the root around to the root.
/// Shapes: input and (at the root) output are [count] of T; in place at the root allowed.
/// Cost: 1 step, P-1 latencies; each rank but the root sends the message once.
/// Scratch: none.
/// Association: canonical for two ranks, and for three ranks with root 2; otherwise its own.
/// Errors: none of its own.
/// Source: the pipeline of Chan et al., "Collective communication: theory, practice, and experience", 2007.
Plan make_chain_reduce(const Request& request, const Facts&, uint32_t rank) {
  const uint32_t rank_count = request.rank_count;
  Builder builder(request, rank);
  builder.canonical(chain_is_canonical(request));
  const Chunks all{0, 1};
  const uint32_t position = (rank + rank_count - request.root - 1) % rank_count;
  const End next = to((rank + 1) % rank_count, position == 0 ? Allow::kReference : Allow::kCopy);
  if (position == 0) {
    builder.step(all, {input(all)}, {next});
    return builder.take();
  }
  const End previous =
      from((rank + rank_count - 1) % rank_count, position == 1 ? Allow::kReference : Allow::kCopy);
  std::vector<End> operands = in_order(rank_count == 2 && rank == 0, input(all), previous);
  if (rank == request.root) {
    builder.finish(all, std::move(operands), {output(all)});
  } else {
    builder.step(all, std::move(operands), {next});
  }
  return builder.take();
}

/// Chain broadcast: from the root around to the rank before it.
/// Shapes: input (at the root) and output are [count] of T; in place at the root allowed.
/// Cost: 1 step, P-1 latencies; each rank but the last sends the message once.
/// Scratch: none.
/// Errors: none of its own.
/// Source: as chain reduce.
Plan make_chain_broadcast(const Request& request, const Facts&, uint32_t rank) {
  const uint32_t rank_count = request.rank_count;
  Builder builder(request, rank);
  const Chunks all{0, 1};
  const uint32_t next = (rank + 1) % rank_count;
  const End source =
      rank == request.root ? input(all) : from((rank + rank_count - 1) % rank_count, Allow::kReference);
  std::vector<End> sinks{output(all)};
  if (next != request.root) sinks.push_back(to(next, Allow::kReference));
  builder.step(all, {source}, std::move(sinks));
  return builder.take();
}

}  // namespace tutti::generators
