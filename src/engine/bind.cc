// Binding: a plan and the bytes of a call become offsets, link pointers and kernels.
#include <algorithm>
#include <bit>

#include "core/types.h"
#include "engine/operation.h"

namespace tutti {
namespace {

/// Whether `op` needs arithmetic even where a step has one source.
bool scales_input(ReduceOp op) {
  return op == ReduceOp::kPremulSum;
}

/// How a piece of a known size is cut: into four, so that the copy into the slots and the copy out of them
/// overlap, but neither into slices so short that their flags count nor into ones longer than a slot.
uint64_t slice_bytes_for(uint64_t bytes, uint64_t slot_bytes) {
  constexpr uint64_t kLeastSlice = 8192;
  constexpr uint64_t kSlicesPerPiece = 4;
  if (bytes <= kLeastSlice) return slot_bytes;
  const uint64_t part = (bytes / kSlicesPerPiece + kLeastSlice - 1) / kLeastSlice * kLeastSlice;
  return std::clamp(part, std::min(kLeastSlice, slot_bytes), slot_bytes);
}

}  // namespace

std::unique_ptr<Operation> Operation::bind(const Plan& plan, const Geometry& geometry,
                                           const BindOptions& options, LinkTable& links) {
  std::unique_ptr<Operation> operation(new Operation);
  operation->geometry_ = geometry;
  operation->reference_bytes_ = options.reference_bytes;
  operation->pull_bytes_ = options.pull_bytes;
  const uint64_t largest = geometry.largest_chunk_bytes();
  operation->slice_bytes_ = slice_bytes_for(largest, options.slot_bytes);
  const uint64_t slices = std::max(1u, options.slots / 2 / std::max(1u, plan.slots_needed));
  operation->round_bytes_ = slices * operation->slice_bytes_;
  operation->round_count_ = static_cast<uint32_t>(
      std::max<uint64_t>(1, (largest + operation->round_bytes_ - 1) / operation->round_bytes_));
  const bool merges = operation->round_count_ == 1 && geometry.contiguous() &&
                      (plan.scratch_chunks == 0 || geometry.equal_chunks());
  operation->scratch_stride_ = std::min(largest, operation->round_bytes_);
  operation->scratch_.resize(plan.scratch_chunks * operation->scratch_stride_);
  operation->bases_[kScratchBase] = operation->scratch_.data();
  bool is_short = merges && plan.lanes.size() == 1;
  for (const Lane& lane : plan.lanes) {
    BoundLane bound;
    bound.first_step = static_cast<uint32_t>(operation->steps_.size());
    bound.step_count = static_cast<uint32_t>(lane.steps.size());
    if (bound.step_count == 0) continue;
    for (const Step& step : lane.steps) {
      operation->bind_step(plan, step, options, links);
      if (merges) operation->merge_step(operation->steps_.back());
      is_short = is_short && operation->steps_.back().merged_bytes <= operation->slice_bytes_;
    }
    operation->lanes_.push_back(bound);
  }
  operation->short_ = is_short && operation->lanes_.size() == 1;
  const uint64_t least_referred = std::min(options.reference_bytes, options.pull_bytes);
  operation->may_refer_ =
      std::any_of(operation->steps_.begin(), operation->steps_.end(),
                  [&](const BoundStep& step) { return step.refer && step.merged_bytes >= least_referred; });
  return operation;
}

void Operation::bind_step(const Plan& plan, const Step& step, const BindOptions& options, LinkTable& links) {
  BoundStep bound;
  bound.first_end = static_cast<uint32_t>(ends_.size());
  bound.source_count = static_cast<uint8_t>(step.sources.size());
  bound.sink_count = static_cast<uint8_t>(step.sinks.size());
  bound.first_chunk = step.first_chunk;
  bound.chunk_count = step.chunk_count;
  for (const End& end : step.sources) ends_.push_back(bind_end(end, false, links));
  for (const End& end : step.sinks) ends_.push_back(bind_end(end, true, links));
  offsets_.resize(ends_.size());
  choose_kernel(plan, step, options, bound);
  if (options.places) find_windows(plan, step, links, bound);
  bound.slice_bytes = slice_bytes_;
  steps_.push_back(bound);
}

Operation::BoundEnd Operation::bind_end(const End& end, bool is_sink, LinkTable& links) const {
  BoundEnd bound;
  bound.first_chunk = end.first_chunk;
  switch (end.kind) {
    case EndKind::kInput: bound.base = kInputBase; break;
    case EndKind::kOutput: bound.base = kOutputBase; break;
    case EndKind::kScratch: bound.base = kScratchBase; break;
    case EndKind::kPublish: bound.send = links.publish_link(); break;
    case EndKind::kLink:
      if (is_sink) {
        bound.send = links.send_link(end.peer, end.channel);
      } else {
        bound.recv = end.channel == kPublishChannel ? links.published_by(end.peer)
                                                    : links.recv_link(end.peer, end.channel);
      }
      break;
  }
  return bound;
}

void Operation::choose_kernel(const Plan& plan, const Step& step, const BindOptions& options,
                              BoundStep& bound) const {
  const bool reducing = reduces(plan.collective);
  const uint64_t element_bytes = type_bytes(options.type);
  for (size_t i = 0; i < step.sources.size(); ++i) {
    if (reducing && scales_input(options.op) && step.sources[i].kind == EndKind::kInput) {
      bound.job.scaled_sources |= 1u << i;
    }
  }
  bound.job.finish = reducing && step.finish && options.op == ReduceOp::kAvg;
  const bool arithmetic = step.sources.size() > 1 || bound.job.scaled_sources != 0 || bound.job.finish;
  if (arithmetic) {
    bound.element_shift = static_cast<uint8_t>(std::countr_zero(element_bytes));
    bound.kernel =
        reduce::find_kernel(options.type, options.op,
                            options.reproducible ? reduce::Association::kTree : reduce::Association::kLeft);
  } else {
    bound.kernel = reduce::find_copy_kernel();
  }
  for (size_t i = 0; i < step.sinks.size(); ++i) {
    if (step.sinks[i].kind == EndKind::kOutput && options.message_bytes >= options.streaming_bytes) {
      bound.job.streaming_sinks |= 1u << i;
    }
  }
  bound.job.source_count = bound.source_count;
  bound.job.sink_count = bound.sink_count;
  bound.job.divisor = plan.rank_count;
  bound.job.scale_bits = options.premul_scalar_bits;
  bound.copies = !arithmetic;
  find_reference(step, bound);
}

/// What the step's links may refer to: its source, if it copies one from a user's buffer, else what it writes
/// to the receive buffer. The plan has been proved with such references (plan/graph.h, may_refer).
void Operation::find_reference(const Step& step, BoundStep& bound) {
  const auto is_user = [](const End& end) {
    return end.kind == EndKind::kInput || end.kind == EndKind::kOutput;
  };
  const bool marked_source =
      step.sources[0].reference_ok && step.sources.size() == 1 && is_user(step.sources[0]);
  const bool marked_sink = std::any_of(step.sinks.begin(), step.sinks.end(), [](const End& sink) {
    return sink.reference_ok && (sink.kind == EndKind::kLink || sink.kind == EndKind::kPublish);
  });
  if (!marked_source && !marked_sink) return;
  if (bound.copies && is_user(step.sources[0])) {
    bound.refer = true;
    bound.refer_end = 0;
    return;
  }
  for (size_t i = 0; i < step.sinks.size() && !bound.refer; ++i) {
    bound.refer = step.sinks[i].kind == EndKind::kOutput;
    bound.refer_end = static_cast<uint8_t>(step.sources.size() + i);
  }
}

/// The windows of all that the step sends its result to, if the plan allows to place it there. Only
/// all_reduce has equal receive buffers on all ranks and reduces into them.
void Operation::find_windows(const Plan& plan, const Step& step, LinkTable& links, BoundStep& bound) {
  if (!bound.refer || bound.refer_end < bound.source_count || plan.collective != Collective::kAllReduce)
    return;
  std::vector<PeerWindow> windows;
  size_t written = 0;
  for (const End& sink : step.sinks) {
    const bool sends = sink.kind == EndKind::kLink || sink.kind == EndKind::kPublish;
    written += sends ? 0 : 1;
    if (sends && !sink.place_ok) return;
    for (uint32_t peer = 0; peer < plan.rank_count; ++peer) {
      const bool reads = sink.kind == EndKind::kPublish ? peer != plan.rank : peer == sink.peer;
      if (sends && reads) windows.push_back(links.window(peer));
    }
  }
  if (written + windows.size() > reduce::kMaxSinks) return;
  if (std::any_of(windows.begin(), windows.end(), [](const PeerWindow& w) { return w.window == nullptr; }))
    return;
  bound.first_window = static_cast<uint32_t>(windows_.size());
  bound.window_count = static_cast<uint32_t>(windows.size());
  windows_.insert(windows_.end(), windows.begin(), windows.end());
}

/// One round and adjacent chunks: the step's chunks travel as one piece.
void Operation::merge_step(BoundStep& bound) {
  bound.merged = true;
  for (uint32_t k = 0; k < bound.chunk_count; ++k) {
    bound.merged_bytes += geometry_.agreed_chunk(bound.first_chunk + k).bytes;
  }
  for (uint32_t e = 0; e < uint32_t{bound.source_count} + bound.sink_count; ++e) {
    const BoundEnd& end = ends_[bound.first_end + e];
    if (end.send == nullptr && end.recv == nullptr) offsets_[bound.first_end + e] = end_offset(end, 0, 0);
  }
}

/// The place of an end's k-th chunk, `start` bytes into it, relative to the end's base.
uint64_t Operation::end_offset(const BoundEnd& end, uint32_t k, uint64_t start) const {
  switch (end.base) {
    case kInputBase: return geometry_.input_chunk(end.first_chunk + k).offset + start;
    case kOutputBase: return geometry_.output_chunk(end.first_chunk + k).offset + start;
    case kScratchBase: return (end.first_chunk + k) * scratch_stride_;  // holds one round
    case kAbsoluteBase: break;
  }
  return end.address;
}

std::unique_ptr<Operation> Operation::bind_messages(std::span<const Message> messages,
                                                    const BindOptions& options, LinkTable& links) {
  constexpr uint32_t kNotPlaced = UINT32_MAX;
  std::unique_ptr<Operation> operation(new Operation);
  operation->slot_bytes_ = options.slot_bytes;
  operation->streaming_bytes_ = options.streaming_bytes;
  operation->reference_bytes_ = options.reference_bytes;
  operation->pull_bytes_ = options.pull_bytes;
  operation->message_steps_.assign(messages.size(), kNotPlaced);
  for (size_t first = 0; first < messages.size(); ++first) {
    if (operation->message_steps_[first] != kNotPlaced) continue;
    BoundLane lane;
    lane.first_step = static_cast<uint32_t>(operation->steps_.size());
    for (size_t i = first; i < messages.size(); ++i) {
      const Message& message = messages[i];
      if (message.peer != messages[first].peer || message.sending != messages[first].sending) continue;
      operation->message_steps_[i] = lane.first_step + lane.step_count++;
      operation->bind_message(message, links);
    }
    operation->lanes_.push_back(lane);
  }
  operation->short_ = operation->messages_are_short();
  return operation;
}

bool Operation::rebind_messages(std::span<const Message> messages) {
  if (messages.size() != message_steps_.size()) return false;
  for (size_t i = 0; i < messages.size(); ++i) {
    const BoundEnd* ends = &ends_[steps_[message_steps_[i]].first_end];
    const bool sending = ends[1].send != nullptr;
    if (messages[i].sending != sending) return false;
    if (messages[i].peer != (sending ? ends[1].send->peer : ends[0].recv->peer)) return false;
  }
  for (size_t i = 0; i < messages.size(); ++i) place_message(messages[i], message_steps_[i]);
  short_ = messages_are_short();
  return true;
}

/// Whether all are one slice each, in one direction.
bool Operation::messages_are_short() const {
  return lanes_.size() == 1 && std::all_of(steps_.begin(), steps_.end(), [this](const BoundStep& step) {
           return step.merged_bytes > 0 && step.merged_bytes <= step.slice_bytes;
         });
}

void Operation::bind_message(const Message& message, LinkTable& links) {
  BoundStep step;
  step.first_end = static_cast<uint32_t>(ends_.size());
  step.source_count = 1;
  step.sink_count = 1;
  step.merged = true;
  step.send_empty = true;
  step.kernel = reduce::find_copy_kernel();
  step.copies = true;
  step.job.source_count = 1;
  step.job.sink_count = 1;
  step.refer = message.sending;
  BoundEnd memory;
  memory.base = kAbsoluteBase;
  BoundEnd link;
  if (message.sending) {
    link.send = links.send_link(message.peer, kMessageChannel);
  } else {
    link.recv = links.recv_link(message.peer, kMessageChannel);
  }
  ends_.push_back(message.sending ? memory : link);
  ends_.push_back(message.sending ? link : memory);
  offsets_.resize(ends_.size());
  steps_.push_back(step);
  place_message(message, static_cast<uint32_t>(steps_.size() - 1));
}

/// What differs between two messages of one peer and direction.
void Operation::place_message(const Message& message, uint32_t step_number) {
  BoundStep& step = steps_[step_number];
  step.merged_bytes = message.bytes;
  step.slice_bytes = slice_bytes_for(message.bytes, slot_bytes_);
  step.job.streaming_sinks = !message.sending && message.bytes >= streaming_bytes_ ? 1 : 0;
  step.signature = message.signature;
  step.shared = message.shared;
  const uint32_t memory = step.first_end + (message.sending ? 0 : 1);
  ends_[memory].address = reinterpret_cast<uint64_t>(message.buffer);
  offsets_[memory] = ends_[memory].address;
}

}  // namespace tutti
