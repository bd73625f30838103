// The interpreter: runs a Program's lanes as blocks of a grid. It is the twin of engine/operation.cc: same
// slices, order and messages.
//
// Four phases per slice, with barriers between them and results in shared memory:
// - one thread finds the next slice that is not empty;
// - one thread per end polls its flag or credit;
// - the block moves the bytes;
// - one thread per end tells its peer.
#pragma once

#include "engine/cuda/device.h"
#include "engine/cuda/launch.cuh"
#include "engine/cuda/move.cuh"
#include "engine/cuda/program.h"
#include "transports/ring.h"

namespace tutti::cuda {

// ---- finding the next slice (one thread) --------------------------------------------------------

/// Bytes of the current piece: the part of the step's current chunk in the current round.
TUTTI_DEVICE uint64_t find_piece(BlockState& block) {
  const uint64_t chunk = block.program.chunk_bytes[block.step.first_chunk + block.at.chunk];
  if (block.lane.round_count == 1) {
    block.start = 0;
    return chunk;
  }
  const uint64_t start = block.at.round * block.lane.round_bytes;
  block.start = start < chunk ? start : chunk;
  const uint64_t left = chunk - block.start;
  return left < block.lane.round_bytes ? left : block.lane.round_bytes;
}

/// Moves the position to the next chunk, step or round.
TUTTI_DEVICE void pass_piece(BlockState& block) {
  Position& at = block.at;
  at.done_bytes = 0;
  if (++at.chunk < block.step.chunk_count) return;
  at.chunk = 0;
  if (++at.step == block.lane.step_count) {
    at.step = 0;
    ++at.round;
  }
  if (at.round < block.lane.round_count) block.step = block.program.steps[block.lane.first_step + at.step];
}

TUTTI_DEVICE void begin_slice(BlockState& block, uint64_t bytes) {
  Slice& slice = block.slice;
  const Step& step = block.step;
  slice.bytes = bytes;
  slice.source_count = step.source_count;
  slice.sink_count = step.sink_count;
  slice.scaled_sources = step.scaled_sources;
  slice.finishes = step.finish;
  slice.copies = step.copies;
  slice.collects = step.collects;
  slice.published = step.published;
  block.running = 1;
}

/// Moves the position to the next slice that is not empty. `running` becomes 0 at the end of the lane.
TUTTI_DEVICE void find_slice(BlockState& block) {
  Position& at = block.at;
  block.stopped = 0;
  block.running = 0;
  while (at.round < block.lane.round_count) {
    const uint64_t piece = find_piece(block);
    if (at.done_bytes < piece || (piece == 0 && block.step.sends_empty != 0)) {
      const uint64_t left = piece - at.done_bytes;
      begin_slice(block, left < block.step.slice_bytes ? left : block.step.slice_bytes);
      return;
    }
    pass_piece(block);
  }
}

/// Moves the position past the slice.
TUTTI_DEVICE void pass_slice(BlockState& block) {
  block.at.done_bytes += block.slice.bytes;
  if (block.at.done_bytes >= find_piece(block)) pass_piece(block);
}

// ---- making the ends ready (a thread each) ------------------------------------------------------

/// The address of the slice at an end in memory.
TUTTI_DEVICE unsigned char* memory_of(const BlockState& block, const End& end) {
  const uint64_t offset = block.program.offsets[end.index + block.at.chunk] + block.at.done_bytes;
  switch (end.kind) {
    case EndKind::kInput:
      // Nobody writes the input; one function serves both directions.
      return static_cast<unsigned char*>(const_cast<void*>(block.part.input)) + block.start + offset;
    case EndKind::kOutput: return static_cast<unsigned char*>(block.part.output) + block.start + offset;
    case EndKind::kScratch: return block.program.scratch + offset;  // holds one round
    default: return reinterpret_cast<unsigned char*>(block.start + offset);
  }
}

TUTTI_DEVICE bool is_link(const End& end) {
  return end.kind == EndKind::kSend || end.kind == EndKind::kReceive;
}

/// Where the step copies a message in the receive buffer, and where a direct write has already put it.
TUTTI_DEVICE unsigned char* output_of(const BlockState& block) {
  const Step& step = block.step;
  uint32_t i = 0;
  const End* sinks = block.program.ends + step.first_end + step.source_count;
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
TUTTI_DEVICE uint32_t slots_of(Carriage carriage, uint64_t bytes, uint32_t slot_bytes) {
  uint32_t slots = 1;
  while (carriage == Carriage::kSlot && static_cast<uint64_t>(slots) * slot_bytes < bytes) ++slots;
  return slots;
}

/// The payload of the message that has arrived.
TUTTI_DEVICE const unsigned char* payload_of(const BlockState& block, const RecvLink& link, const Cell& cell,
                                             Carriage carriage) {
  if (carriage == Carriage::kInline) return reinterpret_cast<const unsigned char*>(cell.payload);
  if (carriage == Carriage::kSlot)
    return reinterpret_cast<const unsigned char*>(link.slots) +
           (link.next & link.slot_mask) * static_cast<uint64_t>(link.slot_bytes);
  const uint64_t reference = *reinterpret_cast<const uint64_t*>(cell.payload);
  if (reference == kWrittenDirectly) return output_of(block);
  return address_of(link.registered, reference);
}

TUTTI_DEVICE void ready_source(BlockState& block, uint32_t item, const End& end) {
  const RecvLink& link = block.program.receives[end.index];
  const Cell& cell = link.cells[link.next & link.slot_mask];
  const uint32_t signature = block.signature ^ block.step.signature;
  const uint64_t expected = flag::make(link.next, signature, block.slice.bytes);
  uint64_t word = 0;
  const Stop why = wait_for(block, "a message", &cell.word, [&] {
    word = device::load_acquire(&cell.word);
    return (word & flag::kNumberMask) == (expected & flag::kNumberMask);
  });
  if (why != Stop::kNone) return stop(block, why, item);
  block.ends[item].word = word;
  if ((word & flag::kAgreedMask) != expected) return stop(block, Stop::kMismatch, item);
  block.ends[item].carriage = flag::carriage(word);
  block.ends[item].slots = slots_of(flag::carriage(word), block.slice.bytes, link.slot_bytes);
  if (item < block.step.source_count)
    block.slice.sources[item] = payload_of(block, link, cell, flag::carriage(word));
}

/// The reference that tells the reader of `link` where the slice is: an address or a locality. 0: the slice
/// travels by value.
TUTTI_DEVICE uint64_t reference_for(const BlockState& block, const SendLink& link) {
  const Step& step = block.step;
  const uint64_t bytes = block.slice.bytes;
  if (link.by_slot != 0 || step.refers == 0 || bytes < block.program.reference_bytes) return 0;
  const End& end = block.program.ends[step.first_end + step.refer_end];
  const auto address = reinterpret_cast<uint64_t>(memory_of(block, end));
  if (link.same_memory != 0) return address;
  const Part& part = block.part;
  if (end.kind == EndKind::kInput)
    return location_of(part.input_reach, address - reinterpret_cast<uint64_t>(part.input), bytes);
  if (end.kind == EndKind::kOutput)
    return location_of(part.output_reach, address - reinterpret_cast<uint64_t>(part.output), bytes);
  return step.location != 0 ? step.location + block.at.done_bytes : 0;
}

TUTTI_DEVICE void ready_sink(BlockState& block, uint32_t item, const End& end) {
  SendLink& link = block.program.sends[end.index];
  const Step& step = block.step;
  const uint64_t number = link.next;
  const uint64_t bytes = block.slice.bytes;
  ReadyEnd& ready = block.ends[item];
  ready.word = flag::make(number, block.signature ^ step.signature, bytes);
  ready.reference = reference_for(block, link);
  ready.carriage = bytes <= kInlineBytes && link.by_slot == 0 ? Carriage::kInline : Carriage::kSlot;
  if (ready.reference != 0) ready.carriage = Carriage::kReference;
  ready.slots = slots_of(ready.carriage, bytes, link.slot_bytes);
  if (number + ready.slots > link.limit) {
    const uint64_t needed = number + ready.slots;
    uint64_t limit = link.limit;
    const Stop why = wait_for(block, "room", &link.credit->released, [&] {
      limit = device::load_acquire(&link.credit->released) + link.slot_mask + 1;
      return needed <= limit;
    });
    if (why != Stop::kNone) return stop(block, why, item);
    link.limit = limit;
  }
  std::byte* sink = nullptr;
  if (ready.carriage == Carriage::kInline) sink = link.cells[number & link.slot_mask].payload;
  if (ready.carriage == Carriage::kSlot)
    sink = link.slots + (number & link.slot_mask) * static_cast<uint64_t>(link.slot_bytes);
  if (item - step.source_count < step.sink_count)
    block.slice.sinks[item - step.source_count] = reinterpret_cast<unsigned char*>(sink);
}

/// The number of a step's ends. Companions come last and are links.
TUTTI_DEVICE uint32_t end_count(const Step& step) {
  return step.source_count + step.sink_count + step.companion_count;
}

/// Whether the step has an end at a multicast address.
TUTTI_DEVICE bool is_multicast(const Step& step) {
  return step.collects != 0 || step.published != 0;
}

TUTTI_DEVICE void ready_ends(BlockState& block) {
  const Step& step = block.step;
  const uint32_t count = end_count(step);
  if (device::thread_index() == 0) block.direct = 0;
  for (uint32_t item = device::thread_index(); item < count; item += device::thread_count()) {
    const End end = block.program.ends[step.first_end + item];
    if (end.kind == EndKind::kReceive) {
      ready_source(block, item, end);
    } else if (end.kind == EndKind::kSend) {
      ready_sink(block, item, end);
    } else if (item < step.source_count) {
      block.slice.sources[item] = memory_of(block, end);
    } else {
      block.slice.sinks[item - step.source_count] = memory_of(block, end);
    }
  }
  if (is_multicast(step) && device::thread_index() < count) device::alias_fence();
}

// ---- direct writes into the receivers' buffers --------------------------------------------------

/// The address of the slice, `offset` bytes into the peer's exposed buffer; null while this rank cannot write
/// there.
TUTTI_DEVICE unsigned char* expose_buffer(const BlockState& block, const PeerExposedBuffer& peer,
                                          uint64_t offset) {
  const ExposedBuffer& exposed = *peer.buffer;
  if (device::load_acquire(&exposed.call) != block.call) return nullptr;
  if (peer.registered == nullptr)
    return reinterpret_cast<unsigned char*>(device::load_relaxed(&exposed.address)) + offset;
  const Reach reach{.location = device::load_relaxed(&exposed.reach.location),
                    .bytes = device::load_relaxed(&exposed.reach.bytes)};
  const uint64_t location = location_of(reach, offset, block.slice.bytes);
  return location != 0 ? address_of(peer.registered, location) : nullptr;
}

/// Sets the sinks of a direct write: the receivers' buffers and this rank's memory.
TUTTI_DEVICE void choose_sinks(BlockState& block) {
  const Step& step = block.step;
  for (uint32_t i = 0; i < step.exposed_count; ++i) {
    if (block.exposed[i] == nullptr) return;
  }
  const End* sinks = block.program.ends + step.first_end + step.source_count;
  uint32_t count = 0;
  for (uint32_t i = 0; i < step.sink_count; ++i) {
    if (!is_link(sinks[i])) block.slice.sinks[count++] = block.slice.sinks[i];
  }
  for (uint32_t i = 0; i < step.exposed_count; ++i) block.slice.sinks[count++] = block.exposed[i];
  block.slice.sink_count = count;
  block.direct = 1;
}

/// Writes the result directly if all receivers expose their buffers in this call.
TUTTI_DEVICE void write_directly(BlockState& block) {
  const Step& step = block.step;
  if (step.exposed_count == 0 || block.slice.bytes < block.program.reference_bytes) return;
  const unsigned char* const own = block.slice.sinks[step.refer_end - step.source_count];
  const auto offset = static_cast<uint64_t>(own - static_cast<unsigned char*>(block.part.output));
  for (uint32_t i = device::thread_index(); i < step.exposed_count; i += device::thread_count())
    block.exposed[i] = expose_buffer(block, block.program.exposed[step.first_exposed + i], offset);
  device::barrier("the exposed buffers are known");
  if (device::thread_index() == 0) choose_sinks(block);
  device::barrier("the sinks are chosen");
}

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
TUTTI_DEVICE Notice commit(BlockState& block, const ReadyEnd& ready, SendLink& link) {
  const uint64_t number = link.next;
  Cell& cell = link.cells[number & link.slot_mask];
  Carriage carriage = ready.carriage;
  const uint32_t slots = block.direct != 0 ? 1 : ready.slots;
  for (uint32_t i = 1; i < slots; ++i)
    device::store_relaxed(&link.cells[(number + i) & link.slot_mask].word, flag::make(number + i, 0, 0));
  link.next = number + slots;
  if (block.direct != 0 || carriage == Carriage::kReference) {
    *reinterpret_cast<uint64_t*>(cell.payload) = block.direct != 0 ? kWrittenDirectly : ready.reference;
    carriage = Carriage::kReference;
    if (block.direct == 0) link.last_reference = link.next;
  }
  if (link.comes_back != 0) link.last_reference = link.next;
  return {&cell.word, ready.word | static_cast<uint64_t>(carriage) << flag::kCarriageShift};
}

/// Reports freed slots late, but references at once.
TUTTI_DEVICE Notice release(const ReadyEnd& ready, RecvLink& link) {
  const uint64_t before = link.next;
  link.next = before + ready.slots;
  const uint64_t passed = (before ^ link.next) & ~static_cast<uint64_t>(link.credit_mask);
  const bool reports = ready.carriage >= Carriage::kReference || passed != 0;
  return {reports ? &link.credit->released : nullptr, link.next};
}

/// The threads of a warp share a fence. `by_multicast`: the slice had an end at a multicast address.
TUTTI_DEVICE void tell_peers(BlockState& block, uint32_t first_end, uint32_t count, bool by_multicast) {
  for (uint32_t item = device::thread_index(); item < count; item += device::thread_count()) {
    const End end = block.program.ends[first_end + item];
    Notice notice = {nullptr, 0};
    if (end.kind == EndKind::kSend) notice = commit(block, block.ends[item], block.program.sends[end.index]);
    if (end.kind == EndKind::kReceive) notice = release(block.ends[item], block.program.receives[end.index]);
    if (notice.word == nullptr) continue;
    if (by_multicast) device::alias_fence();
    device::release_fence();
    device::store_fenced(notice.word, notice.value);
  }
}

// ---- a lane -------------------------------------------------------------------------------------

/// Waits until no rank reads this rank's buffers or contributions any more. Item s * kMaxSinks + m is sink m
/// of the lane's step s.
TUTTI_DEVICE void await_references(BlockState& block) {
  const bool refers = block.program.reference_bytes != UINT64_MAX;
  for (uint32_t s = device::thread_index(); s < block.lane.step_count; s += device::thread_count()) {
    const Step& step = block.program.steps[block.lane.first_step + s];
    if ((step.refers == 0 || !refers) && step.contributes == 0) continue;
    for (uint32_t m = 0; m < step.sink_count; ++m) {
      const End end = block.program.ends[step.first_end + step.source_count + m];
      if (end.kind != EndKind::kSend) continue;
      const SendLink& link = block.program.sends[end.index];
      if (link.last_reference + link.slot_mask < link.limit) continue;  // true as well if none was ever sent
      const Stop why = wait_for(block, "references to come back", &link.credit->released, [&] {
        return device::load_acquire(&link.credit->released) >= link.last_reference;
      });
      if (why != Stop::kNone) stop(block, why, s * reduce::kMaxSinks + m);
    }
  }
}

/// Runs slices until the lane is finished or stopped. Returns whether a slice moved.
TUTTI_DEVICE bool run_lane(BlockState& block) {
  bool moved = false;
  if (device::thread_index() == 0) find_slice(block);
  device::barrier("the first slice is found");
  while (block.running != 0) {
    const uint32_t first_end = block.step.first_end;
    const uint32_t count = end_count(block.step);
    const bool by_multicast = is_multicast(block.step);
    ready_ends(block);
    device::barrier("the ends are ready");
    if (why_stopped(block) != Stop::kNone) return moved;
    write_directly(block);
    move_slice(block.slice);
    device::barrier("the slice is moved");
    tell_peers(block, first_end, count, by_multicast);
    moved = true;
    if (device::thread_index() == 0) {
      pass_slice(block);
      find_slice(block);
    }
    device::barrier("the next slice is found");
  }
  await_references(block);
  device::barrier("references are back");
  if (device::thread_index() == 0 && why_stopped(block) == Stop::kNone) block.at.finished = 1;
  return moved;
}

/// What the stopped lane waits for, or which message came instead (one thread).
TUTTI_DEVICE Obstacle find_obstacle(const BlockState& block) {
  Obstacle obstacle{};
  const Stop why = why_stopped(block);
  if (why != Stop::kNotReady && why != Stop::kMismatch) return obstacle;
  const uint32_t item = stopped_item(block);
  const bool in_steps = block.running != 0;
  obstacle.lane = block.lane_index;
  obstacle.step = block.lane.first_step + (in_steps ? block.at.step : block.lane.step_count);
  uint32_t index = block.step.first_end + item;
  if (!in_steps) {
    const Step& step = block.program.steps[block.lane.first_step + item / reduce::kMaxSinks];
    index = step.first_end + step.source_count + item % reduce::kMaxSinks;
  }
  const End end = block.program.ends[index];
  if (end.kind == EndKind::kSend) {
    obstacle.sending = 1;
    obstacle.peer = block.program.sends[end.index].peer;
    return obstacle;
  }
  const RecvLink& link = block.program.receives[end.index];
  obstacle.peer = link.peer;
  if (why == Stop::kMismatch) {
    const uint32_t signature = block.signature ^ block.step.signature;
    obstacle.word = block.ends[item].word;
    obstacle.expected = flag::make(link.next, signature, block.slice.bytes);
  }
  return obstacle;
}

/// Runs the calling block's lanes.
TUTTI_DEVICE void run_launch(const Launch& launch) {
  TUTTI_SHARED(BlockState, block);
  run_block(block, launch);
}

}  // namespace tutti::cuda
