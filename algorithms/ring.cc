// Ring: every rank exchanges messages only with its two neighbours, and every link carries the same bytes at
// the same time. No algorithm moves fewer bytes. The ranks stand in the order of Facts::order. With several
// orders, long messages are cut into as many parts, and each goes around its own ring.
//
// A step receives a chunk, works on it and sends it at once. So a link holds one unread chunk while the next
// is written, and needs two slots. With one slot, every rank would wait for its right neighbour to read
// first.
#include <algorithm>

#include "algorithms/builder.h"
#include "algorithms/generators.h"
#include "algorithms/order.h"

namespace tutti::generators {
namespace {

constexpr uint32_t kRingSlots = 2;

class Ring {
 public:
  Ring(const Request& request, const Facts& facts, uint32_t rank, uint32_t channel)
      : rank_(rank),
        rank_count_(request.rank_count),
        channel_(static_cast<uint8_t>(channel)),
        order_(request, facts, channel),
        place_(order_.place_of(rank)) {}

  End to_next(Allow allow) const { return to(next(), allow, channel_); }
  End from_previous(Allow allow) const { return from(back(1), allow, channel_); }

  /// The rank `distance` <= rank_count places before this one.
  uint32_t back(uint32_t distance) const {
    return order_.rank_at((place_ + rank_count_ - distance) % rank_count_);
  }
  /// The received sum and this rank's own operand. Two ranks can keep rank order, so their ring is canonical.
  /// With more ranks, chunks start at different ranks.
  std::vector<End> operands(End own, End received) const {
    return in_order(rank_count_ == 2 && rank_ == 0, own, received);
  }

 private:
  uint32_t next() const { return order_.rank_at((place_ + 1) % rank_count_); }

  uint32_t rank_;
  uint32_t rank_count_;
  uint8_t channel_;
  Order order_;
  uint32_t place_;
};

/// The number of rings that share a message whose chunks would have `chunk_bytes` in one ring. Messages that
/// are short for a link stay in one.
uint32_t ring_count(const Request& request, const Facts& facts, uint64_t chunk_bytes) {
  const uint64_t worthwhile = chunk_bytes / std::max<uint64_t>(1, facts.slot_bytes);
  return static_cast<uint32_t>(std::clamp<uint64_t>(worthwhile, 1, Order::channels_of(request, facts)));
}

}  // namespace

bool supports_ring(const Request& request, const Facts& facts) {
  return facts.slots >= kRingSlots && is_legal(request, request.rank_count <= 2);
}

/// Ring all-reduce: a reduce-scatter around the ring, then an all-gather around it.
/// Shapes: input and output are [count] of T; in place allowed; the last chunks may be short or empty.
/// Cost: 2P-1 steps in each lane, 2(P-1) latencies; each rank sends 2(P-1)/P of the message.
/// Scratch: none.
/// Association: its own above two ranks.
/// Errors: none of its own.
/// Source: Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
Plan make_ring_all_reduce(const Request& request, const Facts& facts, uint32_t rank) {
  const uint32_t rank_count = request.rank_count;
  const uint32_t rings = ring_count(request, facts, request.block_bytes / rank_count);
  Builder builder(request, rank);
  builder.chunks_per_block(rank_count * rings).slots_needed(kRingSlots).canonical(rank_count <= 2);
  for (uint32_t channel = 0; channel < rings; ++channel) {
    const Ring ring(request, facts, rank, channel);
    const auto chunk = [&](uint32_t distance) { return Chunks{ring.back(distance) * rings + channel, 1}; };
    // The first message is the rank's input. Only the finished sum overwrites the input. Sums on their way
    // are in no buffer.
    const auto allow = [&](uint32_t message) {
      return message == 0 || message >= rank_count - 1 ? Allow::kReference : Allow::kCopy;
    };

    builder.next_lane();
    builder.step(chunk(0), {input(chunk(0))}, {ring.to_next(allow(0))});
    for (uint32_t i = 1; i + 1 < rank_count; ++i) {
      builder.step(chunk(i), ring.operands(input(chunk(i)), ring.from_previous(allow(i - 1))),
                   {ring.to_next(allow(i))});
    }
    const Chunks own = chunk(rank_count - 1);
    builder.finish(own, ring.operands(input(own), ring.from_previous(allow(rank_count - 2))),
                   {output(own), ring.to_next(allow(rank_count - 1))});
    for (uint32_t i = 0; i + 1 < rank_count; ++i) {
      std::vector<End> sinks{output(chunk(i))};
      if (i + 2 < rank_count) sinks.push_back(ring.to_next(Allow::kReference));
      builder.step(chunk(i), {ring.from_previous(Allow::kReference)}, std::move(sinks));
    }
  }
  return builder.take();
}

/// Ring reduce-scatter: block b starts at rank b+1 and collects operands until it reaches rank b. Blocks
/// may differ in size.
/// Shapes: input is [P * count], output [count] of T; in place allowed.
/// Cost: P steps, P-1 latencies; each rank sends P-1 blocks.
/// Scratch: none.
/// Association: its own above two ranks.
/// Errors: none of its own.
/// Source: Patarasuk & Yuan 2009, first half.
Plan make_ring_reduce_scatter(const Request& request, const Facts& facts, uint32_t rank) {
  const uint32_t rank_count = request.rank_count;
  const uint32_t rings = ring_count(request, facts, request.block_bytes);
  Builder builder(request, rank);
  builder.chunks_per_block(rings).slots_needed(kRingSlots).canonical(rank_count <= 2);
  for (uint32_t channel = 0; channel < rings; ++channel) {
    const Ring ring(request, facts, rank, channel);
    const auto chunk = [&](uint32_t i) { return Chunks{ring.back(i + 1) * rings + channel, 1}; };
    const auto received = [&](uint32_t i) {
      return ring.from_previous(i == 1 ? Allow::kReference : Allow::kCopy);
    };
    builder.next_lane();
    builder.step(chunk(0), {input(chunk(0))}, {ring.to_next(Allow::kReference)});
    for (uint32_t i = 1; i + 1 < rank_count; ++i) {
      builder.step(chunk(i), ring.operands(input(chunk(i)), received(i)), {ring.to_next(Allow::kCopy)});
    }
    const Chunks own = chunk(rank_count - 1);
    builder.finish(own, ring.operands(input(own), received(rank_count - 1)), {output({channel, 1})});
  }
  return builder.take();
}

/// Ring all-gather: each block travels once around the ring. Blocks may differ in size.
/// Shapes: input is [count], output [P * count] of T; in place allowed.
/// Cost: P steps, P-1 latencies; each rank sends P-1 blocks.
/// Scratch: none.
/// Errors: none of its own.
/// Source: Patarasuk & Yuan 2009, second half.
Plan make_ring_all_gather(const Request& request, const Facts& facts, uint32_t rank) {
  const uint32_t rank_count = request.rank_count;
  const uint32_t rings = ring_count(request, facts, request.block_bytes);
  Builder builder(request, rank);
  builder.chunks_per_block(rings).slots_needed(kRingSlots);
  for (uint32_t channel = 0; channel < rings; ++channel) {
    const Ring ring(request, facts, rank, channel);
    const auto chunk = [&](uint32_t distance) { return Chunks{ring.back(distance) * rings + channel, 1}; };
    builder.next_lane();
    builder.step(chunk(0), {input({channel, 1})}, {output(chunk(0)), ring.to_next(Allow::kReference)});
    for (uint32_t i = 1; i < rank_count; ++i) {
      std::vector<End> sinks{output(chunk(i))};
      if (i + 1 < rank_count) sinks.push_back(ring.to_next(Allow::kReference));
      builder.step(chunk(i), {ring.from_previous(Allow::kReference)}, std::move(sinks));
    }
  }
  return builder.take();
}

}  // namespace tutti::generators
