// Code that all generators share: see builder.h.
#include "algorithms/builder.h"

namespace tutti::generators {
namespace {

constexpr uint32_t kFanIn = kMaxStepSources;
/// Fewest slots in a lane's part of a chunk. Shorter parts would make more messages, but no more messages
/// under way at once.
constexpr uint64_t kLaneSlots = 4;

End buffer(EndKind kind, Chunks chunks) {
  return {.kind = kind, .first_chunk = chunks.first, .chunk_count = chunks.count};
}

End link(uint32_t peer, Allow allow, uint8_t channel) {
  return {.kind = EndKind::kLink, .reference_ok = allow != Allow::kCopy, .channel = channel, .peer = peer};
}

/// Number of operands under each child of the root, in a tree of fan-in kFanIn over `count` operands.
uint32_t root_child_count(uint32_t count) {
  uint32_t child_count = 1;
  while (uint64_t{child_count} * kFanIn < count) child_count *= kFanIn;
  return child_count;
}

}  // namespace

End input(Chunks chunks) {
  return buffer(EndKind::kInput, chunks);
}
End output(Chunks chunks) {
  return buffer(EndKind::kOutput, chunks);
}
End scratch(Chunks chunks) {
  return buffer(EndKind::kScratch, chunks);
}
End to(uint32_t peer, Allow allow, uint8_t channel) {
  End end = link(peer, allow, channel);
  end.direct_write_ok = allow == Allow::kDirectWrite;
  return end;
}
End from(uint32_t peer, Allow allow, uint8_t channel) {
  return link(peer, allow, channel);
}
End publish(Allow allow) {
  return {.kind = EndKind::kPublish,
          .reference_ok = allow != Allow::kCopy,
          .direct_write_ok = allow == Allow::kDirectWrite};
}
End published_by(uint32_t peer, Allow allow) {
  return link(peer, allow, kPublishChannel);
}
End collect() {
  return {.kind = EndKind::kCollect};
}

uint32_t floor_power(uint32_t n, uint32_t radix) {
  uint32_t power = 1;
  while (uint64_t{power} * radix <= n) power *= radix;
  return power;
}

uint32_t canonical_split(uint32_t n) {
  return floor_power(n - 1);
}

PlanAssociation association_of(Collective collective, bool canonical) {
  if (!reduces(collective)) return PlanAssociation::kNone;
  return canonical ? PlanAssociation::kCanonical : PlanAssociation::kAny;
}

bool is_legal(const Request& request, bool canonical) {
  return canonical || !request.reproducible || !reduces(request.collective);
}

uint32_t window_of(uint32_t most, const Facts& facts) {
  return std::max(1u, std::min(most, facts.slots));
}

uint64_t owned_bytes(const Request& request) {
  return request.block_bytes / (request.collective == Collective::kAllReduce ? request.rank_count : 1);
}

bool publish_to_each_other(const Request& request, const Facts& facts) {
  return facts.can_publish && request.rank_count > 2;
}

uint32_t lanes_of(uint64_t chunk_bytes, const Facts& facts) {
  const uint64_t lanes = chunk_bytes / (kLaneSlots * std::max<uint64_t>(1, facts.slot_bytes));
  return floor_power(static_cast<uint32_t>(std::clamp<uint64_t>(lanes, 1, kPlanChannels)));
}

std::vector<End> take_readers(std::vector<End>& readers, size_t room) {
  const auto count = static_cast<ptrdiff_t>(std::min(readers.size(), room));
  std::vector<End> sinks(readers.begin(), readers.begin() + count);
  readers.erase(readers.begin(), readers.begin() + count);
  for (End& reader : readers) reader.direct_write_ok = false;
  return sinks;
}

Fold::Fold(uint32_t rank_count, uint32_t radix)
    : groups_(floor_power(rank_count, radix)),
      base_(rank_count / groups_),
      extra_(rank_count % groups_),
      radix_(radix) {}

uint32_t Fold::group_of(uint32_t rank) const {
  const uint32_t ranks_in_large_groups = extra_ * (base_ + 1);
  if (rank < ranks_in_large_groups) return rank / (base_ + 1);
  return extra_ + (rank - ranks_in_large_groups) / base_;
}

bool Fold::is_canonical() const {
  return is_canonical(0, 1, groups_);
}

// A step over `child_count` neighbours of `child_groups` groups each is associated as the canonical tree over
// the neighbours. This equals the canonical tree over the ranks if every split of the neighbours is also the
// ranks' split.
bool Fold::is_canonical(uint32_t first_child, uint32_t child_count, uint32_t child_groups) const {
  const uint32_t begin = first_child * child_groups;
  if (child_count == 1) {
    if (child_groups == 1) return true;  // the leader reduces its group in one step
    return is_canonical(first_child * radix_, radix_, child_groups / radix_);
  }
  const uint32_t left = canonical_split(child_count);
  const uint32_t middle = begin + left * child_groups;
  const uint32_t end = begin + child_count * child_groups;
  const uint32_t ranks = blocks(begin, end).count;
  if (blocks(begin, middle).count != canonical_split(ranks)) return false;
  if (!is_canonical(first_child, left, child_groups)) return false;
  // Halves that are alike need one look, which keeps this logarithmic.
  const bool alike = 2 * left == child_count && (end <= extra_ || begin >= extra_);
  return alike || is_canonical(first_child + left, child_count - left, child_groups);
}

Builder::Builder(const Request& request, uint32_t rank) {
  plan_.collective = request.collective;
  plan_.rank_count = request.rank_count;
  plan_.rank = rank;
  plan_.root = has_root(request.collective) ? request.root : 0;
  plan_.association = association_of(request.collective, false);
  plan_.lanes.resize(1);
}

Builder& Builder::chunks_per_block(uint32_t count) {
  plan_.chunks_per_block = count;
  return *this;
}

Builder& Builder::scratch_chunks(uint32_t count) {
  plan_.scratch_chunks = count;
  return *this;
}

Builder& Builder::slots_needed(uint32_t count) {
  plan_.slots_needed = count;
  return *this;
}

Builder& Builder::canonical(bool yes) {
  plan_.association = association_of(plan_.collective, yes);
  return *this;
}

void Builder::next_lane() {
  plan_.lanes.emplace_back();
}

void Builder::step(Chunks data, std::vector<End> sources, std::vector<End> sinks) {
  plan_.lanes.back().steps.push_back({.sources = std::move(sources),
                                      .sinks = std::move(sinks),
                                      .first_chunk = data.first,
                                      .chunk_count = data.count});
}

void Builder::finish(Chunks data, std::vector<End> sources, std::vector<End> sinks) {
  step(data, std::move(sources), std::move(sinks));
  plan_.lanes.back().steps.back().finish = reduces(plan_.collective);
}

void Builder::spread(Chunks data, const End& source, const std::vector<End>& sinks) {
  for (size_t first = 0; first < sinks.size(); first += kMaxStepSinks) {
    const auto begin = sinks.begin() + static_cast<ptrdiff_t>(first);
    const auto count = std::min<size_t>(kMaxStepSinks, sinks.size() - first);
    step(data, {source}, {begin, begin + static_cast<ptrdiff_t>(count)});
  }
}

uint32_t Builder::tree_scratch_chunks(uint32_t count) {
  uint32_t chunks = 0;
  uint32_t level_count = count;
  for (uint32_t child = root_child_count(count); child > 1; child /= kFanIn) {
    chunks += (level_count + child - 1) / child;
    level_count = child;
  }
  return chunks;
}

void Builder::reduce_in_rank_order(Chunks data, const std::function<End(uint32_t)>& operand,
                                   std::vector<End> sinks) {
  reduce_in_order(data, {.count = plan_.rank_count, .end = operand, .finish = true}, std::move(sinks));
}

void Builder::reduce_in_order(Chunks data, const Operands& operands, std::vector<End> sinks) {
  reduce_range(data, operands, {0, operands.count}, root_child_count(operands.count), operands.scratch_first,
               std::move(sinks), operands.finish);
}

void Builder::reduce_range(Chunks data, const Operands& operands, std::pair<uint32_t, uint32_t> range,
                           uint32_t child_count, uint32_t scratch_level, std::vector<End> sinks, bool last) {
  const auto [begin, end] = range;
  while (child_count > 1 && end - begin <= child_count) child_count /= kFanIn;
  const uint32_t children = (end - begin + child_count - 1) / child_count;
  std::vector<End> sources;
  for (uint32_t i = 0; i < children; ++i) {
    const uint32_t child_begin = begin + i * child_count;
    const uint32_t child_end = std::min(end, child_begin + child_count);
    if (child_end - child_begin == 1) {
      sources.push_back(operands.end(child_begin));
      continue;
    }
    // Children of one level are reduced one after another, so they share the scratch of the levels below.
    const End partial = scratch({scratch_level + i, 1});
    reduce_range(data, operands, {child_begin, child_end}, child_count / kFanIn, scratch_level + children,
                 {partial}, false);
    sources.push_back(partial);
  }
  if (last) {
    finish(data, std::move(sources), std::move(sinks));
  } else {
    step(data, std::move(sources), std::move(sinks));
  }
}

Plan Builder::take() {
  std::erase_if(plan_.lanes, [](const Lane& lane) { return lane.steps.empty(); });
  return std::move(plan_);
}

}  // namespace tutti::generators
