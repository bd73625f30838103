// Builder: code that all generators share. Functions for ends, named as in the plan's text form; a builder
// that collects steps; and three common shapes: reduction in the canonical tree, ranks folded into a power of
// a radix, and exchanges cut into pieces that fit a link's slots.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace tutti::generators {

/// Consecutive chunks of a buffer.
struct Chunks {
  uint32_t first = 0;
  uint32_t count = 1;

  uint32_t end() const { return first + count; }
};

/// Whether a message may travel as a reference to its source chunk (End::reference_ok), or may also be stored
/// at the receiver's target (End::direct_write_ok). On a source kDirectWrite means the same as kReference.
enum class Allow : uint8_t { kCopy, kReference, kDirectWrite };

End input(Chunks chunks);
End output(Chunks chunks);
End scratch(Chunks chunks);
End to(uint32_t peer, Allow allow, uint8_t channel = 0);
End from(uint32_t peer, Allow allow, uint8_t channel = 0);
End publish(Allow allow);
End published_by(uint32_t peer, Allow allow);
End collect();

/// Largest power of `radix` that is at most `n`. n >= 1, radix >= 2.
uint32_t floor_power(uint32_t n, uint32_t radix = 2);
/// Where the canonical tree splits n >= 2 operands: the largest power of two below n.
uint32_t canonical_split(uint32_t n);

/// kNone if the collective does not reduce, else kCanonical or kAny.
PlanAssociation association_of(Collective collective, bool canonical);
/// Whether a plan with this association may serve the request. Reproducible mode needs the canonical tree.
bool is_legal(const Request& request, bool canonical);

/// Most chunks in one step of an exchange of up to `most` chunks. Limited so that the chunks fit a link's
/// slots.
uint32_t window_of(uint32_t most, const Facts& facts);

/// Bytes of the block that a rank owns where each rank completes one block: of an all_reduce, its share.
uint64_t owned_bytes(const Request& request);

/// Whether ranks that show all others something in the same call publish it. Two ranks use links: there each
/// answers in the slots that it has just read, and a line crosses once (docs/measurements/carriage.md).
bool publish_to_each_other(const Request& request, const Facts& facts);

/// Number of lanes, a power of two, into which a plan cuts chunks of `chunk_bytes`. Each lane has its own
/// channel, so one lane works inside the host while another waits for the network.
uint32_t lanes_of(uint64_t chunk_bytes, const Facts& facts);

/// Takes up to `room` readers from `readers`. These become sinks of the step that writes the result to the
/// output. The remaining readers read the output, so they get no direct writes.
std::vector<End> take_readers(std::vector<End>& readers, size_t room);

/// Calls `body(piece)` for pieces of at most `window` chunks, in ascending order.
template <class Body>
void for_each_piece(Chunks range, uint32_t window, const Body& body) {
  for (uint32_t first = range.first; first < range.end(); first += window) {
    body(Chunks{first, std::min(window, range.end() - first)});
  }
}

/// A send and a receive of two ranks that both send first, interleaved piece by piece. A link never holds
/// more than one piece. The two counts may differ.
template <class Send, class Receive>
void exchange(Chunks sent, Chunks received, uint32_t window, const Send& send, const Receive& receive) {
  for (uint32_t done = 0; done < std::max(sent.count, received.count); done += window) {
    if (done < sent.count) send(Chunks{sent.first + done, std::min(window, sent.count - done)});
    if (done < received.count)
      receive(Chunks{received.first + done, std::min(window, received.count - done)});
  }
}

/// Two operands of a reduction, in the order of their ranks.
inline std::vector<End> in_order(bool own_first, End own, End other) {
  if (own_first) return {own, other};
  return {other, own};
}

/// Ranks in contiguous groups; the first `extra` groups have one rank more. A group's first rank is its
/// leader. With radix k there are k^m groups of at most k ranks. The leaders run an algorithm that needs a
/// power of k. Other members send their operand to their leader and receive the result.
class Fold {
 public:
  Fold(uint32_t rank_count, uint32_t radix);

  uint32_t groups() const { return groups_; }
  uint32_t first_rank(uint32_t group) const { return group * base_ + std::min(group, extra_); }
  uint32_t size(uint32_t group) const { return base_ + (group < extra_ ? 1 : 0); }
  uint32_t group_of(uint32_t rank) const;
  /// The ranks of the groups [begin, end). Blocks have the same numbers.
  Chunks blocks(uint32_t begin, uint32_t end) const {
    return {first_rank(begin), first_rank(end) - first_rank(begin)};
  }
  /// Whether the canonical tree results if neighbours are combined level by level, with each level's radix
  /// groups in one step.
  bool is_canonical() const;

 private:
  bool is_canonical(uint32_t first_child, uint32_t child_count, uint32_t child_groups) const;

  uint32_t groups_;
  uint32_t base_;
  uint32_t extra_;
  uint32_t radix_;
};

/// Collects one rank's plan lane by lane. registry.cc adds the name.
class Builder {
 public:
  Builder(const Request& request, uint32_t rank);

  Builder& chunks_per_block(uint32_t count);
  Builder& scratch_chunks(uint32_t count);
  Builder& slots_needed(uint32_t count);
  Builder& canonical(bool yes);

  void next_lane();
  /// `data` gives Step::first_chunk and chunk_count.
  void step(Chunks data, std::vector<End> sources, std::vector<End> sinks);
  /// As step, and completes the reduction of the chunks.
  void finish(Chunks data, std::vector<End> sources, std::vector<End> sinks);

  /// Copies one source to any number of sinks, at most kMaxStepSinks in each step.
  void spread(Chunks data, const End& source, const std::vector<End>& sinks);

  /// Reduces one chunk of all ranks in the canonical tree. `operand(q)` is rank q's end; each is read once,
  /// in rank order. Above kMaxStepSources ranks the reduction takes aligned groups of kMaxStepSources through
  /// scratch [0, tree_scratch_chunks). The last step has the sinks, and finishes if the collective reduces.
  void reduce_in_rank_order(Chunks data, const std::function<End(uint32_t)>& operand, std::vector<End> sinks);

  /// Reduces one chunk of `count` >= 1 operands in the canonical tree over their numbers, as
  /// reduce_in_rank_order does. Uses scratch [scratch_first, scratch_first + tree_scratch_chunks(count)).
  struct Operands {
    uint32_t count = 1;
    std::function<End(uint32_t)> end;
    uint32_t scratch_first = 0;
    bool finish = false;  ///< this completes the reduction
  };
  void reduce_in_order(Chunks data, const Operands& operands, std::vector<End> sinks);
  static uint32_t tree_scratch_chunks(uint32_t count);

  /// Drops lanes without steps.
  Plan take();

 private:
  void reduce_range(Chunks data, const Operands& operands, std::pair<uint32_t, uint32_t> range,
                    uint32_t child_count, uint32_t scratch_level, std::vector<End> sinks, bool last);

  Plan plan_;
};

}  // namespace tutti::generators
