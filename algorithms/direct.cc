// Direct: every block goes straight to the rank that needs it. The fastest way wherever memory is shared, but
// one rank may handle P-1 messages.
#include "algorithms/builder.h"
#include "algorithms/generators.h"

namespace tutti::generators {
namespace {

/// One publication, or links to all other ranks, starting with the next.
std::vector<End> to_everybody(const Request& request, bool publishes, uint32_t rank) {
  if (publishes) return {publish(Allow::kReference)};
  std::vector<End> sinks;
  for (uint32_t i = 1; i < request.rank_count; ++i)
    sinks.push_back(to((rank + i) % request.rank_count, Allow::kReference));
  return sinks;
}

End from_one(bool publishes, uint32_t peer) {
  return publishes ? published_by(peer, Allow::kReference) : from(peer, Allow::kReference);
}

}  // namespace

bool supports_everything(const Request&, const Facts&) {
  return true;
}

/// Direct reduce: every rank sends its input to the root, and the root reduces all inputs.
/// Shapes: input and (at the root) output are [count] of T; in place at the root allowed.
/// Cost: 1 step at a sender, 1 (P <= 8) or 1 + ceil(P/8) at the root; one message latency; P-1 messages into
/// the root.
/// Scratch: as direct one-shot.
/// Association: canonical for any P.
/// Errors: none of its own.
/// Source: the linear algorithm of every MPI.
Plan make_direct_reduce(const Request& request, const Facts&, uint32_t rank) {
  Builder builder(request, rank);
  builder.scratch_chunks(Builder::tree_scratch_chunks(request.rank_count)).canonical(true);
  const Chunks all{0, 1};
  if (rank != request.root) {
    builder.step(all, {input(all)}, {to(request.root, Allow::kReference)});
    return builder.take();
  }
  const auto operand = [&](uint32_t from_rank) {
    return from_rank == rank ? input(all) : from(from_rank, Allow::kReference);
  };
  builder.reduce_in_rank_order(all, operand, {output(all)});
  return builder.take();
}

/// Direct broadcast: the root sends its input to all ranks.
/// Shapes: input (at the root) and output are [count] of T; in place at the root allowed.
/// Cost: 1 step for each rank (ceil(P/8) at the root without publish), one message latency; the root writes
/// the message once (publish) or P-1 times.
/// Scratch: none.
/// Errors: none of its own.
/// Source: the linear algorithm of every MPI.
Plan make_direct_broadcast(const Request& request, const Facts& facts, uint32_t rank) {
  Builder builder(request, rank);
  const Chunks all{0, 1};
  if (rank != request.root) {
    builder.step(all, {from_one(facts.can_publish, request.root)}, {output(all)});
    return builder.take();
  }
  std::vector<End> sinks = to_everybody(request, facts.can_publish, rank);
  sinks.push_back(output(all));
  builder.spread(all, input(all), sinks);
  return builder.take();
}

/// Direct all-gather: every rank sends its block to all ranks. Blocks may differ in size.
/// Shapes: input is [count], output [P * count] of T; in place allowed.
/// Cost: P steps (more send steps without publish), one message latency; a rank writes its block once
/// (publish) or P-1 times and reads P-1 blocks.
/// Scratch: none.
/// Errors: none of its own.
/// Source: the linear algorithm of every MPI.
Plan make_direct_all_gather(const Request& request, const Facts& facts, uint32_t rank) {
  Builder builder(request, rank);
  const Chunks own{rank, 1};
  const bool publishes = publish_to_each_other(request, facts);
  std::vector<End> sinks = to_everybody(request, publishes, rank);
  sinks.insert(sinks.begin(), output(own));
  builder.spread(own, input({0, 1}), sinks);
  for (uint32_t i = 1; i < request.rank_count; ++i) {
    const uint32_t peer = (rank + i) % request.rank_count;
    builder.step({peer, 1}, {from_one(publishes, peer)}, {output({peer, 1})});
  }
  return builder.take();
}

/// Direct reduce-scatter: each rank receives its block from all ranks and reduces it. Blocks may differ in
/// size.
/// Shapes: input is [P * count], output [count] of T; in place allowed.
/// Cost: P steps up to 8 ranks, one message latency; a rank sends P-1 blocks and reduces P.
/// Scratch: as direct one-shot.
/// Association: canonical for any P.
/// Errors: none of its own.
/// Source: the first half of direct two-shot.
Plan make_direct_reduce_scatter(const Request& request, const Facts&, uint32_t rank) {
  const uint32_t rank_count = request.rank_count;
  Builder builder(request, rank);
  builder.scratch_chunks(Builder::tree_scratch_chunks(rank_count)).canonical(true);
  for (uint32_t i = 1; i < rank_count; ++i) {
    const uint32_t peer = (rank + i) % rank_count;
    builder.step({peer, 1}, {input({peer, 1})}, {to(peer, Allow::kReference)});
  }
  const auto operand = [&](uint32_t from_rank) {
    return from_rank == rank ? input({rank, 1}) : from(from_rank, Allow::kReference);
  };
  builder.reduce_in_rank_order({rank, 1}, operand, {output({0, 1})});
  return builder.take();
}

/// Direct all-to-all: P-1 sends, then P-1 receives. Rank r starts with r+1, so the ranks do not all start
/// with the same peer. Blocks may differ in size.
/// Shapes: input and output are [P * count] of T; in place allowed.
/// Cost: 2P-1 steps, one message latency; a rank sends and receives P-1 blocks.
/// Scratch: none.
/// Errors: none of its own.
/// Source: the linear (spread) algorithm of every MPI.
Plan make_direct_all_to_all(const Request& request, const Facts&, uint32_t rank) {
  const uint32_t rank_count = request.rank_count;
  Builder builder(request, rank);
  // In place, the block from a peer overwrites the block to that peer.
  const Allow allow = request.in_place ? Allow::kCopy : Allow::kReference;
  for (uint32_t i = 1; i < rank_count; ++i) {
    const uint32_t peer = (rank + i) % rank_count;
    builder.step({peer, 1}, {input({peer, 1})}, {to(peer, allow)});
  }
  builder.step({rank, 1}, {input({rank, 1})}, {output({rank, 1})});
  for (uint32_t i = 1; i < rank_count; ++i) {
    const uint32_t peer = (rank + rank_count - i) % rank_count;
    builder.step({peer, 1}, {from(peer, allow)}, {output({peer, 1})});
  }
  return builder.take();
}

/// Direct gather: every rank sends its block to the root.
/// Shapes: input is [count], output (at the root) [P * count] of T; in place at the root allowed.
/// Cost: 1 step at a sender, P at the root; one message latency; P-1 messages into the root.
/// Scratch: none.
/// Errors: none of its own.
/// Source: the linear algorithm of every MPI.
Plan make_direct_gather(const Request& request, const Facts&, uint32_t rank) {
  Builder builder(request, rank);
  if (rank != request.root) {
    builder.step({rank, 1}, {input({0, 1})}, {to(request.root, Allow::kReference)});
    return builder.take();
  }
  builder.step({rank, 1}, {input({0, 1})}, {output({rank, 1})});
  for (uint32_t i = 1; i < request.rank_count; ++i) {
    const uint32_t peer = (rank + i) % request.rank_count;
    builder.step({peer, 1}, {from(peer, Allow::kReference)}, {output({peer, 1})});
  }
  return builder.take();
}

/// Direct scatter: the root sends each rank its block.
/// Shapes: input (at the root) is [P * count], output [count] of T; in place at the root allowed.
/// Cost: 1 step at a receiver, P at the root; one message latency; P-1 messages out of the root.
/// Scratch: none.
/// Errors: none of its own.
/// Source: the linear algorithm of every MPI.
Plan make_direct_scatter(const Request& request, const Facts&, uint32_t rank) {
  Builder builder(request, rank);
  if (rank != request.root) {
    builder.step({rank, 1}, {from(request.root, Allow::kReference)}, {output({0, 1})});
    return builder.take();
  }
  for (uint32_t i = 1; i < request.rank_count; ++i) {
    const uint32_t peer = (rank + i) % request.rank_count;
    builder.step({peer, 1}, {input({peer, 1})}, {to(peer, Allow::kReference)});
  }
  builder.step({rank, 1}, {input({rank, 1})}, {output({0, 1})});
  return builder.take();
}

}  // namespace tutti::generators
