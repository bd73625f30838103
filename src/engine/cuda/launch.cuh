// A launch: how the blocks of a rank's part begin, wait, leave and report to the host. The interpreters
// (interpreter.cuh, short.cuh) do the rest.
//
// A block stops after Launch::poll_limit polls, on another call of its peer, or when the host aborts. It then
// stores the lane's position and leaves the lane. The last block out of all lanes reports the result
// (Signals) and, if all lanes are finished, prepares the Program for its next call.
//
// A launch that stays (Launch::stays) does so in rounds. A block with an unfinished lane waits until all
// lanes are left, so that the host learns what the ranks wait for, and begins again. A block with only
// finished lanes leaves the device. As no second launch is needed, other streams cannot hold the operation
// up.
#pragma once

#include <cstddef>
#include <cstring>

#include "core/hash.h"
#include "engine/cuda/device.h"
#include "engine/cuda/program.h"
#include "engine/cuda/slice.h"
#include "transports/ring.h"

namespace tutti::cuda {

/// Polls between two looks at the abort word, which is in host memory.
inline constexpr uint64_t kPollsPerLook = 1024;

/// Why a lane stops. A higher value is more urgent.
enum class Stop : uint32_t {
  kNone = 0,
  kNotReady = 1,
  kFailed = 2,  ///< another block or an earlier launch has failed
  kMismatch = 3,
  kAborted = 4,
};

/// The slice that is made ready while the one before moves.
struct NextSlice {
  uint64_t bytes;
  const unsigned char* sources[reduce::kMaxSources];
  unsigned char* sinks[reduce::kMaxSinks];
  uint32_t sink_count;
};

/// The lane's entries of the Program's tables (tables.cuh): copies in the block's room, or the tables
/// themselves. Of links that are not copied, all of the Program's.
struct Tables {
  SendLink* sends;
  RecvLink* receives;
  const End* ends;
  const uint64_t* chunk_bytes;
  const uint64_t* offsets;
  const Step* steps;
};

/// A peer's exposed buffer, which stays as it is for the call once it is exposed.
struct KnownBuffer {
  unsigned char* begin;
  uint64_t bytes;  ///< that this rank reaches
  uint32_t of;     ///< the buffer's number in Program::exposed, from 1 on; 0: nothing is known
};

/// A block's shared memory.
struct BlockState {
  Program program;
  Part part;
  Lane lane;
  Step step;
  Position at;      ///< behind the last slice of which the peers are told
  Position ahead;   ///< of the slice that is made ready
  RankState state;  ///< as the block found it; what this launch's own blocks change is out of date
  uint64_t poll_limit;
  uint64_t left;     ///< RankState::left in this round
  uint32_t rounds;   ///< RankState::rounds / kRound in this round
  uint64_t call;     ///< number of the collective
  uint64_t history;  ///< of all collectives, with this one
  uint64_t start;    ///< offset of the current piece in its chunk
  uint64_t stopped;  ///< Stop << 32 | ~item of the thread: the most urgent stop, then the lowest item
  uint32_t lane_index;
  uint32_t running;     ///< 1: there is a slice to make ready
  uint32_t moving;      ///< 1: there is a slice to move
  uint32_t moved;       ///< slices that have moved since the lane began
  uint64_t late;        ///< the last slice that was not ready when the one before had moved
  uint32_t is_last;     ///< 1: this block is the last out
  uint32_t is_alone;    ///< 1: it is the operation's only one and has done it at once: no counter was needed
  uint32_t stays;       ///< Launch::stays
  uint32_t begins;      ///< 1: this is the first round of an operation
  uint32_t unfinished;  ///< the block's unfinished lanes in this round so far
  uint32_t goes_on;     ///< 1: the block has another lane to run
  uint32_t signature;
  LaunchEnd end;
  Slice slice;  ///< moves
  NextSlice next;
  Tables tables;
  KnownBuffer exposed[reduce::kMaxSinks];  ///< of the last step that wrote directly
  uint64_t room[kRoomBytes / sizeof(uint64_t)];
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

/// Whether the host or another block has ended the operation.
TUTTI_DEVICE Stop look_around(const BlockState& block) {
  if (device::load_acquire(&block.program.signals->abort) != 0) return Stop::kAborted;
  return device::load_relaxed(&block.program.state->failed) != 0 ? Stop::kFailed : Stop::kNone;
}

/// Polls `is_ready` until it returns true, the launch's bound is reached or the operation has ended.
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

// ---- beginning and leaving ----------------------------------------------------------------------

/// Finds the calling block's part (one thread). The launch argument needs constant indices.
TUTTI_DEVICE void find_part(BlockState& block, const Launch& launch) {
  TUTTI_UNROLL
  for (uint32_t p = 0; p < kMaxParts; ++p) {
    if (p < launch.part_count && device::block_index() >= launch.parts[p].first_block)
      block.part = launch.parts[p];
  }
}

/// The calling thread's first word of a table of which thread `first` copies the first word: so the loads of
/// several tables are on their way at once.
TUTTI_DEVICE uint32_t first_word(uint32_t first) {
  const uint32_t threads = device::thread_count();
  if (first >= threads) return device::thread_index();
  return device::thread_index() >= first ? device::thread_index() - first
                                         : device::thread_index() + threads - first;
}

/// Copies a table word by word, each by a thread of its own from `first` on.
template <class Table>
TUTTI_DEVICE void copy_table(Table& to, const Table* from, uint32_t first) {
  static_assert(sizeof(Table) % sizeof(uint64_t) == 0);
  const auto* const source = reinterpret_cast<const uint64_t*>(from);
  auto* const target = reinterpret_cast<uint64_t*>(&to);
  for (uint32_t i = first_word(first); i < sizeof(Table) / sizeof(uint64_t); i += device::thread_count())
    target[i] = device::load_relaxed(source + i);
}

/// Sets what the block keeps for all its lanes (all threads).
TUTTI_DEVICE void begin_block(BlockState& block, const Launch& launch) {
  if (device::thread_index() == 0) {
    find_part(block, launch);
    block.lane_index = device::block_index() - block.part.first_block;
    block.poll_limit = launch.poll_limit;
    block.stays = launch.stays;
    block.begins = launch.first;
    block.unfinished = 0;
  }
  device::barrier("the part is found");
  copy_table<Program>(block.program, block.part.program, 0);
  device::barrier("the program is here");
}

/// Copies what the lane begins with (all threads).
TUTTI_DEVICE void load_lane(BlockState& block) {
  const uint32_t lane = block.lane_index;
  copy_table<RankState>(block.state, block.program.state, 0);
  copy_table<Position>(block.at, block.program.positions + lane, kWarpThreads);
  copy_table<Lane>(block.lane, block.program.lanes + lane, 2 * kWarpThreads);
}

/// Fills the shared memory for a lane (one thread).
TUTTI_DEVICE void begin_lane(BlockState& block) {
  const Part& part = block.part;
  if (block.lane.step_count == 0) block.at.round = block.lane.round_count;
  block.call = block.state.sequence + 1;
  block.history = next_history(block.state.history, block.program.signature_seed);
  block.signature = block.program.is_collective != 0 ? history_signature(block.history) : 0;
  block.ahead = block.at;
  block.running = 0;
  block.moving = 0;
  block.moved = 0;
  block.late = 0;
  block.stopped = 0;
  block.is_alone = 0;
  Slice& slice = block.slice;
  slice.arithmetic = block.program.arithmetic;
  if (part.scale != nullptr) {
    const auto* bytes = static_cast<const unsigned char*>(part.scale);
    slice.arithmetic.scale_bits = 0;
    for (uint32_t i = 0; i < slice.arithmetic.element_bytes; ++i)
      slice.arithmetic.scale_bits |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  }
  if (block.at.round < block.lane.round_count)
    block.step = block.program.steps[block.lane.first_step + block.at.step];
  if (block.state.failed != 0) stop(block, Stop::kFailed, 0);
}

/// Counts the finished lanes of a block that is about to leave a launch that stays. Call before leaving the
/// last lane: the block that ends the round must see the count.
TUTTI_DEVICE void count_gone(BlockState& block) {
  const uint32_t lanes = block.program.lane_count;
  const uint32_t blocks = block.part.block_count;
  const uint32_t own = device::block_index() - block.part.first_block;
  if (block.unfinished == 0 && block.lane_index + blocks >= lanes)
    device::add_relaxed(&block.program.state->lanes_gone, (lanes - own + blocks - 1) / blocks);
}

/// Whether the block has done the whole operation at once.
TUTTI_DEVICE bool has_done_all(const BlockState& block) {
  return block.program.lane_count == 1 && block.begins != 0 && block.at.finished != 0 &&
         why_stopped(block) == Stop::kNone;
}

/// Stores the lane's position and counts the lane out (one thread). `was_finished`: in an earlier launch or
/// round.
TUTTI_DEVICE void leave(BlockState& block, bool was_finished, bool moved) {
  RankState* const state = block.program.state;
  const Stop why = why_stopped(block);
  if (has_done_all(block)) {
    block.is_alone = 1;
    block.is_last = 1;
    return;
  }
  block.program.positions[block.lane_index] = block.at;
  if (block.at.finished == 0) ++block.unfinished;
  if (block.at.finished != 0 && !was_finished) device::add_relaxed(&state->lanes_finished, 1);
  if (moved) device::add_relaxed(&state->lanes_moved, 1);
  if (why == Stop::kMismatch)
    device::store_relaxed(&state->failed, static_cast<uint32_t>(LaunchEnd::kMismatch));
  if (why == Stop::kAborted)
    device::store_relaxed(&state->failed, static_cast<uint32_t>(LaunchEnd::kAborted));
  if (block.stays != 0) count_gone(block);
  block.is_last = device::add_acquire_release(&state->lanes_out, 1) + 1 == block.program.lane_count ? 1 : 0;
}

/// Returns how the launch or round ended. The last block calls this function (one thread).
TUTTI_DEVICE LaunchEnd judge(BlockState& block) {
  if (block.is_alone != 0) return LaunchEnd::kDone;
  RankState* const state = block.program.state;
  const uint32_t failed = device::load_relaxed(&state->failed);
  if (failed != 0) return static_cast<LaunchEnd>(failed);
  if (device::load_relaxed(&state->lanes_finished) == block.program.lane_count) return LaunchEnd::kDone;
  if (device::load_acquire(&block.program.signals->abort) == 0) {
    if (block.stays == 0) return LaunchEnd::kUnfinished;
    // From here on no block may desert: the next round needs all.
    if (device::add_acquire_release(&state->rounds, kRound) % kRound == 0) return LaunchEnd::kGoesOn;
  }
  device::store_relaxed(&state->failed, static_cast<uint32_t>(LaunchEnd::kAborted));
  return LaunchEnd::kAborted;
}

/// Writes a part of the LaunchReport. The host may read at the same time.
template <class T>
TUTTI_DEVICE void tell(uint64_t* report, size_t offset, const T& part) {
  static_assert(sizeof(T) % sizeof(uint64_t) == 0);
  TUTTI_UNROLL
  for (size_t at = 0; at < sizeof(T); at += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, reinterpret_cast<const unsigned char*>(&part) + at, sizeof(word));
    device::store_relaxed(report + (offset + at) / sizeof(uint64_t), word);
  }
}

/// Tells the host the obstacle of the first mismatch, or else of the lowest unfinished lane. `before`: the
/// previous report.
TUTTI_DEVICE void tell_obstacle(const BlockState& block, uint64_t* report, const uint64_t* before) {
  for (uint32_t lane = 0; lane < block.program.lane_count; ++lane) {
    const Position& at = block.program.positions[lane];
    const bool tells = block.end == LaunchEnd::kMismatch ? at.obstacle.expected != 0 : at.finished == 0;
    if (!tells) continue;
    tell(report, offsetof(LaunchReport, obstacle), at.obstacle);
    tell(report, offsetof(LaunchReport, part), block.part);
    return;
  }
  // A launch after a mismatch meets none: repeat the previous report.
  for (uint32_t i = offsetof(LaunchReport, part) / sizeof(uint64_t); i < kReportWords; ++i)
    device::store_relaxed(report + i, device::load_relaxed(before + i));
}

TUTTI_DEVICE void tell_count(StampedCount* to, uint64_t count, uint64_t left) {
  device::store_mail(to, Mail{{static_cast<uint32_t>(count), static_cast<uint32_t>(count >> 32),
                               static_cast<uint32_t>(left)},
                              static_cast<uint32_t>(left >> 32)});
}

/// `state`: as the launch or round leaves it.
TUTTI_DEVICE void tell_report(const BlockState& block, const RankState& state, uint64_t left,
                              bool has_obstacle) {
  Signals* const signals = block.program.signals;
  uint64_t* const report = signals->report[report_slot(left)];
  if (has_obstacle) tell_obstacle(block, report, signals->report[report_slot(left) ^ 1]);
  StampedCount* const counts = signals->counts[report_slot(left)];
  tell_count(counts + offsetof(LaunchReport, moved) / sizeof(uint64_t), state.moved, left);
  tell_count(counts + offsetof(LaunchReport, ended) / sizeof(uint64_t), state.ended, left);
  tell_count(counts + offsetof(LaunchReport, sequence) / sizeof(uint64_t), state.sequence, left);
}

/// Tells that the launch or round has ended (one thread).
TUTTI_DEVICE void tell_end(BlockState& block, uint64_t left, bool ended) {
  RankState* const state = block.program.state;
  Signals* const signals = block.program.signals;
  // The host may launch again as soon as it hears; blocks that stay may end the next round.
  if (block.stays == 0) device::store_relaxed(&state->left, left);
  if (block.stays != 0 && block.end == LaunchEnd::kDone) {
    // No later round, no stream waits for `done`, and the counts have stamps: the order of the words is
    // irrelevant. A fence would wait for the host's memory, which takes a microsecond.
    device::store_relaxed(&signals->left, left);
    device::store_relaxed(&state->left, left);
    device::store_relaxed(&signals->done, 1u);
    return;
  }
  device::store_release(&signals->left, left);
  if (block.stays != 0) device::store_release(&state->left, left);
  if (ended) device::store_release(&signals->done, 1);
}

/// Counts the launch or round and rings the host (one thread).
TUTTI_DEVICE void ring_host(BlockState& block) {
  RankState* const state = block.program.state;
  RankState after = block.state;
  const bool ended = block.end != LaunchEnd::kUnfinished && block.end != LaunchEnd::kGoesOn;
  bool moved = true;
  if (block.is_alone == 0) {
    moved = device::load_relaxed(&state->lanes_moved) != 0;
    state->lanes_moved = 0;
    if (ended) {
      state->lanes_gone = 0;
      state->lanes_finished = 0;
    }
    state->lanes_out = state->lanes_gone;
  }
  if (ended) state->ended = ++after.ended;
  if (moved) state->moved = ++after.moved;
  if (block.end == LaunchEnd::kDone && block.program.is_collective != 0) {
    state->sequence = ++after.sequence;
    state->history = block.history;
  }
  if (block.end == LaunchEnd::kDone && block.program.short_lanes != nullptr)
    state->short_calls = ++after.short_calls;
  const uint64_t left =
      ((block.left >> kLaunchEndBits) + 1) << kLaunchEndBits | static_cast<uint64_t>(block.end);
  tell_report(block, after, left, !ended || block.end == LaunchEnd::kMismatch);
  tell_end(block, left, ended);
}

/// Ends a launch or round (all threads of the last block).
TUTTI_DEVICE void close_launch(BlockState& block) {
  if (device::thread_index() == 0) block.end = judge(block);
  device::barrier("the launch is judged");
  if (block.end == LaunchEnd::kDone && block.is_alone == 0) {
    for (uint32_t lane = device::thread_index(); lane < block.program.lane_count;
         lane += device::thread_count())
      block.program.positions[lane] = Position{};
  }
  device::barrier("the positions are reset");
  if (device::thread_index() == 0) ring_host(block);
}

/// Leaves a round early if the host has ended the operation: others may wait for this block's place on the
/// device. Its lanes are counted, so the last block out still ends the operation. False: the round has just
/// gone on.
TUTTI_DEVICE bool desert(const BlockState& block) {
  RankState* const state = block.program.state;
  if (device::load_acquire(&block.program.signals->abort) == 0) return false;
  device::store_relaxed(&state->failed, static_cast<uint32_t>(LaunchEnd::kAborted));
  return device::add_acquire_release(&state->rounds, 1) / kRound == block.rounds;
}

/// Waits for the end of the round (one thread). Returns whether another round follows.
TUTTI_DEVICE bool await_round(BlockState& block) {
  const uint64_t* const word = &block.program.state->left;
  uint64_t left = device::load_acquire(word);
  const bool waits = left == block.left;
  bool deserts = false;
  for (uint64_t polls = 1; left == block.left && !deserts; ++polls) {
    device::poll_failed("the end of the round", word, false);
    left = device::load_acquire(word);
    deserts = polls % kPollsPerLook == 0 && desert(block);
  }
  if (waits) device::wait_ended();
  if (deserts) return false;
  block.left = left;
  block.rounds = (block.rounds + 1) % (UINT32_MAX / kRound + 1);
  block.begins = 0;
  block.unfinished = 0;
  return left % (1u << kLaunchEndBits) == static_cast<uint64_t>(LaunchEnd::kGoesOn);
}

/// The block's next lane in a launch that stays: in this round or, after a wait, in the next (one thread).
/// Returns whether there is one.
TUTTI_DEVICE bool find_next_lane(BlockState& block) {
  block.lane_index += block.part.block_count;
  if (block.lane_index < block.program.lane_count) return true;
  block.lane_index = device::block_index() - block.part.first_block;
  return block.unfinished != 0 && await_round(block);
}

/// Runs the block's current lane until it is finished or stopped. The interpreter of `State` provides
/// load_ahead (all threads), load_tables (all threads, once the lane is known), begin_call (one thread),
/// begin_operation (one thread, in an operation's first round), run_lane (all threads; whether anything
/// moved) and find_obstacle (one thread). `is_first`: of the block's lanes.
template <class State>
TUTTI_DEVICE void pass_lane(State& block, bool is_first) {
  load_lane(block);
  load_ahead(block);
  device::barrier("the lane is here");
  load_tables(block);
  if (device::thread_index() == 0) {
    if (is_first) {
      // Both stay the same until this block has left its lanes.
      block.left = block.state.left;
      block.rounds = block.state.rounds / kRound;
    }
    begin_lane(block);
    begin_call(block);
    if (block.begins != 0 && why_stopped(block) == Stop::kNone) {
      if (block.lane_index == 0) device::store_relaxed(&block.program.signals->done, 0);
      begin_operation(block);
    }
  }
  device::barrier("the block has begun");
  const bool was_finished = block.at.finished != 0;
  const bool runs = !was_finished && why_stopped(block) == Stop::kNone;
  device::barrier("the block knows whether it runs");
  bool moved = false;
  if (runs) moved = run_lane(block);
  if (device::thread_index() == 0) {
    block.at.obstacle = find_obstacle(block);
    leave(block, was_finished, moved);
  }
  device::barrier("the block has left");
  if (block.is_last != 0) close_launch(block);
}

/// Runs the calling block's lanes. `block` is its shared memory.
template <class State>
TUTTI_DEVICE void run_block(State& block, const Launch& launch) {
  if (launch.part_count == 0) return;  // the launch that makes the driver provide for the kernel
  begin_block(block, launch);
  // One call site, so that the compiler keeps one copy of the lane's code.
  for (bool is_first = true;; is_first = false) {
    pass_lane(block, is_first);
    if (launch.stays == 0) return;
    if (device::thread_index() == 0) block.goes_on = find_next_lane(block) ? 1 : 0;
    device::barrier("the next lane is found");
    if (block.goes_on == 0) return;
  }
}

}  // namespace tutti::cuda
