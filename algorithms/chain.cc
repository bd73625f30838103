// Chain: the message flows through all ranks one after another, slice by slice. The fewest bytes for
// broadcast and reduce. The ranks stand in the order of Facts::order.
#include "algorithms/builder.h"
#include "algorithms/generators.h"
#include "algorithms/order.h"

namespace tutti::generators {
namespace {

/// Two ranks can always keep rank order. Three ranks keep it only if rank 2 is the root and rank 0 is next.
bool chain_is_canonical(const Request& request, const Facts& facts) {
  if (request.rank_count <= 2) return true;
  const Order order(request, facts);
  return request.rank_count == 3 && request.root == 2 && order.rank_at((order.place_of(2) + 1) % 3) == 0;
}

/// A rank's place in the chain that starts behind the root and ends at the root, and its neighbours.
struct Place {
  uint32_t number;
  uint32_t next;
  uint32_t previous;
};

Place place_of(const Request& request, const Facts& facts, uint32_t rank) {
  const uint32_t count = request.rank_count;
  const Order order(request, facts);
  const uint32_t place = order.place_of(rank);
  return {.number = (place + count - order.place_of(request.root) - 1) % count,
          .next = order.rank_at((place + 1) % count),
          .previous = order.rank_at((place + count - 1) % count)};
}

}  // namespace

bool supports_chain(const Request& request, const Facts& facts) {
  return is_legal(request, chain_is_canonical(request, facts));
}

/// Chain reduce: from the rank after the root around to the root.
/// Shapes: input and (at the root) output are [count] of T; in place at the root allowed.
/// Cost: 1 step, P-1 latencies; each rank but the root sends the message once.
/// Scratch: none.
/// Association: canonical for two ranks, and for three ranks with root 2; otherwise its own.
/// Errors: none of its own.
/// Source: the pipeline of Chan et al., "Collective communication: theory, practice, and experience", 2007.
Plan make_chain_reduce(const Request& request, const Facts& facts, uint32_t rank) {
  const Place place = place_of(request, facts, rank);
  Builder builder(request, rank);
  builder.canonical(chain_is_canonical(request, facts));
  const Chunks all{0, 1};
  const End next = to(place.next, place.number == 0 ? Allow::kReference : Allow::kCopy);
  if (place.number == 0) {
    builder.step(all, {input(all)}, {next});
    return builder.take();
  }
  const End previous = from(place.previous, place.number == 1 ? Allow::kReference : Allow::kCopy);
  std::vector<End> operands = in_order(request.rank_count == 2 && rank == 0, input(all), previous);
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
Plan make_chain_broadcast(const Request& request, const Facts& facts, uint32_t rank) {
  const Place place = place_of(request, facts, rank);
  Builder builder(request, rank);
  const Chunks all{0, 1};
  const End source = rank == request.root ? input(all) : from(place.previous, Allow::kReference);
  std::vector<End> sinks{output(all)};
  if (place.next != request.root) sinks.push_back(to(place.next, Allow::kReference));
  builder.step(all, {source}, std::move(sinks));
  return builder.take();
}

}  // namespace tutti::generators
