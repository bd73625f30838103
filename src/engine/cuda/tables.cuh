// A lane's tables in the block's shared memory. The scouts look up several entries for each slice, one after
// the other. So all threads copy the lane's entries into the block's room at once, before the lane runs,
// links among them; the links' numbers go back when the lane is left. What does not fit is read where it
// lies.
#pragma once

#include "engine/cuda/device.h"
#include "engine/cuda/launch.cuh"
#include "engine/cuda/program.h"
#include "engine/cuda/roles.cuh"
#include "engine/cuda/slice.h"

namespace tutti::cuda {

// ---- reading them -------------------------------------------------------------------------------

/// The ends of a step of the lane.
TUTTI_DEVICE const End* ends_of(const BlockState& block, const Step& step) {
  return block.tables.ends + (step.first_end - block.lane.first_end);
}

/// The link's number in Tables::sends or receives.
TUTTI_DEVICE uint32_t link_of(const BlockState& block, const End& end) {
  return block.lane.kept_sends + block.lane.kept_receives != 0 ? end.lane_link : end.index;
}

/// The ready ends of every second slice. Parity 2: what comes behind them.
TUTTI_DEVICE ReadyEnd* ready_ends_of(BlockState& block, uint32_t parity) {
  return reinterpret_cast<ReadyEnd*>(block.room) + parity * block.lane.most_ends;
}
TUTTI_DEVICE const ReadyEnd* ready_ends_of(const BlockState& block, uint32_t parity) {
  return reinterpret_cast<const ReadyEnd*>(block.room) + parity * block.lane.most_ends;
}

// ---- copying them -------------------------------------------------------------------------------

/// Deals out the words of all tables together, so that no thread waits for one to load the next.
struct Deal {
  uint64_t* to;   ///< of the next table's copy
  uint32_t word;  ///< number of the thread's next word, counted from there
};

/// Copies `count` entries, the i-th from `from(i)`. Returns the copies.
template <class Entry, class From>
TUTTI_DEVICE Entry* copy_entries(Deal& deal, uint32_t count, From&& from) {
  static_assert(sizeof(Entry) % sizeof(uint64_t) == 0);
  constexpr uint32_t kEntryWords = sizeof(Entry) / sizeof(uint64_t);
  uint64_t* const copies = deal.to;
  const uint32_t words = count * kEntryWords;
  for (; deal.word < words; deal.word += device::thread_count()) {
    const auto* const entry = reinterpret_cast<const uint64_t*>(from(deal.word / kEntryWords));
    copies[deal.word] = entry[deal.word % kEntryWords];
  }
  deal.word -= words;
  deal.to += words;
  return reinterpret_cast<Entry*>(copies);
}

/// Returns where the lane's entries are: copies, or `table` where none is kept.
template <class Entry>
TUTTI_DEVICE const Entry* keep_entries(Deal& deal, const Entry* table, uint32_t count) {
  const Entry* const copies = copy_entries<Entry>(deal, count, [&](uint32_t i) { return table + i; });
  return count != 0 ? copies : table;
}
template <class Link>
TUTTI_DEVICE Link* keep_links(Deal& deal, Link* table, uint32_t count, const uint32_t* numbers) {
  Link* const copies = copy_entries<Link>(deal, count, [&](uint32_t i) { return table + numbers[i]; });
  return count != 0 ? copies : table;
}

/// Fills the room for a lane (all threads).
TUTTI_DEVICE void load_tables(BlockState& block) {
  const Lane& lane = block.lane;
  const Program& program = block.program;
  const uint32_t* const links = program.links + lane.first_link;
  Deal deal = {.to = reinterpret_cast<uint64_t*>(ready_ends_of(block, 2)), .word = device::thread_index()};
  // The links first: they take two loads.
  const Tables tables = {
      .sends = keep_links(deal, program.sends, lane.kept_sends, links),
      .receives = keep_links(deal, program.receives, lane.kept_receives, links + lane.kept_sends),
      .ends = keep_entries(deal, program.ends + lane.first_end, lane.kept_ends),
      .chunk_bytes = keep_entries(deal, program.chunk_bytes + lane.first_chunk, lane.kept_chunks),
      .offsets = keep_entries(deal, program.offsets + lane.first_offset, lane.kept_offsets),
      .steps = keep_entries(deal, program.steps + lane.first_step, lane.kept_steps)};
  if (device::thread_index() == 0) block.tables = tables;
  for (uint32_t i = device::thread_index(); i < reduce::kMaxSinks; i += device::thread_count())
    block.exposed[i].of = 0;
}

/// Stores what a lane has changed of its links (the movers).
TUTTI_DEVICE void store_links(const BlockState& block) {
  const uint32_t sends = block.lane.kept_sends;
  const uint32_t* const numbers = block.program.links + block.lane.first_link;
  for (uint32_t i = device::thread_index(); i < sends + block.lane.kept_receives; i += mover_count()) {
    if (i < sends) {
      const SendLink& from = block.tables.sends[i];
      SendLink& to = block.program.sends[numbers[i]];
      to.next = from.next;
      to.limit = from.limit;
      to.last_reference = from.last_reference;
    } else {
      block.program.receives[numbers[i]].next = block.tables.receives[i - sends].next;
    }
  }
}

}  // namespace tutti::cuda
