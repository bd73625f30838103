// The interpreter: runs a bound operation. bind.cc binds.
#include "engine/operation.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "core/cache_hints.h"
#include "core/clock.h"
#include "core/relax.h"

namespace tutti {

void Operation::start(const Buffers& buffers, uint32_t signature) {
  // Nobody writes the input; one array of bases serves both directions.
  bases_[kInputBase] = static_cast<std::byte*>(const_cast<void*>(buffers.input));
  bases_[kOutputBase] = static_cast<std::byte*>(buffers.output);
  shared_[kInputBase] = buffers.input_shared;
  shared_[kOutputBase] = buffers.output_shared;
  registered_[kInputBase] = buffers.input_registered;
  registered_[kOutputBase] = buffers.output_registered;
  signature_ = signature;
  call_ = buffers.call;
  lanes_left_ = static_cast<uint32_t>(lanes_.size());
  for (BoundLane& lane : lanes_) {
    lane.step = 0;
    lane.round = 0;
    lane.chunk = 0;
    lane.piece_ready = false;
    lane.done = false;
  }
  reference_links_.clear();
  result_stores_ = results_ != nullptr ? results_->begin() : Stores::kOrdinary;
  if (!message_steps_.empty()) count_messages();
  if (round_count_ > 1) find_early_steps();
}

/// The steps of a link are in the order of its messages.
void Operation::count_messages() {
  for (const uint32_t number : message_steps_) {
    if (number == kNoStep) continue;
    count_message(steps_[number]);
  }
}

void Operation::count_message(BoundStep& step) {
  enter_history(step);
  choose_carriage(step);
  find_plain(step);
}

/// Of a message: whether the reader pulls it, and times it.
void Operation::choose_carriage(BoundStep& step) {
  const BoundEnd* ends = &ends_[step.first_end];
  SendLink* link = ends[1].send;
  const bool is_long = step.merged_bytes >= std::max<uint64_t>(pulled_message_bytes_, 1);
  if (link == nullptr) {
    step.timed = is_long && ends[0].recv->begin_trial(step.merged_bytes) && step.device == nullptr;
    return;
  }
  step.pulled = is_long && link->choose_pulling(step.merged_bytes) && step.device == nullptr &&
                !step.shared && !link->same_process && link->can_pull() &&
                pullable_.can_be_pulled(reinterpret_cast<const void*>(ends[0].address), step.merged_bytes);
  step.refer_bytes = step.pulled ? std::min(reference_bytes_, pull_bytes_) : reference_bytes_;
}

/// After a message has been read.
[[gnu::noinline]] void Operation::judge_carriage(const BoundStep& step) {
  ends_[step.first_end].recv->judge_message(step.pulled, step.merged_bytes, now_ns() - step.began_ns,
                                            pull_cost_);
}

uint64_t Operation::least_pulled_bytes() const {
  uint64_t received = 0, most_sent = 0;
  std::map<const SendLink*, uint64_t> sent;
  for (const BoundStep& step : steps_) {
    uint64_t bytes = 0;
    for (uint32_t chunk = 0; chunk < step.chunk_count; ++chunk)
      bytes += geometry_.agreed_chunk(step.first_chunk + chunk).bytes;
    for (uint32_t e = step.first_end; e < step.first_end + step.source_count + step.sink_count; ++e) {
      if (ends_[e].recv != nullptr) received += bytes;
      if (ends_[e].send != nullptr) most_sent = std::max(most_sent, sent[ends_[e].send] += bytes);
    }
  }
  return std::max(received, most_sent);
}

void Operation::find_early_steps() {
  constexpr size_t kStepsMost = 64;  // each step is compared with all others
  for (const BoundLane& lane : lanes_) {
    for (uint32_t i = lane.first_step; i < lane.first_step + lane.step_count; ++i) {
      steps_[i].early = steps_.size() <= kStepsMost && may_be_early(lane, i);
    }
  }
}

/// Whether later rounds of a step may arrive early: they follow on the link and in memory, and only later
/// steps of the lane touch their memory too.
bool Operation::may_be_early(const BoundLane& lane, uint32_t index) const {
  const BoundStep& step = steps_[index];
  const BoundEnd* ends = &ends_[step.first_end];
  if (!only_receives(step, ends) || ends[0].recv->offer == nullptr) return false;
  if (step.chunk_count != 1 || ends[1].base != kOutputBase) return false;
  const std::span<const std::byte> target = first_chunk_of(ends[1]);
  for (uint32_t i = 0; i < steps_.size(); ++i) {
    if (i == index) continue;
    const BoundStep& other = steps_[i];
    const bool behind = i > index && i < lane.first_step + lane.step_count;
    if (!behind && other.chunk_count != 1) return false;
    for (uint32_t e = 0; e < uint32_t{other.source_count} + other.sink_count; ++e) {
      const BoundEnd& end = ends_[other.first_end + e];
      if (end.recv == ends[0].recv) return false;
      const std::span<const std::byte> memory = first_chunk_of(end);
      const bool overlaps =
          memory.data() < target.data() + target.size() && target.data() < memory.data() + memory.size();
      if (!behind && overlaps) return false;
    }
  }
  return true;
}

/// The first chunk of an end in the user's memory; empty for other ends.
std::span<const std::byte> Operation::first_chunk_of(const BoundEnd& end) const {
  const bool is_input = end.base == kInputBase;
  if (end.send != nullptr || end.recv != nullptr || (!is_input && end.base != kOutputBase)) return {};
  const Extent chunk =
      is_input ? geometry_.input_chunk(end.first_chunk) : geometry_.output_chunk(end.first_chunk);
  return {bases_[end.base] + chunk.offset, chunk.bytes};
}

bool Operation::only_receives(const BoundStep& step, const BoundEnd* ends) {
  return step.copies && step.sink_count == 1 && ends[0].recv != nullptr && ends[1].send == nullptr;
}

Progress Operation::advance(uint32_t polls) {
  if (short_) return advance_short(polls);
  bool moved = false;
  while (lanes_left_ > 0) {
    bool lane_moved = false;
    for (BoundLane& lane : lanes_) {
      if (lane.done) continue;
      const Progress progress = advance_lane(lane, lanes_left_ == 1 ? polls : 1);
      if (progress == Progress::kMismatch) return progress;
      if (progress == Progress::kDone) {
        lane.done = true;
        --lanes_left_;
      }
      lane_moved = lane_moved || progress != Progress::kBlocked;
    }
    if (!lane_moved) return moved ? Progress::kMoved : Progress::kBlocked;
    moved = true;
  }
  if (!references_returned()) return moved ? Progress::kMoved : Progress::kBlocked;
  return Progress::kDone;
}

/// A step of one slice. kBlocked: it has not moved.
Progress Operation::run_short_step(BoundStep& step, uint32_t polls) {
  const uint64_t bytes = step.merged_bytes;
  for (uint32_t poll = 1;; ++poll) {
    const Progress slice = run_slice(step, &offsets_[step.first_end], 0, bytes, bytes);
    if (slice != Progress::kBlocked || poll >= polls) [[likely]]
      return slice;
    relax();
  }
}

Progress Operation::advance_lane(BoundLane& lane, uint32_t polls) {
  Progress progress = Progress::kBlocked;
  do {
    BoundStep& step = steps_[lane.first_step + lane.step];
    if (!lane.piece_ready && is_block(step)) {
      for (uint32_t poll = 0; !next_block(lane, step);) {
        if (++poll >= polls) return progress;
        relax();
      }
    } else if (!lane.piece_ready) {
      next_piece(lane, step);
      end_runs(step);
    }
    bool empty = lane.piece_bytes == 0 && step.send_empty;
    while (lane.done_bytes < lane.piece_bytes || empty) {
      const uint64_t left = lane.piece_bytes - lane.done_bytes;
      const uint64_t bytes = step.whole ? left : std::min(step.slice_bytes, left);
      const bool begins = step.timed && lane.done_bytes == 0;
      for (uint32_t poll = 0;; ++poll) {
        if (begins) [[unlikely]]
          step.began_ns = now_ns();
        const Progress slice = step.device != nullptr
                                   ? run_device_slice(step, lane.offsets.data(), lane.done_bytes, bytes, left)
                                   : run_slice(step, lane.offsets.data(), lane.done_bytes, bytes, left);
        if (slice == Progress::kMoved) break;
        if (slice == Progress::kMismatch) {
          if (is_block(step)) blame_sender(lane, step);
          return slice;
        }
        if (poll + 1 >= polls) return progress;
        relax();
      }
      progress = Progress::kMoved;
      lane.done_bytes += bytes + std::exchange(beyond_bytes_, 0);
      empty = false;
      if (begins) [[unlikely]]
        step.pulled = ends_[step.first_end].recv->has_pulled();
    }
    if (step.timed) [[unlikely]]
      judge_carriage(step);
  } while (next_step(lane));
  return Progress::kDone;
}

/// The runs of the pieces before, on the links of the step.
void Operation::end_runs(const BoundStep& step) const {
  if (!StoreTrials::times_runs(step.length)) return;
  for (uint32_t e = step.first_end; e < step.first_end + step.source_count + step.sink_count; ++e) {
    if (ends_[e].recv != nullptr) ends_[e].recv->trials[step.length].end_run();
    if (ends_[e].send != nullptr) ends_[e].send->end_run(step.length);
  }
}

/// Finds the bytes of the lane's current chunk and round, and their offset at every end.
void Operation::next_piece(BoundLane& lane, BoundStep& step) {
  const uint32_t end_count = step.source_count + step.sink_count;
  lane.done_bytes = 0;
  lane.piece_ready = true;
  if (step.merged) {
    lane.piece_bytes = step.merged_bytes;
    step.whole = travels_whole(step, lane.piece_bytes);
    std::copy_n(&offsets_[step.first_end], end_count, lane.offsets.data());
    return;
  }
  const uint64_t chunk_bytes = geometry_.agreed_chunk(step.first_chunk + lane.chunk).bytes;
  const uint64_t start = std::min(chunk_bytes, lane.round * round_bytes_);
  lane.piece_bytes = std::min(chunk_bytes - start, round_bytes_);
  set_length(step, chunk_bytes);
  step.whole = travels_whole(step, lane.piece_bytes);
  step.later_bytes = step.early ? chunk_bytes - start - lane.piece_bytes : 0;
  for (uint32_t e = 0; e < end_count; ++e) {
    const BoundEnd& end = ends_[step.first_end + e];
    if (end.send == nullptr && end.recv == nullptr) lane.offsets[e] = end_offset(end, lane.chunk, start);
  }
}

/// False at the end of the lane.
bool Operation::next_step(BoundLane& lane) {
  const BoundStep& step = steps_[lane.first_step + lane.step];
  lane.piece_ready = false;
  if (!step.merged && ++lane.chunk < step.chunk_count) return true;
  lane.chunk = 0;
  if (++lane.step < lane.step_count) return true;
  lane.step = 0;
  return ++lane.round < round_count_;
}

/// Writes the step's result to all sinks, and sends it. Short copies go to the links first.
[[gnu::always_inline]] inline void Operation::write_all(BoundStep& step, const uint64_t* offsets,
                                                        uint64_t shift, uint64_t bytes, uint64_t began_ns) {
  reduce::Job& job = step.job;
  const bool is_sent_first = sends_first(step, bytes);
  if (is_sent_first) [[unlikely]]
    job.sink_count = step.sent_first;
  job.count = bytes >> step.element_shift;
  step.kernel(job);
  if (began_ns != 0) [[unlikely]]
    judge_stores(step, bytes, began_ns, UINT32_MAX);
  if (bytes <= most_demoted_bytes_ && bytes > kInlineBytes) demote(step, bytes);
  const BoundEnd* sinks = &ends_[step.first_end + step.source_count];
  for (uint32_t i = 0; i < step.sink_count; ++i) {
    if (sinks[i].send != nullptr) sinks[i].send->commit(signature_ ^ step.signature, bytes);
  }
  if (bytes <= kMostClaimedBytes && bytes > kInlineBytes) claim_slots(step, bytes);
  if (is_sent_first) [[unlikely]] {
    copy_to_memory(step, static_cast<const std::byte*>(job.sources[0]), offsets, shift, bytes);
    job.sink_count = step.sink_count;
  }
}

/// Runs one slice of a step if all ends are ready: the hot function of the engine. `left`: bytes of the piece
/// from this slice on.
[[gnu::always_inline]] inline Progress Operation::run_slice(BoundStep& step, const uint64_t* offsets,
                                                            uint64_t shift, uint64_t bytes, uint64_t left) {
  const BoundEnd* ends = &ends_[step.first_end];
  const uint32_t source_count = step.source_count;
  const uint32_t end_count = source_count + step.sink_count;
  const uint32_t signature = signature_ ^ step.signature;
  const uint64_t slice_bytes = std::min(bytes, step.slice_bytes);  // a whole piece needs no longer slot
  reduce::Job& job = step.job;
  bool pulls = false, direct = false, onto_itself = false;
  for (uint32_t i = 0; i < source_count; ++i) {
    RecvLink* link = ends[i].recv;
    if (link == nullptr) {
      job.sources[i] = bases_[ends[i].base] + offsets[i] + shift;
      continue;
    }
    const uint64_t expected = flag::make(link->next, signature, bytes);
    const uint64_t word = link->word();
    if ((word & flag::kAgreedMask) != expected && !link->is_in_run(word, expected)) {
      if (link->offer != nullptr) offer(step, *link, offsets, shift, left);
      return not_arrived(step, *link, word, expected);
    }
    job.sources[i] = link->span(word);
    pulls = pulls || flag::carriage(word) == Carriage::kPull;
    direct = direct || (flag::carriage(word) == Carriage::kReference && link->address() == kWrittenDirectly);
  }
  for (uint32_t i = source_count; i < end_count; ++i) {
    SendLink* link = ends[i].send;
    if (link == nullptr) {
      job.sinks[i - source_count] = bases_[ends[i].base] + offsets[i] + shift;
      onto_itself = onto_itself || job.sinks[i - source_count] == job.sources[0];
      continue;
    }
    if (!link->can_write(slice_bytes)) [[unlikely]] {
      obstacle_ = {.peer = link->slowest_reader(), .step = step_number(step), .sending = true};
      return Progress::kBlocked;
    }
    job.sinks[i - source_count] = link->span(slice_bytes);
  }
  uint64_t began_ns = bytes >= StoreTrials::kLeastBytes ? choose_stores(step, slice_bytes, shift, left)
                                                        : use_ordinary_stores(step);
  if (direct) {
    job.sources[0] = output_place(step);
    onto_itself = true;
  }
  if (pulls) {
    if (const Progress pulled = pull_sources(step, bytes, left); pulled != Progress::kMoved) return pulled;
    const bool straight = is_straight(step, ends);
    onto_itself = onto_itself || straight;
    if (began_ns != 0) began_ns = straight ? 0 : now_ns();
  }
  const bool refers = bytes >= step.refer_bytes;
  if (refers || (onto_itself && step.copies)) {
    if (step.exposed_count == 0 || !write_directly(step, bytes, began_ns))
      write_some(step, bytes, refers, began_ns);
  } else {
    write_all(step, offsets, shift, bytes, began_ns);
  }
  for (uint32_t i = 0; i < source_count; ++i) {
    if (ends[i].recv != nullptr) release(step, *ends[i].recv, bytes);
  }
  return Progress::kMoved;
}

/// After a slice of `bytes`. Of a straight pull all is used that has been pulled of the run.
[[gnu::always_inline]] inline void Operation::release(const BoundStep& step, RecvLink& link, uint64_t bytes) {
  if (link.run_left != 0) [[unlikely]] {
    const bool straight = is_straight(step, &ends_[step.first_end]);
    const uint64_t used = straight ? std::min(link.pulled_left, link.run_left) : bytes;
    beyond_bytes_ = used - bytes;
    if (!link.use_pulled(used)) return;
  }
  link.release(link.word());
}

bool Operation::sums_in_place(const BoundStep& step) const {
  if (step.copies || step.trial_outputs == 0) return false;
  const void* result = step.job.sinks[std::countr_zero(step.trial_outputs)];
  for (uint32_t i = 0; i < step.source_count; ++i) {
    // A message may still name an address in its writer's process.
    if (ends_[step.first_end + i].recv == nullptr && step.job.sources[i] == result) return true;
  }
  return false;
}

/// Chooses the stores for the slots and results that the step writes, of `bytes`. Returns when the slice
/// began if it is a timed trial of StoreTrials or ResultTrials, else 0. Slices that try stores into slots do
/// not count for results: some kinds take three times as long.
[[gnu::noinline]] uint64_t Operation::choose_stores(BoundStep& step, uint64_t bytes, uint64_t shift,
                                                    uint64_t left) const {
  const BoundEnd* ends = &ends_[step.first_end];
  // What a trial does not try is written as in other calls.
  step.tries = results_ == nullptr || results_->tries(shift, shift + left);
  const Stores stores = step.tries ? result_stores_ : results_->choice();
  const bool past_caches = stores == Stores::kStreaming && !sums_in_place(step);
  step.job.streaming_sinks = past_caches ? step.trial_outputs : 0;
  const StoresSet possible = stores_of(step);
  const bool strings = stores == Stores::kString && possible.has(Stores::kString);
  step.job.string_sinks = strings ? step.trial_outputs : 0;
  step.job.interleaved_sinks = 0;
  bool is_timed = false, is_trial = false;
  for (uint32_t i = 0; i < step.sink_count; ++i) {
    SendLink* link = ends[step.source_count + i].send;
    if (link == nullptr) continue;
    const auto next = link->next_stores(step.length, bytes, possible);
    set_stores(step.job, i, next.stores);
    is_timed = is_timed || next.is_timed;
    is_trial = is_trial || next.is_trial;
  }
  for (uint32_t i = 0; i < step.source_count; ++i) {
    RecvLink* link = ends[i].recv;
    if (link == nullptr) continue;
    const auto trial = link->trial(link->word(), step.length);
    is_timed = is_timed || (trial && trial->is_timed);
    is_trial = is_trial || trial;
  }
  return is_timed || (times_results(step, bytes) && !is_trial) ? now_ns() : 0;
}

/// After the copy of a trial, before its messages are sent and released. `slot_sinks`: the sinks written now.
[[gnu::noinline]] void Operation::judge_stores(const BoundStep& step, uint64_t bytes, uint64_t began_ns,
                                               uint32_t slot_sinks) const {
  // A short payload's stores may all still wait in the core's store buffer: then they have cost nothing yet.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const uint64_t end_ns = now_ns();
  bool is_trial = false;
  const BoundEnd* ends = &ends_[step.first_end];
  for (uint32_t i = 0; i < step.source_count; ++i) {
    RecvLink* link = ends[i].recv;
    if (link == nullptr) continue;
    const auto trial = link->trial(link->word(), step.length);
    if (trial && trial->is_timed) link->judge(trial->stores, step.length, bytes, began_ns, end_ns);
    is_trial = is_trial || trial;
  }
  for (uint32_t i = 0; i < step.sink_count; ++i) {
    SendLink* link = ends[step.source_count + i].send;
    if (link == nullptr || (slot_sinks >> i & 1u) == 0) continue;
    const auto next = link->next_stores(step.length, bytes, stores_of(step));
    if (next.is_timed) link->judge(next.stores, step.length, bytes, stores_of(step), began_ns, end_ns);
    is_trial = is_trial || next.is_trial;
  }
  if (times_results(step, bytes) && !is_trial) results_->add(bytes, end_ns - began_ns);
}

/// Where the step copies a message in the receive buffer, and where a direct write has already put it.
void* Operation::output_place(const BoundStep& step) const {
  const BoundEnd* sinks = &ends_[step.first_end + step.source_count];
  uint32_t i = 0;
  while (i + 1 < step.sink_count && (sinks[i].send != nullptr || sinks[i].base != kOutputBase)) ++i;
  return step.job.sinks[i];
}

/// Posts a receive for the rest of a piece and the rounds behind it, if the step only receives.
void Operation::offer(const BoundStep& step, const RecvLink& link, const uint64_t* offsets, uint64_t shift,
                      uint64_t left) {
  const BoundEnd* ends = &ends_[step.first_end];
  if (!only_receives(step, ends)) return;
  *link.offer = {.first = link.next,
                 .address = bases_[ends[1].base] + offsets[1] + shift,
                 .bytes = left + step.later_bytes,
                 .slice_bytes = step.slice_bytes,
                 .on_device = step.device != nullptr};
}

/// A slice of a message in memory of the rank's device, which this thread must not touch. A card reads the
/// slice from there, or has written it there. What comes another way lies in a slot, and the device copies.
Progress Operation::run_device_slice(const BoundStep& step, const uint64_t* offsets, uint64_t shift,
                                     uint64_t bytes, uint64_t left) {
  const BoundEnd* ends = &ends_[step.first_end];
  const bool is_tail = step.tail != nullptr && bytes == left;
  if (ends[1].send != nullptr) {
    std::byte* const source = is_tail ? step.tail : bases_[kAbsoluteBase] + offsets[0] + shift;
    return send_device_slice(step, source, bytes, is_tail);
  }
  RecvLink& link = *ends[0].recv;
  const uint64_t expected = flag::make(link.next, signature_ ^ step.signature, bytes);
  const uint64_t word = link.word();
  if ((word & flag::kAgreedMask) != expected) {
    if (link.offer != nullptr) offer(step, link, offsets, shift, left);
    return not_arrived(step, link, word, expected);
  }
  std::byte* const target = is_tail ? step.tail : bases_[kAbsoluteBase] + offsets[1] + shift;
  const std::byte* const source = link.span(word);
  if (is_tail) {
    std::memcpy(target, source, bytes);
  } else if (source != target && !step.device->copy(target, source, bytes)) {
    obstacle_ = {.peer = link.peer, .step = step_number(step)};
    return Progress::kBlocked;
  }
  link.release(word);
  return Progress::kMoved;
}

Progress Operation::send_device_slice(const BoundStep& step, std::byte* source, uint64_t bytes,
                                      bool is_tail) {
  SendLink& link = *ends_[step.first_end + 1].send;
  if (!link.can_write(bytes)) {
    obstacle_ = {.peer = link.slowest_reader(), .step = step_number(step), .sending = true};
    return Progress::kBlocked;
  }
  const uint32_t signature = signature_ ^ step.signature;
  if (is_tail) {
    std::memcpy(link.span(bytes), source, bytes);
    link.commit(signature, bytes);
  } else {
    link.commit_reference(signature, bytes, source);
    keep_reference(link);
  }
  return Progress::kMoved;
}

void Operation::keep_reference(SendLink& link) {
  if (std::find(reference_links_.begin(), reference_links_.end(), &link) == reference_links_.end())
    reference_links_.push_back(&link);
}

/// The source's link does not hold the expected message: nothing has come yet, or another message has.
Progress Operation::not_arrived(const BoundStep& step, const RecvLink& link, uint64_t word,
                                uint64_t expected) {
  const bool arrived = (word & flag::kNumberMask) == (expected & flag::kNumberMask);
  obstacle_ = {.peer = link.peer, .step = step_number(step), .word = word, .expected = expected};
  return arrived ? Progress::kMismatch : Progress::kBlocked;
}

/// Whether pulled bytes go to where the step wants them: it copies one message into this rank's memory.
bool Operation::is_straight(const BoundStep& step, const BoundEnd* ends) {
  return step.copies && step.source_count == 1 && step.sink_count == 1 && ends[1].send == nullptr;
}

/// Pulls sources from their writers' processes: straight to the target of a plain copy, else through a bounce
/// buffer that stays in the cache. kBlocked: a writer has ended; the end of the connection reports this.
Progress Operation::pull_sources(BoundStep& step, uint64_t bytes, uint64_t left) {
  // So that a rank notices an abort soon.
  constexpr uint64_t kMostAtOnce = 1u << 20;
  const BoundEnd* ends = &ends_[step.first_end];
  const bool straight = is_straight(step, ends);
  for (uint32_t i = 0; i < step.source_count; ++i) {
    RecvLink* link = ends[i].recv;
    if (link == nullptr || flag::carriage(link->word()) != Carriage::kPull) continue;
    const uint64_t arrived = link->run_left != 0 ? link->run_left : link->run().bytes;
    // A run is a slice or the whole piece.
    if (arrived != bytes && arrived != left) {
      const uint64_t expected = flag::make(link->next, signature_ ^ step.signature, bytes);
      obstacle_ = {.peer = link->peer, .step = step_number(step), .word = link->word(), .expected = expected};
      return Progress::kMismatch;
    }
    link->run_left = arrived;
    if (link->pulled_left == 0) {
      std::byte* target = straight ? static_cast<std::byte*>(step.job.sinks[0]) : link->bounce;
      const uint64_t room = straight ? kMostAtOnce : link->bounce_bytes;
      const int error = pull_ahead(*link, target, bytes, left, room);
      if (error != 0) {
        obstacle_ = {.peer = link->peer, .step = step_number(step), .pull_error = error == ESRCH ? 0 : error};
        return error == ESRCH ? Progress::kBlocked : Progress::kMismatch;
      }
    }
    step.job.sources[i] = link->pulled;
  }
  return Progress::kMoved;
}

/// Pulls a slice of `bytes`, and with it, up to `room`, later slices of the piece that have come and are
/// adjacent: a system call costs as much as copying 15 KiB. Returns 0 or an errno.
int Operation::pull_ahead(RecvLink& link, std::byte* target, uint64_t bytes, uint64_t left, uint64_t room) {
  const PulledRun run = link.run();
  const uint64_t address = run.address + (run.bytes - link.run_left);
  const uint64_t most = std::min(left, std::max(room - room % bytes, bytes));
  uint64_t total = std::min(link.run_left, most);
  uint64_t count = total == link.run_left ? 1 : 0;
  while (count != 0 && total < most && count <= link.slot_mask) {
    const uint64_t more = std::min(bytes, left - total);
    const uint64_t expected = flag::make(link.next + count, flag::signature(link.word()), more) |
                              static_cast<uint64_t>(Carriage::kPull) << flag::kCarriageShift;
    if (link.word(count) != expected) break;
    const PulledRun next = link.run(count);
    if (next.address != address + total || next.bytes > most - total) break;
    total += next.bytes;
    ++count;
  }
  const int error = pull(link.pull_pid, address, target, total);
  if (error != 0) return error;
  link.pulled = target;
  link.pulled_left = total;
  link.pulled_end = link.next + count;
  return 0;
}

/// Whether a piece of `bytes` travels as one message on all links of the step: the readers pull it from the
/// user's memory, where all of it lies already.
bool Operation::travels_whole(const BoundStep& step, uint64_t bytes) const {
  if (bytes < step.refer_bytes || step.refer_end >= step.source_count || step.exposed_count != 0)
    return false;
  const BoundEnd* ends = &ends_[step.first_end];
  if (!step.copies || step.source_count != 1 || ends[0].recv != nullptr) return false;
  bool whole = true;
  for (uint32_t i = 1; i <= step.sink_count; ++i) {
    SendLink* link = ends[i].send;
    whole = whole && (link == nullptr || carriage_for(step, *link, bytes) == Carriage::kPull);
  }
  return whole;
}

Carriage Operation::carriage_for(const BoundStep& step, SendLink& link, uint64_t bytes) const {
  const size_t base = ends_[step.first_end + step.refer_end].base;
  const bool shared = step.shared || link.same_process || shared_[base] ||
                      (link.reads_registered && (step.registered || registered_[base]));
  if (shared && bytes >= reference_bytes_) return Carriage::kReference;
  const bool pulls = message_steps_.empty() ? pulling_ : step.pulled;
  return !shared && pulls && bytes >= pull_bytes_ && link.can_pull() ? Carriage::kPull : Carriage::kSlot;
}

/// Runs the kernel for these sinks of the job, a bit for each.
void Operation::write_sinks(BoundStep& step, uint32_t written) {
  // Copying a job waits until its pointers have left the store buffer, and so all stores before them.
  if (written == (1u << step.job.sink_count) - 1) {
    step.kernel(step.job);
  } else if (written != 0) {
    step.kernel(only_to(step.job, written));
  }
}

/// A bit for each sink of the job, but for those that a copy would write onto itself.
uint32_t Operation::sinks_unlike_source(const BoundStep& step) {
  uint32_t sinks = (1u << step.job.sink_count) - 1;
  for (uint32_t i = 0; step.copies && i < step.job.sink_count; ++i) {
    if (step.job.sinks[i] == step.job.sources[0]) sinks &= ~(1u << i);
  }
  return sinks;
}

/// The job with the sinks of `written` only.
[[gnu::noinline]] reduce::Job Operation::only_to(const reduce::Job& all, uint32_t written) {
  reduce::Job job = all;
  job.sink_count = 0;
  job.streaming_sinks = job.string_sinks = job.interleaved_sinks = job.unclaimed_sinks = 0;
  for (uint32_t i = 0; i < all.sink_count; ++i) {
    if ((written >> i & 1u) == 0) continue;
    job.streaming_sinks |= (all.streaming_sinks >> i & 1u) << job.sink_count;
    job.string_sinks |= (all.string_sinks >> i & 1u) << job.sink_count;
    job.interleaved_sinks |= (all.interleaved_sinks >> i & 1u) << job.sink_count;
    job.unclaimed_sinks |= (all.unclaimed_sinks >> i & 1u) << job.sink_count;
    job.sinks[job.sink_count++] = all.sinks[i];
  }
  return job;
}

/// Runs a step whose sinks may not all be written: links carry references where they can, and a copy onto
/// itself (in place) needs no write.
void Operation::write_some(BoundStep& step, uint64_t bytes, bool refers, uint64_t began_ns) {
  const BoundEnd* sinks = &ends_[step.first_end + step.source_count];
  const uint32_t signature = signature_ ^ step.signature;
  std::array<Carriage, reduce::kMaxSinks> carriages{};
  uint32_t slot_sinks = 0;
  for (uint32_t i = 0; i < step.sink_count; ++i) {
    if (SendLink* link = sinks[i].send; link != nullptr) {
      carriages[i] = refers ? carriage_for(step, *link, bytes) : Carriage::kSlot;
    }
    if (carriages[i] == Carriage::kReference || carriages[i] == Carriage::kPull) continue;
    slot_sinks |= 1u << i;
  }
  const uint32_t written = slot_sinks & sinks_unlike_source(step);
  step.job.count = bytes >> step.element_shift;
  write_sinks(step, written);
  if (began_ns != 0 && written != 0) judge_stores(step, bytes, began_ns, slot_sinks);
  if (bytes <= most_demoted_bytes_ && bytes > kInlineBytes) demote(step, bytes);
  const void* referred = step.refer_end < step.source_count
                             ? step.job.sources[step.refer_end]
                             : step.job.sinks[step.refer_end - step.source_count];
  for (uint32_t i = 0; i < step.sink_count; ++i) {
    SendLink* link = sinks[i].send;
    if (link == nullptr) continue;
    if (carriages[i] == Carriage::kSlot) {
      link->commit(signature, bytes);
      continue;
    }
    if (carriages[i] == Carriage::kPull) {
      const auto address = reinterpret_cast<uint64_t>(referred);
      link->commit_pull(signature, std::min(bytes, step.slice_bytes), {.address = address, .bytes = bytes});
    } else {
      link->commit_reference(signature, bytes, referred);
    }
    keep_reference(*link);
  }
  if (slot_sinks != 0 && bytes <= kMostClaimedBytes && bytes > kInlineBytes) claim_slots(step, bytes);
}

/// The lines that the step has written into slots.
[[gnu::noinline]] void Operation::demote(const BoundStep& step, uint64_t bytes) const {
  const BoundEnd* sinks = &ends_[step.first_end + step.source_count];
  for (uint32_t i = 0; i < step.sink_count; ++i) {
    const SendLink* link = sinks[i].send;
    if (link != nullptr && link->may_stream) demote_lines(link->span(bytes), bytes);
  }
}

/// The lines that the next payloads of `bytes` will be written to: their readers' cores still hold them.
[[gnu::noinline]] void Operation::claim_slots(const BoundStep& step, uint64_t bytes) const {
  const BoundEnd* sinks = &ends_[step.first_end + step.source_count];
  for (uint32_t i = 0; i < step.sink_count; ++i) {
    SendLink* link = sinks[i].send;
    if (link == nullptr || !link->may_stream || bytes > link->slot_bytes || !link->knows_room()) continue;
    if (link->passes(bytes)) continue;
    const bool chooses = bytes >= StoreTrials::kLeastBytes;
    if (chooses && link->next_stores(step.length, bytes, stores_of(step)).stores != Stores::kOrdinary)
      continue;
    claim_lines(link->span(bytes), bytes);
  }
}

/// Writes the result to the receivers' exposed buffers and to this rank's, and tells the receivers. False:
/// one exposes no buffer in this call.
bool Operation::write_directly(const BoundStep& step, uint64_t bytes, uint64_t began_ns) {
  const BoundEnd* sinks = &ends_[step.first_end + step.source_count];
  const uint32_t own = step.refer_end - step.source_count;
  const auto offset = static_cast<std::byte*>(step.job.sinks[own]) - bases_[kOutputBase];
  const uint32_t streams = step.job.streaming_sinks >> own & 1u;
  const uint32_t strings = step.job.string_sinks >> own & 1u;
  reduce::Job job = step.job;
  job.sink_count = 0;
  job.streaming_sinks = job.string_sinks = job.interleaved_sinks = 0;
  job.unclaimed_sinks = (step.job.unclaimed_sinks >> own & 1u) != 0 ? UINT32_MAX : 0;  // all are results
  job.count = bytes >> step.element_shift;
  for (uint32_t i = 0; i < step.exposed_count; ++i) {
    std::byte* const buffer = exposed_[step.first_exposed + i].open(call_);
    if (buffer == nullptr) return false;
    job.streaming_sinks |= streams << job.sink_count;
    job.string_sinks |= strings << job.sink_count;
    job.sinks[job.sink_count++] = buffer + offset;
  }
  for (uint32_t i = 0; i < step.sink_count; ++i) {
    if (sinks[i].send != nullptr) continue;
    job.streaming_sinks |= (step.job.streaming_sinks >> i & 1u) << job.sink_count;
    job.string_sinks |= (step.job.string_sinks >> i & 1u) << job.sink_count;
    job.sinks[job.sink_count++] = step.job.sinks[i];
  }
  step.kernel(job);
  if (began_ns != 0) judge_stores(step, bytes, began_ns, 0);
  for (uint32_t i = 0; i < step.sink_count; ++i) {
    if (sinks[i].send != nullptr) sinks[i].send->commit_direct_write(signature_ ^ step.signature, bytes);
  }
  return true;
}

bool Operation::references_returned() {
  for (SendLink* link : reference_links_) {
    if (!link->references_returned()) {
      obstacle_ = {
          .peer = link->slowest_reader(), .step = static_cast<uint32_t>(steps_.size()), .sending = true};
      return false;
    }
  }
  return true;
}

bool Operation::holds_references() const {
  return std::any_of(reference_links_.begin(), reference_links_.end(),
                     [](SendLink* link) { return !link->references_returned(); });
}

}  // namespace tutti
