// Bruck: all-gather and all-to-all for any rank count; in phase i data moves 2^i ranks. All-gather moves no
// block twice. All-to-all moves a block once for each set bit of its distance: fewer messages, but more
// bytes.
#include "algorithms/builder.h"
#include "algorithms/generators.h"

namespace tutti::generators {
namespace {

/// Calls body(chunks) for the positions [first, first + count) modulo `modulus`, in at most two pieces.
template <class Body>
void for_each_unwrapped(uint32_t first, uint32_t count, uint32_t modulus, const Body& body) {
  first %= modulus;
  const uint32_t before_wrap = std::min(count, modulus - first);
  body(Chunks{first, before_wrap});
  if (before_wrap < count) body(Chunks{0, count - before_wrap});
}

/// All-to-all: a block's name is its distance, destination minus source. Distances with bit k set move in
/// phase k, in descending order. Then the blocks that a rank received last are in ascending order of the
/// output.
class BruckAllToAll {
 public:
  BruckAllToAll(const Request& request, const Facts& facts, uint32_t rank)
      : rank_(rank), rank_count_(request.rank_count), builder_(request, rank) {
    uint32_t most = 0;
    for (uint32_t bit = 1; bit < rank_count_; bit *= 2) most = std::max(most, moving(bit, 0));
    uint32_t next_area = most;
    for (uint32_t bit = 1; bit < rank_count_; bit *= 2) {
      area_.push_back(next_area);
      next_area += moving(bit, 0);
    }
    window_ = window_of(most, facts);
    builder_.scratch_chunks(next_area).slots_needed(window_);
  }

  Plan make() {
    for (uint32_t bit = 1; bit < rank_count_; bit *= 2) move(bit);
    // Only now, because in place the output is the input.
    std::vector<Run> runs;
    for (uint32_t distance = rank_count_ - 1; distance > 0; --distance) {
      append(runs, output({(rank_ + rank_count_ - distance) % rank_count_, 1}),
             location(distance, floor_power(distance) * 2));
    }
    copy(runs);
    const Chunks own{rank_, 1};
    builder_.step(own, {input(own)}, {output(own)});
    return builder_.take();
  }

 private:
  /// A copy of consecutive chunks.
  struct Run {
    End sink;
    End source;
  };

  /// Number of distances >= `least` with the bit set.
  uint32_t moving(uint32_t bit, uint32_t least) const {
    const auto below = [bit](uint32_t end) {
      const uint32_t rest = end % (2 * bit);
      return end / (2 * bit) * bit + (rest > bit ? rest - bit : 0);
    };
    return below(rank_count_) - below(least);
  }

  /// The location of a distance's block before the phase of `bit`: the place of its last receive.
  End location(uint32_t distance, uint32_t bit) const {
    const uint32_t done = distance & (bit - 1);
    if (done == 0) return input({(rank_ + distance) % rank_count_, 1});
    const uint32_t last = floor_power(done);
    uint32_t phase = 0;
    while ((1u << phase) < last) ++phase;
    return scratch({area_[phase] + moving(last, distance + 1), 1});
  }

  static void append(std::vector<Run>& runs, const End& sink, const End& source) {
    const auto follows = [](const End& last, const End& end) {
      return last.kind == end.kind && last.first_chunk + last.chunk_count == end.first_chunk;
    };
    if (!runs.empty() && follows(runs.back().sink, sink) && follows(runs.back().source, source)) {
      ++runs.back().sink.chunk_count;
      ++runs.back().source.chunk_count;
    } else {
      runs.push_back({sink, source});
    }
  }

  void copy(const std::vector<Run>& runs) {
    for (const Run& run : runs) builder_.step({0, run.sink.chunk_count}, {run.source}, {run.sink});
  }

  void move(uint32_t bit) {
    std::vector<Run> runs;
    for (uint32_t distance = rank_count_ - 1; distance >= bit; --distance) {
      if ((distance & bit) == 0) continue;
      const auto packed = static_cast<uint32_t>(moving(bit, distance + 1));
      append(runs, scratch({packed, 1}), location(distance, bit));
    }
    // One run needs no packing.
    const bool is_packed = runs.size() > 1;
    if (is_packed) copy(runs);
    const uint32_t count = moving(bit, 0);
    const uint32_t after = (rank_ + bit) % rank_count_;
    const uint32_t before = (rank_ + rank_count_ - bit) % rank_count_;
    uint32_t phase = 0;
    while ((1u << phase) < bit) ++phase;
    exchange(
        {0, count}, {0, count}, window_,
        [&](Chunks piece) {
          End source = is_packed ? scratch({0, 1}) : runs[0].source;
          source.first_chunk += piece.first;
          source.chunk_count = piece.count;
          builder_.step({0, piece.count}, {source}, {to(after, Allow::kCopy)});
        },
        [&](Chunks piece) {
          builder_.step({0, piece.count}, {from(before, Allow::kCopy)},
                        {scratch({area_[phase] + piece.first, piece.count})});
        });
  }

  uint32_t rank_;
  uint32_t rank_count_;
  uint32_t window_ = 1;
  std::vector<uint32_t> area_;  ///< first scratch chunk of what each phase receives
  Builder builder_;
};

}  // namespace

/// Bruck all-gather. Blocks may differ in size.
/// Shapes: input is [count], output [P * count] of T; in place allowed.
/// Cost: ceil(log2 P) latencies; 2 ceil(log2 P) steps, more if a phase's blocks wrap around the last rank or
/// do not fit the slots of a link; each rank sends P-1 blocks. Each block goes straight to its place, so
/// there is no final rotation.
/// Scratch: none.
/// Errors: none of its own.
/// Source: Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing
/// systems", 1997.
Plan make_bruck_all_gather(const Request& request, const Facts& facts, uint32_t rank) {
  const uint32_t rank_count = request.rank_count;
  Builder builder(request, rank);
  const uint32_t window = window_of(rank_count / 2, facts);
  builder.slots_needed(window);
  const auto peer_before = [&](uint32_t distance) { return (rank + rank_count - distance) % rank_count; };
  builder.step({rank, 1}, {input({0, 1})}, {output({rank, 1}), to(peer_before(1), Allow::kReference)});
  for (uint32_t distance = 1; distance < rank_count; distance *= 2) {
    const uint32_t count = std::min(distance, rank_count - distance);
    const uint32_t peer_after = (rank + distance) % rank_count;
    exchange(
        {0, distance == 1 ? 0 : count}, {0, count}, window,
        [&](Chunks piece) {
          for_each_unwrapped(rank + piece.first, piece.count, rank_count, [&](Chunks blocks) {
            builder.step(blocks, {output(blocks)}, {to(peer_before(distance), Allow::kReference)});
          });
        },
        [&](Chunks piece) {
          for_each_unwrapped(peer_after + piece.first, piece.count, rank_count, [&](Chunks blocks) {
            builder.step(blocks, {from(peer_after, Allow::kReference)}, {output(blocks)});
          });
        });
  }
  return builder.take();
}

/// Bruck all-to-all.
/// Shapes: input and output are [P * count] of T, equal blocks; in place allowed.
/// Cost: ceil(log2 P) latencies. Each phase has one message if half the blocks fit the slots of a link, and
/// local copies that pack the message (about 2P copies in all). Each rank sends about P/2 log2 P blocks.
/// Scratch: about P/2 (1 + log2 P) chunks.
/// Errors: none of its own.
/// Source: Bruck et al. 1997, without the rotations, as in Traeff, Rougier & Hunold, "Implementing a classic:
/// zero-copy all-to-all communication with MPI datatypes", 2014.
Plan make_bruck_all_to_all(const Request& request, const Facts& facts, uint32_t rank) {
  return BruckAllToAll(request, facts, rank).make();
}

}  // namespace tutti::generators
