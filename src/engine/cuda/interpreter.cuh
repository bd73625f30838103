// The interpreter: running a Program's lanes as blocks of a grid. The twin of engine/operation.cc: the same
// slices in the same order, the same messages.
//
// A slice has three phases with a barrier between each two. One thread finds the next slice that is not
// empty; then each of its ends is made ready by a thread of its own, which polls the link's flag or credit;
// then the block moves the bytes; then each end's thread tells its peer. What a phase leaves for the next
// lies in shared memory.
//
// A wait is bounded by Launch::poll_limit. Who gives up stops its block, which stores the lane's position and
// leaves; so does a block whose peer made another call, or that sees the host's abort. The last block out of
// a launch says how it went (Signals) and, when all lanes are finished, makes the Program ready for its next
// call.
#pragma once

#include "core/hash.h"
#include "engine/cuda/device.h"
#include "engine/cuda/move.cuh"
#include "engine/cuda/program.h"
#include "transports/link.h"

namespace tutti::cuda {

/// Polls between two looks at the abort word, which lies in host memory.
inline constexpr uint64_t kPollsPerLook = 1024;

/// Why a lane stops; the more urgent ones are higher.
enum class Stop : uint32_t {
  kNone = 0,
  kNotReady = 1,
  kFailed = 2,  ///< another block, or an earlier launch, has failed
  kMismatch = 3,
  kAborted = 4,
};

/// What a thread has found out about an end and does when the slice has been moved.
struct ReadyEnd {
  uint64_t word;     ///< links: the flag word that came, or that will be sent
  uint64_t address;  ///< sent by reference: what is referred to
  Carriage carriage;
};

/// A block's shared memory.
struct BlockState {
  Program program;
  Part part;
  Lane lane;
  Step step;
  Position at;
  uint64_t poll_limit;
  uint64_t call;     ///< number of the collective
  uint64_t start;    ///< of the present piece in its chunk
  uint64_t stopped;  ///< Stop << 32 | ~(the thread's item): the most urgent one, of several the first item's
  uint32_t lane_index;
  uint32_t running;  ///< 1: there is a slice
  uint32_t placed;   ///< 1: the slice went straight into the receivers' buffers
  uint32_t is_last;  ///< 1: this block is the last one out
  uint16_t signature;
  Ring ring;
  Slice slice;
  ReadyEnd ends[reduce::kMaxSources + reduce::kMaxSinks];
  unsigned char* windows[reduce::kMaxSinks];
};

// ---- stopping -----------------------------------------------------------------------------------

TUTTI_DEVICE void stop(BlockState& block, Stop why, uint32_t item) {
  device::raise_shared(&block.stopped, static_cast<uint64_t>(why) << 32 | static_cast<uint32_t>(~item));
}
TUTTI_DEVICE Stop why_stopped(const BlockState& block) {
  return static_cast<Stop>(block.stopped >> 32);
}
TUTTI_DEVICE uint32_t stopped_item(const BlockState& block) {
  return ~static_cast<uint32_t>(block.stopped);
}

/// Whether somebody else has ended the operation.
TUTTI_DEVICE Stop look_around(const BlockState& block) {
  if (device::load_acquire(&block.program.signals->abort) != 0) return Stop::kAborted;
  return device::load_relaxed(&block.program.state->failed) != 0 ? Stop::kFailed : Stop::kNone;
}

/// Polls `is_ready` until it says yes, the launch's bound is reached or the operation has been ended.
template <class IsReady>
TUTTI_DEVICE Stop wait_for(const BlockState& block, const char* what, const void* address,
                           IsReady&& is_ready) {
  const uint64_t limit = block.poll_limit;
  if (is_ready()) return Stop::kNone;
  Stop why = Stop::kNone;
  for (uint64_t polls = 1; why == Stop::kNone; ++polls) {
    if (polls >= limit) return Stop::kNotReady;
    device::poll_failed(what, address, limit != UINT64_MAX);
    if (is_ready()) break;
    if (polls % kPollsPerLook == 0) why = look_around(block);
  }
  device::wait_ended();
  return why;
}

// ---- finding the next slice (one thread) --------------------------------------------------------

/// Bytes of the present piece: the step's present chunk as far as it belongs to the present round.
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

/// Behind the present piece: the next chunk, step or round.
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
  block.running = 1;
}

/// Moves the position to the next slice that is not empty. `running` = 0: all steps are done.
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

/// The slice has been moved.
TUTTI_DEVICE void pass_slice(BlockState& block) {
  block.at.done_bytes += block.slice.bytes;
  if (block.at.done_bytes >= find_piece(block)) pass_piece(block);
}

// ---- making the ends ready (a thread each) ------------------------------------------------------

/// Where the slice lies at an end in memory.
TUTTI_DEVICE unsigned char* memory_of(const BlockState& block, const End& end) {
  const uint64_t offset = block.program.offsets[end.index + block.at.chunk] + block.at.done_bytes;
  switch (end.kind) {
    case EndKind::kInput:
      // The input is only read; one function serves both directions.
      return static_cast<unsigned char*>(const_cast<void*>(block.part.input)) + block.start + offset;
    case EndKind::kOutput: return static_cast<unsigned char*>(block.part.output) + block.start + offset;
    case EndKind::kScratch: return block.program.scratch + offset;  // holds one round
    default: return reinterpret_cast<unsigned char*>(block.start + offset);
  }
}

TUTTI_DEVICE bool is_link(const End& end) {
  return end.kind == EndKind::kSend || end.kind == EndKind::kReceive;
}

/// Where a step that copies a message puts it in the receive buffer: there it lies already when it was
/// placed.
TUTTI_DEVICE unsigned char* placed_at(const BlockState& block) {
  const Step& step = block.step;
  uint32_t i = 0;
  const End* sinks = block.program.ends + step.first_end + step.source_count;
  while (i + 1u < step.sink_count && sinks[i].kind != EndKind::kOutput) ++i;
  return memory_of(block, sinks[i]);
}

/// Where the payload of a message that has come lies.
TUTTI_DEVICE const unsigned char* payload_of(const BlockState& block, const RecvLink& link, const Cell& cell,
                                             Carriage carriage) {
  if (carriage == Carriage::kInline) return cell.payload;
  if (carriage == Carriage::kSlot)
    return link.slots + (link.next & link.slot_mask) * static_cast<uint64_t>(link.slot_bytes);
  const uint64_t address = *reinterpret_cast<const uint64_t*>(cell.payload);
  if (address == kPlacedAddress) return placed_at(block);
  return reinterpret_cast<const unsigned char*>(address + static_cast<uint64_t>(link.reference_offset));
}

TUTTI_DEVICE void ready_source(BlockState& block, uint32_t item, const End& end) {
  const RecvLink& link = block.program.receives[end.index];
  const Cell& cell = link.cells[link.next & link.slot_mask];
  const auto signature = static_cast<uint16_t>(block.signature ^ block.step.signature);
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
  block.slice.sources[item] = payload_of(block, link, cell, flag::carriage(word));
}

/// How a slice travels over `link`.
TUTTI_DEVICE Carriage carriage_for(const BlockState& block, const SendLink& link) {
  const Step& step = block.step;
  const uint64_t bytes = block.slice.bytes;
  if (step.refers != 0 && bytes >= block.program.reference_bytes) {
    const EndKind referred = block.program.ends[step.first_end + step.refer_end].kind;
    const bool shared = link.same_process != 0 || step.shared != 0 ||
                        (referred == EndKind::kInput && block.program.input_shared != 0) ||
                        (referred == EndKind::kOutput && block.program.output_shared != 0);
    if (shared) return Carriage::kReference;
  }
  return bytes <= kInlineBytes ? Carriage::kInline : Carriage::kSlot;
}

TUTTI_DEVICE void ready_sink(BlockState& block, uint32_t item, const End& end) {
  SendLink& link = block.program.sends[end.index];
  if (link.next >= link.limit) {
    uint64_t limit = link.limit;
    const Stop why = wait_for(block, "room", &link.credit->released, [&] {
      limit = device::load_acquire(&link.credit->released) + link.slot_mask + 1;
      return link.next < limit;
    });
    if (why != Stop::kNone) return stop(block, why, item);
    link.limit = limit;
  }
  const Step& step = block.step;
  const uint64_t number = link.next;
  const Carriage carriage = carriage_for(block, link);
  ReadyEnd& ready = block.ends[item];
  ready.word = flag::make(number, static_cast<uint16_t>(block.signature ^ step.signature), block.slice.bytes);
  ready.carriage = carriage;
  unsigned char* sink = nullptr;
  if (carriage == Carriage::kInline) sink = link.cells[number & link.slot_mask].payload;
  if (carriage == Carriage::kSlot)
    sink = link.slots + (number & link.slot_mask) * static_cast<uint64_t>(link.slot_bytes);
  if (carriage == Carriage::kReference)
    ready.address =
        reinterpret_cast<uint64_t>(memory_of(block, block.program.ends[step.first_end + step.refer_end]));
  block.slice.sinks[item - step.source_count] = sink;
}

TUTTI_DEVICE void ready_ends(BlockState& block) {
  const Step& step = block.step;
  const uint32_t count = step.source_count + step.sink_count;
  if (device::thread_index() == 0) block.placed = 0;
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
}

// ---- placing results in the receivers' buffers --------------------------------------------------

/// Where the receive buffer of the window's owner begins; null while it cannot be written from here.
TUTTI_DEVICE unsigned char* open_window(const PeerWindow& peer, uint64_t call) {
  if (device::load_acquire(&peer.window->call) != call) return nullptr;
  const uint64_t address = device::load_relaxed(&peer.window->address);
  if (peer.same_process != 0) return reinterpret_cast<unsigned char*>(address);
  if (device::load_relaxed(&peer.window->in_heap) == 0) return nullptr;
  return reinterpret_cast<unsigned char*>(address + static_cast<uint64_t>(peer.reference_offset));
}

/// The sinks of a slice that is placed: the receivers' buffers and the own memory.
TUTTI_DEVICE void choose_sinks(BlockState& block) {
  const Step& step = block.step;
  for (uint32_t i = 0; i < step.window_count; ++i) {
    if (block.windows[i] == nullptr) return;
  }
  const End* sinks = block.program.ends + step.first_end + step.source_count;
  const unsigned char* const own = block.slice.sinks[step.refer_end - step.source_count];
  const uint64_t offset = static_cast<uint64_t>(own - static_cast<unsigned char*>(block.part.output));
  uint32_t count = 0;
  for (uint32_t i = 0; i < step.sink_count; ++i) {
    if (!is_link(sinks[i])) block.slice.sinks[count++] = block.slice.sinks[i];
  }
  for (uint32_t i = 0; i < step.window_count; ++i) block.slice.sinks[count++] = block.windows[i] + offset;
  block.slice.sink_count = count;
  block.placed = 1;
}

/// Where all receivers have opened their buffers in this call, the result goes straight there.
TUTTI_DEVICE void place_result(BlockState& block) {
  const Step& step = block.step;
  if (step.window_count == 0 || block.slice.bytes < block.program.reference_bytes) return;
  for (uint32_t i = device::thread_index(); i < step.window_count; i += device::thread_count())
    block.windows[i] = open_window(block.program.windows[step.first_window + i], block.call);
  device::barrier("the windows are known");
  if (device::thread_index() == 0) choose_sinks(block);
  device::barrier("the sinks are chosen");
}

/// Opens the own window; every block does, so that whoever has a message from one finds it open.
TUTTI_DEVICE void open_own_window(const BlockState& block) {
  Window* const window = block.program.state->window;
  if (window == nullptr || block.program.windows == nullptr || block.program.is_collective == 0) return;
  device::store_relaxed(&window->address, reinterpret_cast<uint64_t>(block.part.output));
  device::store_relaxed(&window->in_heap, block.program.output_shared);
  device::store_release(&window->call, block.call);
}

// ---- telling the peers (a thread each) ----------------------------------------------------------

TUTTI_DEVICE void commit(BlockState& block, const ReadyEnd& ready, SendLink& link) {
  Cell& cell = link.cells[link.next & link.slot_mask];
  Carriage carriage = ready.carriage;
  ++link.next;
  if (block.placed != 0 || carriage == Carriage::kReference) {
    *reinterpret_cast<uint64_t*>(cell.payload) = block.placed != 0 ? kPlacedAddress : ready.address;
    carriage = Carriage::kReference;
    if (block.placed == 0) link.last_reference = link.next;
  }
  device::store_release(&cell.word, ready.word | static_cast<uint64_t>(carriage) << flag::kCarriageShift);
}

/// The writer hears of slots late, but of references at once.
TUTTI_DEVICE void release(const ReadyEnd& ready, RecvLink& link) {
  ++link.next;
  if (ready.carriage >= Carriage::kReference || (link.next & link.credit_mask) == 0)
    device::store_release(&link.credit->released, link.next);
}

TUTTI_DEVICE void tell_peers(BlockState& block, uint32_t first_end, uint32_t count) {
  for (uint32_t item = device::thread_index(); item < count; item += device::thread_count()) {
    const End end = block.program.ends[first_end + item];
    if (end.kind == EndKind::kSend) commit(block, block.ends[item], block.program.sends[end.index]);
    if (end.kind == EndKind::kReceive) release(block.ends[item], block.program.receives[end.index]);
  }
}

// ---- a lane -------------------------------------------------------------------------------------

/// Waits until nobody reads this rank's buffers any more; item s * kMaxSinks + m is sink m of the lane's step
/// s.
TUTTI_DEVICE void await_references(BlockState& block) {
  if (block.program.reference_bytes == UINT64_MAX) return;
  for (uint32_t s = device::thread_index(); s < block.lane.step_count; s += device::thread_count()) {
    const Step& step = block.program.steps[block.lane.first_step + s];
    if (step.refers == 0) continue;
    for (uint32_t m = 0; m < step.sink_count; ++m) {
      const End end = block.program.ends[step.first_end + step.source_count + m];
      if (end.kind != EndKind::kSend) continue;
      const SendLink& link = block.program.sends[end.index];
      if (link.last_reference + link.slot_mask < link.limit) continue;  // or none was ever sent
      const Stop why = wait_for(block, "references to come back", &link.credit->released, [&] {
        return device::load_acquire(&link.credit->released) >= link.last_reference;
      });
      if (why != Stop::kNone) stop(block, why, s * reduce::kMaxSinks + m);
    }
  }
}

/// Runs slices until the lane is finished or stopped. Returns whether it moved any.
TUTTI_DEVICE bool run_slices(BlockState& block) {
  bool moved = false;
  if (device::thread_index() == 0) find_slice(block);
  device::barrier("the first slice is found");
  while (block.running != 0) {
    const uint32_t first_end = block.step.first_end;
    const uint32_t end_count = block.step.source_count + block.step.sink_count;
    ready_ends(block);
    device::barrier("the ends are ready");
    if (why_stopped(block) != Stop::kNone) return moved;
    place_result(block);
    move_slice(block.slice);
    device::barrier("the slice is moved");
    tell_peers(block, first_end, end_count);
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

// ---- beginning and leaving ----------------------------------------------------------------------

/// Fills the shared memory for the calling block's lane (one thread).
TUTTI_DEVICE void begin_block(BlockState& block, uint64_t poll_limit) {
  const Part& part = block.part;
  const uint32_t lane = device::block_index() - part.first_block;
  block.program = *part.program;
  block.lane_index = lane;
  block.lane = block.program.lanes[lane];
  block.at = block.program.positions[lane];
  block.poll_limit = poll_limit;
  block.call = block.program.state->sequence + 1;
  block.signature =
      block.program.is_collective != 0 ? call_signature(block.program.signature_seed, block.call) : 0;
  block.running = 0;
  block.stopped = 0;
  block.placed = 0;
  Slice& slice = block.slice;
  slice.arithmetic = block.program.arithmetic;
  if (part.scale != nullptr) {
    const auto* bytes = static_cast<const unsigned char*>(part.scale);
    slice.arithmetic.scale_bits = 0;
    for (uint32_t i = 0; i < slice.arithmetic.element_bytes; ++i)
      slice.arithmetic.scale_bits |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  }
  if (block.lane.step_count == 0) block.at.round = block.lane.round_count;
  if (block.at.round < block.lane.round_count)
    block.step = block.program.steps[block.lane.first_step + block.at.step];
  if (device::load_relaxed(&block.program.state->failed) != 0) stop(block, Stop::kFailed, 0);
}

/// What the stopped lane waits for, or what came instead (one thread).
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
    const auto signature = static_cast<uint16_t>(block.signature ^ block.step.signature);
    obstacle.word = block.ends[item].word;
    obstacle.expected = flag::make(link.next, signature, block.slice.bytes);
  }
  return obstacle;
}

/// Stores where the lane left off and counts the block out (one thread). `was_finished`: in an earlier
/// launch.
TUTTI_DEVICE void leave(BlockState& block, bool was_finished, bool moved) {
  RankState* const state = block.program.state;
  const Stop why = why_stopped(block);
  block.at.obstacle = find_obstacle(block);
  block.program.positions[block.lane_index] = block.at;
  if (block.at.finished != 0 && !was_finished) device::add_relaxed(&state->lanes_finished, 1);
  if (moved) device::add_relaxed(&state->lanes_moved, 1);
  if (why == Stop::kMismatch) device::store_relaxed(&state->failed, static_cast<uint32_t>(Ring::kMismatch));
  if (why == Stop::kAborted) device::store_relaxed(&state->failed, static_cast<uint32_t>(Ring::kAborted));
  block.is_last = device::add_acquire_release(&state->blocks_out, 1) + 1 == block.part.block_count ? 1 : 0;
}

/// How the launch went, as its last block finds it (one thread).
TUTTI_DEVICE Ring judge(BlockState& block) {
  RankState* const state = block.program.state;
  const uint32_t failed = device::load_relaxed(&state->failed);
  if (failed != 0) return static_cast<Ring>(failed);
  if (device::load_relaxed(&state->lanes_finished) == block.part.block_count) return Ring::kDone;
  if (device::load_acquire(&block.program.signals->abort) == 0) return Ring::kUnfinished;
  device::store_relaxed(&state->failed, static_cast<uint32_t>(Ring::kAborted));
  return Ring::kAborted;
}

/// The obstacle that the host is told of: the first mismatch, or else that of the lowest lane that is not
/// finished.
TUTTI_DEVICE void tell_obstacle(const BlockState& block) {
  for (uint32_t lane = 0; lane < block.part.block_count; ++lane) {
    const Position& at = block.program.positions[lane];
    const bool tells = block.ring == Ring::kMismatch ? at.obstacle.expected != 0 : at.finished == 0;
    if (!tells) continue;
    block.program.signals->obstacle = at.obstacle;
    block.program.signals->part = block.part;
    return;
  }
}

/// Counts the launch and rings the host (one thread). Nothing of the launch is written after `done`.
TUTTI_DEVICE void ring_host(BlockState& block) {
  RankState* const state = block.program.state;
  Signals* const signals = block.program.signals;
  const bool ended = block.ring != Ring::kUnfinished;
  state->blocks_out = 0;
  if (device::load_relaxed(&state->lanes_moved) != 0) ++state->moved;
  state->lanes_moved = 0;
  if (ended) {
    state->lanes_finished = 0;
    ++state->ended;
  }
  if (block.ring == Ring::kDone && block.program.is_collective != 0) ++state->sequence;
  if (block.ring == Ring::kUnfinished || block.ring == Ring::kMismatch) tell_obstacle(block);
  device::store_relaxed(&signals->moved, state->moved);
  device::store_relaxed(&signals->ended, state->ended);
  device::store_relaxed(&signals->sequence, state->sequence);
  device::store_release(&signals->left, ++state->left << kRingBits | static_cast<uint64_t>(block.ring));
  if (ended) device::store_release(&signals->done, 1);
}

/// The end of a launch, by all threads of its last block.
TUTTI_DEVICE void close_launch(BlockState& block) {
  if (device::thread_index() == 0) block.ring = judge(block);
  device::barrier("the launch is judged");
  if (block.ring == Ring::kDone) {
    for (uint32_t lane = device::thread_index(); lane < block.part.block_count;
         lane += device::thread_count())
      block.program.positions[lane] = Position{};
  }
  device::barrier("the positions are reset");
  if (device::thread_index() == 0) ring_host(block);
}

/// The part that the calling block runs (one thread). Every index is constant: the argument lies where no
/// other index can reach it.
TUTTI_DEVICE void find_part(BlockState& block, const Launch& launch) {
  TUTTI_UNROLL
  for (uint32_t p = 0; p < kMaxParts; ++p) {
    if (p < launch.part_count && device::block_index() >= launch.parts[p].first_block)
      block.part = launch.parts[p];
  }
}

/// Runs the lane that falls to the calling block.
TUTTI_DEVICE void run_launch(const Launch& launch) {
  TUTTI_SHARED(BlockState, block);
  if (device::thread_index() == 0) {
    find_part(block, launch);
    begin_block(block, launch.poll_limit);
    if (launch.first != 0 && why_stopped(block) == Stop::kNone) {
      if (block.lane_index == 0) device::store_relaxed(&block.program.signals->done, 0);
      open_own_window(block);
    }
  }
  device::barrier("the block has begun");
  const bool was_finished = block.at.finished != 0;
  const bool runs = !was_finished && why_stopped(block) == Stop::kNone;
  device::barrier("the block knows whether it runs");
  bool moved = false;
  if (runs) moved = run_slices(block);
  if (device::thread_index() == 0) leave(block, was_finished, moved);
  device::barrier("the block has left");
  if (block.is_last != 0) close_launch(block);
}

}  // namespace tutti::cuda
