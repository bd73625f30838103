// The short path of the interpreter: one lane whose steps are one slice each. Short slices that are no trials
// of stores do not need the general slice of operation.cc, which costs 250 instructions.
#include <cstring>

#include "core/cache_hints.h"
#include "core/relax.h"
#include "engine/operation.h"

namespace tutti {

/// After a plain slice has been written to all sinks.
template <PlainPayload kPayload>
[[gnu::always_inline]] inline void Operation::send_plain(const BoundStep& step, uint32_t sink_count) const {
  const BoundEnd* const sinks = &ends_[step.first_end + step.source_count];
  const uint64_t bytes = step.merged_bytes;
  if (kPayload != PlainPayload::kInline && bytes <= most_demoted_bytes_) demote(step, bytes);
  for (uint32_t i = 0; i < sink_count; ++i) {
    if (sinks[i].send != nullptr) sinks[i].send->commit_as<kPayload>(signature_ ^ step.signature, bytes);
  }
  if (kPayload == PlainPayload::kInline) return;
  if (kPayload == PlainPayload::kSlot || bytes <= kMostClaimedBytes) claim_slots(step, bytes);
}

/// What the step has sent, to its sinks behind the links.
void Operation::copy_to_memory(const BoundStep& step, const std::byte* source, const uint64_t* offsets,
                               uint64_t shift, uint64_t bytes) const {
  const BoundEnd* const sinks = &ends_[step.first_end + 1];
  for (uint32_t i = step.sent_first; i < step.sink_count; ++i) {
    std::byte* const target = bases_[sinks[i].base] + offsets[1 + i] + shift;
    if (target != source) std::memcpy(target, source, bytes);
  }
}

/// False: an end is not ready, or something has come that only run_slice can judge.
template <PlainPayload kPayload>
[[gnu::always_inline]] inline bool Operation::copy_plain(const BoundStep& step, uint32_t sink_count) const {
  const BoundEnd* const ends = &ends_[step.first_end];
  const uint64_t* const offsets = &offsets_[step.first_end];
  const uint64_t bytes = step.merged_bytes;
  const uint32_t signature = signature_ ^ step.signature;
  RecvLink* const from = ends[0].recv;
  if (from != nullptr && !from->has<kPayload>(signature, bytes)) return false;
  const std::byte* const source =
      from != nullptr ? from->place<kPayload>(bytes) : bases_[ends[0].base] + offsets[0];
  for (uint32_t i = 1; i <= sink_count; ++i) {
    if (ends[i].send != nullptr && !ends[i].send->can_write(bytes)) [[unlikely]]
      return false;
  }
  const uint32_t written_first = step.sent_first != 0 ? step.sent_first : sink_count;
  for (uint32_t i = 1; i <= written_first; ++i) {
    SendLink* const to = ends[i].send;
    std::byte* const target = to != nullptr ? to->place<kPayload>(bytes) : bases_[ends[i].base] + offsets[i];
    if (target != source) std::memcpy(target, source, bytes);
  }
  send_plain<kPayload>(step, sink_count);
  if (step.sent_first != 0) copy_to_memory(step, source, offsets, 0, bytes);
  if (from != nullptr) from->release_plain<kPayload>(bytes);
  return true;
}

/// Sums up, or copies by the step's kernel. False: as copy_plain.
template <PlainPayload kPayload>
bool Operation::compute_plain(BoundStep& step) const {
  const BoundEnd* const sources = &ends_[step.first_end];
  const BoundEnd* const sinks = sources + step.source_count;
  const uint64_t* const offsets = &offsets_[step.first_end];
  const uint64_t bytes = step.merged_bytes;
  const uint32_t signature = signature_ ^ step.signature;
  const uint32_t source_count = step.source_count, sink_count = step.sink_count;
  reduce::Job& job = step.job;
  for (uint32_t i = 0; i < source_count; ++i) {
    const RecvLink* const link = sources[i].recv;
    if (link != nullptr && !link->has<kPayload>(signature, bytes)) return false;
    job.sources[i] = link != nullptr ? link->place<kPayload>(bytes) : bases_[sources[i].base] + offsets[i];
  }
  for (uint32_t i = 0; i < sink_count; ++i) {
    SendLink* const link = sinks[i].send;
    if (link != nullptr && !link->can_write(bytes)) [[unlikely]]
      return false;
    job.sinks[i] =
        link != nullptr ? link->place<kPayload>(bytes) : bases_[sinks[i].base] + offsets[source_count + i];
  }
  job.count = bytes >> step.element_shift;
  if constexpr (kPayload != PlainPayload::kPassable) {
    step.kernel(job);
    send_plain<kPayload>(step, sink_count);
  } else {
    const bool is_sent_first = sends_first(step, bytes);
    if (is_sent_first) [[unlikely]]
      job.sink_count = step.sent_first;
    use_quiet_stores(step);
    write_sinks(step, sinks_unlike_source(step));
    send_plain<kPayload>(step, sink_count);
    if (is_sent_first) [[unlikely]] {
      copy_to_memory(step, static_cast<const std::byte*>(job.sources[0]), offsets, 0, bytes);
      job.sink_count = step.sink_count;
    }
  }
  for (uint32_t i = 0; i < source_count; ++i) {
    if (sources[i].recv != nullptr) sources[i].recv->release_plain<kPayload>(bytes);
  }
  return true;
}

/// Whether a source has a message that is not a plain one of this step.
template <PlainPayload kPayload>
bool Operation::has_another(const BoundStep& step) const {
  const BoundEnd* const sources = &ends_[step.first_end];
  for (uint32_t i = 0; i < step.source_count; ++i) {
    const RecvLink* const link = sources[i].recv;
    if (link != nullptr && link->has_arrived() &&
        !link->has<kPayload>(signature_ ^ step.signature, step.merged_bytes))
      return true;
  }
  return false;
}

/// Runs a plain step. False: it has not run.
template <PlainPayload kPayload>
[[gnu::always_inline]] inline bool Operation::pass_as(BoundStep& step, uint32_t sink_count, bool copies,
                                                      uint32_t polls) {
  // How often a reader that waits looks for references, for pulled messages and for those of another call.
  constexpr uint32_t kPollsPerLook = 32;
  for (uint32_t poll = 1; poll <= polls; ++poll) {
    if (copies ? copy_plain<kPayload>(step, sink_count) : compute_plain<kPayload>(step)) [[likely]]
      return true;
    relax();
    if (poll % kPollsPerLook == 1 && has_another<kPayload>(step)) return false;
  }
  return false;
}

[[gnu::always_inline]] inline bool Operation::pass_plain(BoundStep& step, uint32_t sink_count, bool copies,
                                                         uint32_t polls) {
  const uint64_t bytes = step.merged_bytes;
  if (bytes <= kInlineBytes) return pass_as<PlainPayload::kInline>(step, sink_count, copies, polls);
  if (bytes < StoreTrials::kLeastBytes) return pass_as<PlainPayload::kSlot>(step, sink_count, copies, polls);
  return pass_as<PlainPayload::kPassable>(step, sink_count, false, polls);
}

/// Whether the step may run as a plain one now.
inline bool Operation::is_plain_now(const BoundStep& step) const {
  if (!step.is_plain) return false;
  return step.merged_bytes < StoreTrials::kLeastBytes || has_quiet_ends(step);
}

/// Chooses the stores for the links: as their trials have found.
inline void Operation::use_quiet_stores(BoundStep& step) const {
  use_ordinary_stores(step);
  const BoundEnd* const sinks = &ends_[step.first_end + step.source_count];
  for (uint32_t i = 0; i < step.sink_count; ++i) {
    if (sinks[i].send == nullptr) continue;
    set_stores(step.job, i, sinks[i].send->quiet_stores(step.length, stores_of(step)));
  }
}

/// Whether results get ordinary stores and are not timed, no link is in a trial, and no receive is posted:
/// the transport fills those in the user's buffer.
[[gnu::noinline]] bool Operation::has_quiet_ends(const BoundStep& step) const {
  if (result_stores_ != Stores::kOrdinary || times_copies()) return false;
  const BoundEnd* const ends = &ends_[step.first_end];
  for (uint32_t i = 0; i < uint32_t{step.source_count} + step.sink_count; ++i) {
    RecvLink* const recv = ends[i].recv;
    SendLink* const send = ends[i].send;
    if (recv != nullptr && (recv->offer != nullptr || !recv->is_quiet(step.length, step.merged_bytes)))
      return false;
    if (send != nullptr && !send->is_quiet(step.length, step.merged_bytes)) return false;
  }
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
  const bool is_plain = is_plain_now(steps_[0]);
  if (is_plain && pass_plain(steps_[0], 1, true, polls)) [[likely]] {
    lanes_[0].step = 1;
    return Progress::kDone;
  }
  lanes_[0].step = 0;
  return advance_short(is_plain ? 1 : polls);
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

/// One lane whose steps are one slice each: no rounds, no pieces.
Progress Operation::advance_short(uint32_t polls) {
  BoundLane& lane = lanes_[0];
  Progress progress = Progress::kBlocked;
  for (; lane.step < lane.step_count; ++lane.step) {
    BoundStep& step = steps_[lane.step];
    if (step.merged_bytes == 0) continue;
    const bool is_plain = is_plain_now(step);
    if (!is_plain || !pass_plain(step, step.sink_count, step.copies, polls)) {
      const Progress slice = run_short_step(step, is_plain ? 1 : polls);
      if (slice == Progress::kMismatch) return slice;
      if (slice == Progress::kBlocked) return progress;
    }
    progress = Progress::kMoved;
  }
  if (!reference_links_.empty() && !references_returned()) return progress;
  return Progress::kDone;
}

void Operation::find_plain(BoundStep& step) {
  const uint64_t bytes = step.merged_bytes;
  step.is_plain = bytes != 0 && bytes <= kMostPlainBytes && bytes < step.refer_bytes &&
                  step.exposed_count == 0 && step.device == nullptr;
}

}  // namespace tutti
