// Multicast: the switch between the devices does the work of the ranks in direct_two_shot. One load returns
// the sum of all contributions (collect), and one store writes a result to all ranks (publish). A byte passes
// each device's port once in each direction, for any number of ranks.
//
// Copies into and out of multicast memory and the work of the switch are lanes of their own, so one lane's
// copies overlap with another's bytes on the port. All ranks contribute in one order: then the first rank can
// collect while they still contribute to the last.
#include "plan/multicast.h"
#include "algorithms/builder.h"
#include "algorithms/generators.h"

namespace tutti::generators {
namespace {

End contribution_to(uint32_t collector) {
  return to(collector, Allow::kCopy, kCollectChannel);
}

/// Steps in which every rank gives chunk q of its input to rank q.
void contribute(Builder& builder, const Request& request) {
  for (uint32_t q = 0; q < request.rank_count; ++q) {
    const Chunks chunk{q, 1};
    builder.step(chunk, {input(chunk)}, {contribution_to(q)});
  }
}

/// Steps that copy what the other ranks publish to the output, in the order of ranks.
void take_published(Builder& builder, const Request& request, uint32_t rank) {
  for (uint32_t peer = 0; peer < request.rank_count; ++peer) {
    if (peer != rank) builder.step({peer, 1}, {published_by(peer, Allow::kCopy)}, {output({peer, 1})});
  }
}

}  // namespace

/// Messages are copied, because the switch cannot reach the users' buffers.
bool supports_multicast(const Request& request, const Facts& facts) {
  if (!facts.can_multicast) return false;
  if (!reduces(request.collective)) return true;
  return !request.reproducible && multicast_reduces(request.type, request.op);
}

/// Multicast all-reduce: every rank collects one chunk and publishes the result.
/// Shapes: input and output are [count] of T; in place allowed; the last chunks may be short or empty.
/// Cost: 2P steps, two message latencies; a rank writes the message to its own memory, collects 1/P of the
/// message and publishes that part.
/// Scratch: none.
/// Association: the hardware's own.
/// Errors: none of its own.
/// Source: Klenk et al., "An in-network architecture for accelerating shared-memory multiprocessor
/// collectives", 2020.
Plan make_multicast_all_reduce(const Request& request, const Facts&, uint32_t rank) {
  Builder builder(request, rank);
  builder.chunks_per_block(request.rank_count).canonical(false);
  contribute(builder, request);
  builder.next_lane();
  const Chunks own{rank, 1};
  builder.finish(own, {collect()}, {output(own), publish(Allow::kCopy)});
  builder.next_lane();
  take_published(builder, request, rank);
  return builder.take();
}

/// Multicast reduce-scatter: every rank collects its block.
/// Shapes: input is [P * count] of T, output [count]; in place allowed; blocks may differ.
/// Cost: P+1 steps, one message latency; a rank writes its input to its own memory and collects one block.
/// Scratch: none. Association: the hardware's own.
/// Errors: none of its own.
/// Source: as multicast all-reduce.
Plan make_multicast_reduce_scatter(const Request& request, const Facts&, uint32_t rank) {
  Builder builder(request, rank);
  builder.canonical(false);
  contribute(builder, request);
  builder.next_lane();
  builder.finish({rank, 1}, {collect()}, {output({0, 1})});
  return builder.take();
}

/// Multicast all-gather: every rank publishes its block.
/// Shapes: input is [count] of T, output [P * count]; in place allowed; blocks may differ.
/// Cost: P steps, one message latency; a rank sends one block. Scratch: none.
/// Errors: none of its own.
/// Source: as multicast all-reduce.
Plan make_multicast_all_gather(const Request& request, const Facts&, uint32_t rank) {
  Builder builder(request, rank);
  builder.step({rank, 1}, {input({0, 1})}, {output({rank, 1}), publish(Allow::kCopy)});
  builder.next_lane();
  take_published(builder, request, rank);
  return builder.take();
}

/// Multicast broadcast: the root publishes its input.
/// Shapes: input (of the root) and output are [count] of T; in place allowed.
/// Cost: 1 step, one message latency; the root sends the message once. Scratch: none.
/// Errors: none of its own.
/// Source: as multicast all-reduce.
Plan make_multicast_broadcast(const Request& request, const Facts&, uint32_t rank) {
  Builder builder(request, rank);
  if (rank == request.root) {
    builder.step({0, 1}, {input({0, 1})}, {output({0, 1}), publish(Allow::kCopy)});
  } else {
    builder.step({0, 1}, {published_by(request.root, Allow::kCopy)}, {output({0, 1})});
  }
  return builder.take();
}

/// Multicast reduce: the root collects the message.
/// Shapes: input and output (of the root) are [count] of T; in place allowed.
/// Cost: at most 2 steps, one message latency; the root receives the message once.
/// Scratch: none.
/// Association: the hardware's own.
/// Errors: none of its own.
/// Source: as multicast all-reduce.
Plan make_multicast_reduce(const Request& request, const Facts&, uint32_t rank) {
  Builder builder(request, rank);
  builder.canonical(false);
  builder.step({0, 1}, {input({0, 1})}, {contribution_to(request.root)});
  if (rank == request.root) builder.finish({0, 1}, {collect()}, {output({0, 1})});
  return builder.take();
}

}  // namespace tutti::generators
