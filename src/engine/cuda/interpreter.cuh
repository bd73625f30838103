// The interpreter: runs a Program's lanes as blocks of a grid. It is the twin of engine/operation.cc: same
// slices, order and messages.
//
// The scouts, one warp, find the next slice that is not empty and poll its flags and credits, a thread an
// end. Meanwhile the movers move the bytes of the slice before. Then the scouts hand over what is ready, and
// tell the peers of what has moved. A slice's place in the plan and its numbers on links are stored once its
// peers are told, so a block that gives up has nothing to take back.
#pragma once

#include "engine/cuda/device.h"
#include "engine/cuda/launch.cuh"
#include "engine/cuda/move.cuh"
#include "engine/cuda/program.h"
#include "engine/cuda/roles.cuh"
#include "engine/cuda/tables.cuh"
#include "transports/ring.h"

namespace tutti::cuda {

/// Barriers of a block besides the one of all threads.
inline constexpr uint32_t kReadyBarrier = 1;   ///< the movers wait until the scouts have a slice ready
inline constexpr uint32_t kMovedBarrier = 2;   ///< of the movers
inline constexpr uint32_t kScoutsBarrier = 3;  ///< of the scouts

TUTTI_DEVICE void scouts_meet(const char* name) {
  device::meet<kScoutsBarrier>(scout_count(), name);
}

// ---- finding the next slice (one thread) --------------------------------------------------------

/// Bytes of the current piece: the part of the step's current chunk in the current round.
TUTTI_DEVICE uint64_t find_piece(BlockState& block) {
  const uint32_t first = block.step.first_chunk - block.lane.first_chunk;
  const uint64_t chunk = block.tables.chunk_bytes[first + block.ahead.chunk];
  if (block.lane.round_count == 1) {
    block.start = 0;
    return chunk;
  }
  const uint64_t start = block.ahead.round * block.lane.round_bytes;
  block.start = start < chunk ? start : chunk;
  const uint64_t left = chunk - block.start;
  return left < block.lane.round_bytes ? left : block.lane.round_bytes;
}

/// Goes on to the next chunk, step or round.
TUTTI_DEVICE void pass_piece(BlockState& block) {
  Position& at = block.ahead;
  at.done_bytes = 0;
  if (++at.chunk < block.step.chunk_count) return;
  at.chunk = 0;
  if (++at.step == block.lane.step_count) {
    at.step = 0;
    ++at.round;
  }
  if (at.round < block.lane.round_count) block.step = block.tables.steps[at.step];
}

/// Goes on to the next slice that is not empty. `running` becomes 0 at the end of the lane.
TUTTI_DEVICE void find_slice(BlockState& block) {
  Position& at = block.ahead;
  block.running = 0;
  while (at.round < block.lane.round_count) {
    const uint64_t piece = find_piece(block);
    if (at.done_bytes < piece || (piece == 0 && block.step.sends_empty != 0)) {
      const uint64_t left = piece - at.done_bytes;
      block.next.bytes = left < block.step.slice_bytes ? left : block.step.slice_bytes;
      block.next.sink_count = block.step.sink_count;
      block.running = 1;
      return;
    }
    pass_piece(block);
  }
}

/// Goes past the slice.
TUTTI_DEVICE void pass_slice(BlockState& block) {
  block.ahead.done_bytes += block.next.bytes;
  if (block.ahead.done_bytes >= find_piece(block)) pass_piece(block);
}

// ---- making the ends ready (a thread each) ------------------------------------------------------

/// The address of the slice at an end in memory.
TUTTI_DEVICE unsigned char* memory_of(const BlockState& block, const End& end) {
  const uint32_t first = end.index - block.lane.first_offset;
  const uint64_t offset = block.tables.offsets[first + block.ahead.chunk] + block.ahead.done_bytes;
  switch (end.kind) {
    case EndKind::kInput:
      // Nobody writes the input; one function serves both directions.
      return static_cast<unsigned char*>(const_cast<void*>(block.part.input)) + block.start + offset;
    case EndKind::kOutput: return static_cast<unsigned char*>(block.part.output) + block.start + offset;
    case EndKind::kScratch: return block.program.scratch + offset;  // holds one round
    default: return reinterpret_cast<unsigned char*>(block.start + offset);
  }
}

TUTTI_DEVICE bool is_link(EndKind kind) {
  return kind == EndKind::kSend || kind == EndKind::kReceive;
}

/// Where the step copies a message in the receive buffer, and where a direct write has already put it.
TUTTI_DEVICE unsigned char* output_of(const BlockState& block) {
  const Step& step = block.step;
  uint32_t i = 0;
  const End* sinks = ends_of(block, step) + step.source_count;
  while (i + 1u < step.sink_count && sinks[i].kind != EndKind::kOutput) ++i;
  return memory_of(block, sinks[i]);
}

/// This rank's address for a peer's reference: an address, or a locality in one of the peer's registered
/// memories.
TUTTI_DEVICE unsigned char* address_of(const uint64_t* registered, uint64_t named) {
  if (registered == nullptr) return reinterpret_cast<unsigned char*>(named);
  const uint64_t start = registered[named >> kLocationShift];
  return reinterpret_cast<unsigned char*>(start + (named & ((1ull << kLocationShift) - 1)));
}

/// The locality of a part of a buffer; 0: not in registered memory.
TUTTI_DEVICE uint64_t location_of(const Reach& reach, uint64_t offset, uint64_t bytes) {
  return reach.location != 0 && offset + bytes <= reach.bytes ? reach.location + offset : 0;
}

/// Slots that a message fills, and so the numbers that it takes: the number of the first slot is the
/// message's own. A message that begins in one of the last slots goes on in spare slots behind them.
TUTTI_DEVICE uint16_t slots_of(Carriage carriage, uint64_t bytes, uint32_t slot_bytes) {
  uint32_t slots = 1;
  while (carriage == Carriage::kSlot && static_cast<uint64_t>(slots) * slot_bytes < bytes) ++slots;
  return static_cast<uint16_t>(slots);
}

/// The slices whose ends the scouts have at hand.
struct Outlook {
  ReadyEnd* ends;          ///< of the slice that is made ready
  const ReadyEnd* before;  ///< of the slice before
  uint32_t untold;         ///< ends of the slice before, if its peers are not told yet; else 0
  uint32_t moving;         ///< number of the slice that moves; 0: none, and waits are long
};

/// The number that the next message takes on the link of `ready`, of which `told` is the next one of all.
TUTTI_DEVICE uint64_t next_number(const Outlook& outlook, const ReadyEnd& ready, uint64_t told) {
  for (uint32_t i = 0; i < outlook.untold; ++i) {
    const ReadyEnd& before = outlook.before[i];
    if (before.kind == ready.kind && before.link == ready.link) return told + before.slots;
  }
  return told;
}

/// Whether the movers have moved slice `number`, counted from 1 on.
TUTTI_DEVICE bool has_moved(const BlockState& block, uint32_t number) {
  return device::load_acquire_shared(&block.moved) == number;
}
TUTTI_DEVICE void await_moved(const BlockState& block, uint32_t number) {
  if (has_moved(block, number)) return;
  do {
    device::poll_failed("the slice to be moved", &block.moved, false);
  } while (!has_moved(block, number));
  device::wait_ended();
}

/// Polls for an end of the next slice: while the slice before moves, and else as long as the launch may wait.
template <class IsReady>
TUTTI_DEVICE Stop wait_for_end(const BlockState& block, const Outlook& outlook, const char* what,
                               const void* address, IsReady&& is_ready) {
  if (outlook.moving == 0) return wait_for(block, what, address, is_ready);
  if (is_ready()) return Stop::kNone;
  bool ready = false;
  while (!ready && !has_moved(block, outlook.moving)) {
    device::poll_failed(what, address, false);
    ready = is_ready();
  }
  device::wait_ended();
  return ready ? Stop::kNone : Stop::kNotReady;
}

/// The end is not ready. While the slice before moves this is no reason to stop: the next look may find more.
TUTTI_DEVICE void miss(BlockState& block, const Outlook& outlook, Stop why, uint32_t item) {
  if (outlook.moving == 0) return stop(block, why, item);
  device::raise_shared(&block.late, outlook.moving);
}

/// The payload of message `number`, which has arrived.
TUTTI_DEVICE const unsigned char* payload_of(const BlockState& block, const RecvLink& link, uint64_t number,
                                             Carriage carriage) {
  const Cell& cell = link.cells[number & link.slot_mask];
  if (carriage == Carriage::kInline) return reinterpret_cast<const unsigned char*>(cell.payload);
  if (carriage == Carriage::kSlot)
    return reinterpret_cast<const unsigned char*>(link.slots) +
           (number & link.slot_mask) * static_cast<uint64_t>(link.slot_bytes);
  const uint64_t reference = *reinterpret_cast<const uint64_t*>(cell.payload);
  if (reference == kWrittenDirectly) return output_of(block);
  return address_of(link.registered, reference);
}

TUTTI_DEVICE void ready_source(BlockState& block, const Outlook& outlook, uint32_t item) {
  ReadyEnd& ready = outlook.ends[item];
  const RecvLink& link = block.tables.receives[ready.link];
  const uint64_t number = next_number(outlook, ready, link.next);
  const Cell& cell = link.cells[number & link.slot_mask];
  const uint32_t signature = block.signature ^ block.step.signature;
  const uint64_t expected = flag::make(number, signature, block.next.bytes);
  uint64_t word = 0;
  const Stop why = wait_for_end(block, outlook, "a message", &cell.word, [&] {
    word = device::load_acquire(&cell.word);
    return (word & flag::kNumberMask) == (expected & flag::kNumberMask);
  });
  if (why != Stop::kNone) return miss(block, outlook, why, item);
  ready.word = word;
  if ((word & flag::kAgreedMask) != expected) return miss(block, outlook, Stop::kMismatch, item);
  ready.carriage = flag::carriage(word);
  ready.slots = slots_of(ready.carriage, block.next.bytes, link.slot_bytes);
  if (item < block.step.source_count)
    block.next.sources[item] = payload_of(block, link, number, ready.carriage);
}

/// The reference that tells the reader of `link` where the slice is: an address or a locality. 0: the slice
/// travels by value.
TUTTI_DEVICE uint64_t reference_for(const BlockState& block, const SendLink& link) {
  const Step& step = block.step;
  const uint64_t bytes = block.next.bytes;
  if (link.by_slot != 0 || step.refers == 0 || bytes < block.program.reference_bytes) return 0;
  const End& end = ends_of(block, step)[step.refer_end];
  const auto address = reinterpret_cast<uint64_t>(memory_of(block, end));
  if (link.same_memory != 0) return address;
  const Part& part = block.part;
  if (end.kind == EndKind::kInput)
    return location_of(part.input_reach, address - reinterpret_cast<uint64_t>(part.input), bytes);
  if (end.kind == EndKind::kOutput)
    return location_of(part.output_reach, address - reinterpret_cast<uint64_t>(part.output), bytes);
  return step.location != 0 ? step.location + block.ahead.done_bytes : 0;
}

TUTTI_DEVICE void ready_sink(BlockState& block, const Outlook& outlook, uint32_t item) {
  ReadyEnd& ready = outlook.ends[item];
  SendLink& link = block.tables.sends[ready.link];
  const Step& step = block.step;
  const uint64_t number = next_number(outlook, ready, link.next);
  const uint64_t bytes = block.next.bytes;
  ready.word = flag::make(number, block.signature ^ step.signature, bytes);
  ready.reference = reference_for(block, link);
  ready.carriage = bytes <= kInlineBytes && link.by_slot == 0 ? Carriage::kInline : Carriage::kSlot;
  if (ready.reference != 0) ready.carriage = Carriage::kReference;
  ready.slots = slots_of(ready.carriage, bytes, link.slot_bytes);
  if (number + ready.slots > link.limit) {
    const uint64_t needed = number + ready.slots;
    uint64_t limit = link.limit;
    const Stop why = wait_for_end(block, outlook, "room", &link.credit->released, [&] {
      limit = device::load_acquire(&link.credit->released) + link.slot_mask + 1;
      return needed <= limit;
    });
    if (why != Stop::kNone) return miss(block, outlook, why, item);
    link.limit = limit;
  }
  std::byte* sink = nullptr;
  if (ready.carriage == Carriage::kInline) sink = link.cells[number & link.slot_mask].payload;
  if (ready.carriage == Carriage::kSlot)
    sink = link.slots + (number & link.slot_mask) * static_cast<uint64_t>(link.slot_bytes);
  if (item - step.source_count < step.sink_count)
    block.next.sinks[item - step.source_count] = reinterpret_cast<unsigned char*>(sink);
}

/// The number of a step's ends. Companions come last and are links.
TUTTI_DEVICE uint32_t end_count(const Step& step) {
  return step.source_count + step.sink_count + step.companion_count;
}

/// Whether the step has an end at a multicast address.
TUTTI_DEVICE bool is_multicast(const Step& step) {
  return step.collects != 0 || step.published != 0;
}

TUTTI_DEVICE void ready_ends(BlockState& block, const Outlook& outlook) {
  const Step& step = block.step;
  const uint32_t count = end_count(step);
  for (uint32_t item = scout_index(); item < count; item += scout_count()) {
    const End end = ends_of(block, step)[item];
    outlook.ends[item].kind = end.kind;
    outlook.ends[item].link = link_of(block, end);
    if (end.kind == EndKind::kReceive) {
      ready_source(block, outlook, item);
    } else if (end.kind == EndKind::kSend) {
      ready_sink(block, outlook, item);
    } else if (item < step.source_count) {
      block.next.sources[item] = memory_of(block, end);
    } else {
      block.next.sinks[item - step.source_count] = memory_of(block, end);
    }
  }
  if (is_multicast(step) && scout_index() < count) device::alias_fence();
}

// ---- direct writes into the receivers' buffers --------------------------------------------------

/// Looks whether exposed buffer `number`, from 1 on, is exposed in this call.
TUTTI_DEVICE void learn_buffer(const BlockState& block, uint32_t number, KnownBuffer& known) {
  known.of = 0;
  const PeerExposedBuffer peer = block.program.exposed[number - 1];
  const ExposedBuffer& exposed = *peer.buffer;
  if (device::load_acquire(&exposed.call) != block.call) return;
  known.of = number;
  if (peer.registered == nullptr) {
    known.begin = reinterpret_cast<unsigned char*>(device::load_relaxed(&exposed.address));
    known.bytes = UINT64_MAX;
    return;
  }
  const uint64_t location = device::load_relaxed(&exposed.reach.location);
  known.bytes = location != 0 ? device::load_relaxed(&exposed.reach.bytes) : 0;
  if (location != 0) known.begin = address_of(peer.registered, location);
}

/// Sets the sinks of a direct write, the receivers' buffers and this rank's memory, and what is sent instead
/// (one thread).
TUTTI_DEVICE void choose_sinks(BlockState& block, ReadyEnd* ends) {
  const Step& step = block.step;
  const unsigned char* const own = block.next.sinks[step.refer_end - step.source_count];
  const auto offset = static_cast<uint64_t>(own - static_cast<unsigned char*>(block.part.output));
  for (uint32_t i = 0; i < step.exposed_count; ++i) {
    if (block.exposed[i].of == 0 || offset + block.next.bytes > block.exposed[i].bytes) return;
  }
  uint32_t count = 0;
  for (uint32_t i = 0; i < step.sink_count; ++i) {
    if (!is_link(ends[step.source_count + i].kind)) block.next.sinks[count++] = block.next.sinks[i];
  }
  for (uint32_t i = 0; i < step.exposed_count; ++i)
    block.next.sinks[count++] = block.exposed[i].begin + offset;
  block.next.sink_count = count;
  for (uint32_t i = step.source_count; i < end_count(step); ++i) {
    if (ends[i].kind != EndKind::kSend) continue;
    ends[i].carriage = Carriage::kReference;
    ends[i].reference = kWrittenDirectly;
    ends[i].slots = 1;
  }
}

/// Writes the result directly if all receivers expose their buffers in this call.
TUTTI_DEVICE void write_directly(BlockState& block, ReadyEnd* ends) {
  const Step& step = block.step;
  for (uint32_t i = scout_index(); i < step.exposed_count; i += scout_count()) {
    const uint32_t number = step.first_exposed + i + 1;
    if (block.exposed[i].of != number) learn_buffer(block, number, block.exposed[i]);
  }
  scouts_meet("the exposed buffers are known");
  if (scout_index() == 0) choose_sinks(block, ends);
  scouts_meet("the sinks are chosen");
}

/// Only short calls load ahead.
TUTTI_DEVICE void load_ahead(BlockState& /*block*/) {}
TUTTI_DEVICE void begin_call(BlockState& /*block*/) {}

/// Exposes this rank's buffer. Every block does so before its first message, so that a message's reader finds
/// the buffer exposed.
TUTTI_DEVICE void begin_operation(const BlockState& block) {
  ExposedBuffer* const exposed = block.program.state->exposed;
  if (exposed == nullptr || block.program.exposed == nullptr || block.program.is_collective == 0) return;
  device::store_relaxed(&exposed->address, reinterpret_cast<uint64_t>(block.part.output));
  device::store_relaxed(&exposed->reach.location, block.part.output_reach.location);
  device::store_relaxed(&exposed->reach.bytes, block.part.output_reach.bytes);
  device::store_release(&exposed->call, block.call);
}

// ---- telling the peers (a thread each) ----------------------------------------------------------

/// What is stored last: a flag word, or the number of released slots.
struct Notice {
  uint64_t* word;  ///< null: there is nothing to tell
  uint64_t value;
};

/// Writes all of a message but its flag. The cells of its further slots get their numbers too. Else a cell
/// that many long messages pass over would show an old message whose number has come again.
TUTTI_DEVICE Notice commit(const ReadyEnd& ready, SendLink& link) {
  const uint64_t number = link.next;
  Cell& cell = link.cells[number & link.slot_mask];
  for (uint32_t i = 1; i < ready.slots; ++i)
    device::store_relaxed(&link.cells[(number + i) & link.slot_mask].word, flag::make(number + i, 0, 0));
  link.next = number + ready.slots;
  if (ready.carriage == Carriage::kReference) {
    *reinterpret_cast<uint64_t*>(cell.payload) = ready.reference;
    if (ready.reference != kWrittenDirectly) link.last_reference = link.next;
  }
  if (link.comes_back != 0) link.last_reference = link.next;
  return {&cell.word, ready.word | static_cast<uint64_t>(ready.carriage) << flag::kCarriageShift};
}

/// Reports freed slots late, but references at once.
TUTTI_DEVICE Notice release(const ReadyEnd& ready, RecvLink& link) {
  const uint64_t before = link.next;
  link.next = before + ready.slots;
  const uint64_t passed = (before ^ link.next) & ~static_cast<uint64_t>(link.credit_mask);
  const bool reports = ready.carriage >= Carriage::kReference || passed != 0;
  return {reports ? &link.credit->released : nullptr, link.next};
}

/// What the scouts need to tell the peers of a slice, besides its ends.
struct Told {
  uint32_t end_count;
  bool by_multicast;  ///< the slice has an end at a multicast address
};

/// The threads of a warp share a fence.
TUTTI_DEVICE void tell_peers(const BlockState& block, const ReadyEnd* ends, const Told& told) {
  for (uint32_t item = scout_index(); item < told.end_count; item += scout_count()) {
    const ReadyEnd& ready = ends[item];
    Notice notice = {nullptr, 0};
    if (ready.kind == EndKind::kSend) notice = commit(ready, block.tables.sends[ready.link]);
    if (ready.kind == EndKind::kReceive) notice = release(ready, block.tables.receives[ready.link]);
    if (notice.word == nullptr) continue;
    if (told.by_multicast) device::alias_fence();
    device::release_fence();
    device::store_fenced(notice.word, notice.value);
  }
}

// ---- a lane -------------------------------------------------------------------------------------

/// Waits until no rank reads this rank's buffers or contributions any more. Item s * kMaxSinks + m is sink m
/// of the lane's step s.
TUTTI_DEVICE void await_references(BlockState& block) {
  const bool refers = block.program.reference_bytes != UINT64_MAX;
  for (uint32_t s = scout_index(); s < block.lane.step_count; s += scout_count()) {
    const Step& step = block.tables.steps[s];
    if ((step.refers == 0 || !refers) && step.contributes == 0) continue;
    for (uint32_t m = 0; m < step.sink_count; ++m) {
      const End end = ends_of(block, step)[step.source_count + m];
      if (end.kind != EndKind::kSend) continue;
      const SendLink& link = block.tables.sends[link_of(block, end)];
      if (link.last_reference + link.slot_mask < link.limit) continue;  // true as well if none was ever sent
      const Stop why = wait_for(block, "references to come back", &link.credit->released, [&] {
        return device::load_acquire(&link.credit->released) >= link.last_reference;
      });
      if (why != Stop::kNone) stop(block, why, s * reduce::kMaxSinks + m);
    }
  }
}

/// Lets the movers move the next slice. Only after they have moved the one before.
TUTTI_DEVICE void hand_over(BlockState& block) {
  static_assert(reduce::kMaxSources == reduce::kMaxSinks);
  Slice& slice = block.slice;
  for (uint32_t i = scout_index(); i < reduce::kMaxSources; i += scout_count()) {
    slice.sources[i] = block.next.sources[i];
    slice.sinks[i] = block.next.sinks[i];
  }
  if (scout_index() == 0) {
    const Step& step = block.step;
    slice.bytes = block.next.bytes;
    slice.source_count = step.source_count;
    slice.sink_count = block.next.sink_count;
    slice.scaled_sources = step.scaled_sources;
    slice.finishes = step.finish;
    slice.copies = step.copies;
    slice.collects = step.collects;
    slice.published = step.published;
    slice.movers = mover_count();
    block.moving = 1;
  }
  device::arrive<kReadyBarrier>(device::thread_count(), "the slice is ready");
}

/// Makes the next slice ready, if there is one. Returns whether it is.
TUTTI_DEVICE bool prepare(BlockState& block, const Outlook& outlook) {
  if (block.running == 0) return false;
  const bool may_write = block.step.exposed_count != 0 && block.next.bytes >= block.program.reference_bytes;
  ready_ends(block, outlook);
  scouts_meet("the ends are polled");
  if (outlook.moving != 0 ? block.late == outlook.moving : why_stopped(block) != Stop::kNone) return false;
  if (may_write) write_directly(block, outlook.ends);
  return true;
}

/// Makes the next slice ready, hands it over, and tells the peers of slice `moving`, the one before: behind
/// that if the slice is ready by then, else first. Returns whether there is a slice.
TUTTI_DEVICE bool pass_on(BlockState& block, Outlook outlook, const Told& before) {
  for (;;) {
    const uint32_t moving = outlook.moving;
    const bool is_ready = prepare(block, outlook);
    if (moving != 0) await_moved(block, moving);
    if (is_ready) hand_over(block);
    if (moving != 0) tell_peers(block, outlook.before, before);
    if (scout_index() == 0) block.at = block.ahead;
    if (is_ready || moving == 0) return is_ready;
    outlook.moving = 0;
    outlook.untold = 0;
    scouts_meet("the peers are told");
  }
}

/// Looks ahead, slice after slice, until the lane is at its end or stopped (the scouts).
TUTTI_DEVICE void look_ahead(BlockState& block) {
  Told before = {0, false};
  for (uint32_t count = 0;; ++count) {  // slices handed over
    if (scout_index() == 0) {
      if (count > 0) pass_slice(block);
      find_slice(block);
    }
    scouts_meet("the next slice is found");
    const Told next = {end_count(block.step), is_multicast(block.step)};
    const Outlook outlook = {.ends = ready_ends_of(block, count % 2),
                             .before = ready_ends_of(block, 1 - count % 2),
                             .untold = before.end_count,
                             .moving = count};
    if (!pass_on(block, outlook, before)) break;
    before = next;
  }
  if (scout_index() == 0) block.moving = 0;
  device::arrive<kReadyBarrier>(device::thread_count(), "no slice is left");
  if (block.running == 0) await_references(block);
}

/// Moves what the scouts hand over, until nothing is left (the movers). Then the scouts change no link any
/// more.
TUTTI_DEVICE void move_slices(BlockState& block) {
  for (uint32_t count = 1;; ++count) {
    device::meet<kReadyBarrier>(device::thread_count(), "the slice is ready");
    if (block.moving == 0) return store_links(block);
    move_slice(block.slice);
    device::meet<kMovedBarrier>(mover_count(), "the slice is moved");
    if (device::thread_index() == 0) device::store_release_shared(&block.moved, count);
  }
}

/// Runs slices until the lane is finished or stopped. Returns whether a slice moved.
TUTTI_DEVICE bool run_lane(BlockState& block) {
  if (is_scout()) {
    look_ahead(block);
  } else {
    move_slices(block);
  }
  device::barrier("the lane is left");
  const bool is_finished = block.running == 0 && why_stopped(block) == Stop::kNone;
  if (device::thread_index() == 0 && is_finished) block.at.finished = 1;
  return block.moved != 0;
}

/// What the stopped lane waits for, or which message came instead (one thread).
TUTTI_DEVICE Obstacle find_obstacle(const BlockState& block) {
  Obstacle obstacle{};
  const Stop why = why_stopped(block);
  if (why != Stop::kNotReady && why != Stop::kMismatch) return obstacle;
  const uint32_t item = stopped_item(block);
  const bool in_steps = block.running != 0;
  obstacle.lane = block.lane_index;
  obstacle.step = block.lane.first_step + (in_steps ? block.ahead.step : block.lane.step_count);
  const Step& step = in_steps ? block.step : block.tables.steps[item / reduce::kMaxSinks];
  const End end = ends_of(block, step)[in_steps ? item : step.source_count + item % reduce::kMaxSinks];
  if (end.kind == EndKind::kSend) {
    obstacle.sending = 1;
    obstacle.peer = block.tables.sends[link_of(block, end)].peer;
    return obstacle;
  }
  const RecvLink& link = block.tables.receives[link_of(block, end)];
  obstacle.peer = link.peer;
  if (why == Stop::kMismatch) {
    const uint32_t signature = block.signature ^ block.step.signature;
    obstacle.word = ready_ends_of(block, block.moved % 2)[item].word;
    obstacle.expected = flag::make(link.next, signature, block.next.bytes);
  }
  return obstacle;
}

/// Runs the calling block's lanes.
TUTTI_DEVICE void run_launch(const Launch& launch) {
  TUTTI_SHARED(BlockState, block);
  run_block(block, launch);
}

}  // namespace tutti::cuda
