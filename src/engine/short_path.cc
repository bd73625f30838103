// The short path of the interpreter: one lane whose steps are one slice each. What travels in cells does not
// need the general slice of operation.cc, which costs 250 instructions.
#include <cstring>

#include "engine/operation.h"

namespace tutti {

/// False: an end is not ready, or only run_slice can tell.
[[gnu::always_inline]] inline bool Operation::copy_inline(const BoundStep& step, uint32_t sink_count) const {
  const BoundEnd* const ends = &ends_[step.first_end];
  const uint64_t* const offsets = &offsets_[step.first_end];
  const uint64_t bytes = step.merged_bytes;
  const uint32_t signature = signature_ ^ step.signature;
  RecvLink* const from = ends[0].recv;
  if (from != nullptr && !from->has_inline(signature, bytes)) return false;
  const std::byte* const source = from != nullptr ? from->cell().payload : bases_[ends[0].base] + offsets[0];
  for (uint32_t i = 1; i <= sink_count; ++i) {
    SendLink* const to = ends[i].send;
    if (to != nullptr && !to->knows_room() && !to->can_write(bytes)) [[unlikely]]
      return false;
  }
  for (uint32_t i = 1; i <= sink_count; ++i) {
    if (SendLink* const to = ends[i].send; to != nullptr) {
      std::memcpy(to->cell().payload, source, bytes);
      to->commit_inline(signature, bytes);
    } else if (std::byte* const memory = bases_[ends[i].base] + offsets[i]; memory != source) {
      std::memcpy(memory, source, bytes);
    }
  }
  if (from != nullptr) from->release_inline();
  return true;
}

void Operation::enter_history(BoundStep& step) {
  const BoundEnd* ends = &ends_[step.first_end];
  uint64_t& history = ends[1].send != nullptr ? ends[1].send->history : ends[0].recv->history;
  step.history = history;
  history = next_history(history, step.seed);
  step.signature = history_signature(history);
}

Progress Operation::repeat(const Message& message, uint32_t polls) {
  if (message.bytes == repeated_bytes_ && message.seed == steps_[0].seed) [[likely]] {
    place_buffer(message, steps_[0]);
    enter_history(steps_[0]);
  } else {
    place_message(message, 0);
    count_message(steps_[0]);
    repeated_bytes_ = message.shared || message.registered ? 0 : message.bytes;
  }
  short_ = true;
  results_ = nullptr;
  result_stores_ = Stores::kOrdinary;
  reference_links_.clear();
  lanes_left_ = 1;
  lanes_[0].done = false;
  if (steps_[0].is_inline) [[likely]] {
    for (uint32_t poll = 0; poll < polls; ++poll) {
      if (!copy_inline(steps_[0], 1)) continue;
      lanes_[0].step = 1;
      return Progress::kDone;
    }
  }
  lanes_[0].step = 0;
  return advance_short(steps_[0].is_inline ? 1 : polls);
}

Progress Operation::start_short(const void* input, void* output, uint32_t signature, uint32_t polls) {
  bases_[kInputBase] = static_cast<std::byte*>(const_cast<void*>(input));
  bases_[kOutputBase] = static_cast<std::byte*>(output);
  if (copies_in_memory_) {
    copy_in_memory();
    return Progress::kDone;
  }
  signature_ = signature;
  lanes_left_ = 1;
  lanes_[0].step = 0;
  return advance_short(polls);
}

void Operation::copy_in_memory() const {
  const BoundStep& step = steps_[0];
  const BoundEnd* ends = &ends_[step.first_end];
  const uint64_t* offsets = &offsets_[step.first_end];
  const std::byte* from = bases_[ends[0].base] + offsets[0];
  std::byte* to = bases_[ends[1].base] + offsets[1];
  if (to != from) std::memcpy(to, from, step.merged_bytes);
}

/// No rounds, no pieces.
Progress Operation::advance_short(uint32_t polls) {
  BoundLane& lane = lanes_[0];
  Progress progress = Progress::kBlocked;
  for (; lane.step < lane.step_count; ++lane.step) {
    BoundStep& step = steps_[lane.step];
    if (step.merged_bytes == 0) continue;
    if (!step.is_inline || !pass_inline(step, polls)) {
      const Progress slice = run_short_step(step, step.is_inline ? 1 : polls);
      if (slice == Progress::kMismatch) return slice;
      if (slice == Progress::kBlocked) return progress;
    }
    progress = Progress::kMoved;
  }
  if (!reference_links_.empty() && !references_returned()) return progress;
  return Progress::kDone;
}

void Operation::find_inline(BoundStep& step) {
  const uint64_t bytes = step.merged_bytes;
  step.is_inline = bytes != 0 && bytes <= kInlineBytes && bytes < step.refer_bytes &&
                   step.exposed_count == 0 && step.device == nullptr;
}

/// Runs a step that travels in cells. False: it has not passed, and nothing has changed.
inline bool Operation::pass_inline(BoundStep& step, uint32_t polls) {
  for (uint32_t poll = 0; poll < polls; ++poll) {
    if (step.copies ? copy_inline(step, step.sink_count) : reduce_inline(step)) [[likely]]
      return true;
  }
  return false;
}

/// False: as copy_inline.
bool Operation::reduce_inline(BoundStep& step) const {
  const BoundEnd* const sources = &ends_[step.first_end];
  const BoundEnd* const sinks = sources + step.source_count;
  const uint64_t* const offsets = &offsets_[step.first_end];
  const uint64_t bytes = step.merged_bytes;
  const uint32_t signature = signature_ ^ step.signature;
  const uint32_t source_count = step.source_count, sink_count = step.sink_count;
  reduce::Job& job = step.job;
  for (uint32_t i = 0; i < source_count; ++i) {
    const RecvLink* const link = sources[i].recv;
    if (link != nullptr && !link->has_inline(signature, bytes)) return false;
    job.sources[i] = link != nullptr ? link->cell().payload : bases_[sources[i].base] + offsets[i];
  }
  for (uint32_t i = 0; i < sink_count; ++i) {
    SendLink* const link = sinks[i].send;
    if (link != nullptr && !link->can_write(bytes)) [[unlikely]]
      return false;
    job.sinks[i] = link != nullptr ? link->cell().payload : bases_[sinks[i].base] + offsets[source_count + i];
  }
  job.count = bytes >> step.element_shift;
  step.kernel(job);
  for (uint32_t i = 0; i < sink_count; ++i) {
    if (sinks[i].send != nullptr) sinks[i].send->commit_inline(signature, bytes);
  }
  for (uint32_t i = 0; i < source_count; ++i) {
    if (sources[i].recv != nullptr) sources[i].recv->release_inline();
  }
  return true;
}

}  // namespace tutti
