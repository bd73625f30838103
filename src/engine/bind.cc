// Binding: turns a plan and the bytes of a call into offsets, link pointers and kernels.
#include <algorithm>
#include <bit>
#include <cassert>
#include <iterator>

#include "core/types.h"
#include "engine/cut.h"
#include "engine/operation.h"

namespace tutti {
namespace {

bool is_sent(const End& sink) {
  return sink.kind == EndKind::kLink || sink.kind == EndKind::kPublish;
}

/// The step with its links before its memory: the order of sinks means nothing.
Step links_first(const Step& step) {
  Step ordered = step;
  ordered.sinks.clear();
  for (const bool sent : {true, false})
    std::ranges::copy_if(step.sinks, std::back_inserter(ordered.sinks),
                         [sent](const End& sink) { return is_sent(sink) == sent; });
  return ordered;
}

}  // namespace

std::unique_ptr<Operation> Operation::bind(const Plan& plan, const Geometry& geometry,
                                           const BindOptions& options, LinkTable& links) {
  std::unique_ptr<Operation> operation(new Operation);
  operation->geometry_ = geometry;
  operation->reference_bytes_ = options.reference_bytes;
  operation->pull_bytes_ = options.pull_bytes;
  const Cut cut = Cut::of(plan, geometry, options.slots, options.slices());
  operation->slice_bytes_ = cut.slice_bytes;
  operation->round_bytes_ = cut.round_bytes;
  operation->round_count_ = cut.round_count;
  operation->scratch_stride_ = cut.scratch_stride;
  operation->scratch_.resize(plan.scratch_chunks * cut.scratch_stride);
  operation->bases_[kScratchBase] = operation->scratch_.data();
  bool is_short = cut.merges && plan.lanes.size() == 1;
  for (const Lane& lane : plan.lanes) {
    BoundLane bound;
    bound.first_step = static_cast<uint32_t>(operation->steps_.size());
    bound.step_count = static_cast<uint32_t>(lane.steps.size());
    if (bound.step_count == 0) continue;
    for (const Step& step : lane.steps) {
      operation->bind_step(plan, step, options, links);
      if (cut.merges) operation->merge_step(operation->steps_.back(), step);
      is_short = is_short && operation->steps_.back().merged_bytes <= operation->slice_bytes_;
    }
    operation->lanes_.push_back(bound);
  }
  const auto has_results = [&](bool copied) {
    return std::ranges::any_of(operation->steps_, [copied](const BoundStep& step) {
      return step.copies == copied && step.trial_outputs != 0;
    });
  };
  operation->prepare_result_trials(options, has_results(true), has_results(false));
  operation->choose_result_trials(options.message_bytes);
  operation->short_ = is_short && operation->lanes_.size() == 1;
  for (BoundStep& step : operation->steps_) find_plain(step);
  operation->settle_links();
  operation->copies_in_memory_ = operation->is_copy_in_memory();
  const uint64_t least_referred = std::min(options.reference_bytes, options.pull_bytes);
  operation->may_refer_ = std::ranges::any_of(operation->steps_, [&](const BoundStep& step) {
    const std::span<const BoundEnd> sources(&operation->ends_[step.first_end], step.source_count);
    const bool reads = std::ranges::any_of(sources, [](const BoundEnd& end) { return end.recv != nullptr; });
    return step.merged_bytes >= (reads ? least_referred : step.refer_bytes);
  });
  return operation;
}

/// After all ends are bound. From here on, keep_reference allocates nothing.
void Operation::settle_links() {
  receives_ = std::ranges::any_of(ends_, [](const BoundEnd& end) { return end.recv != nullptr; });
  expect_waiting(receives_);
  const auto sends = std::ranges::count_if(ends_, [](const BoundEnd& end) { return end.send != nullptr; });
  reference_links_.reserve(static_cast<size_t>(sends));
}

/// `copies`, `sums`: whether any result is copied, summed up.
void Operation::prepare_result_trials(const BindOptions& options, bool copies, bool sums) {
  streaming_bytes_ = options.streaming_bytes;
  if (options.string_moves) stores_of_copies_.add(Stores::kString);
  constexpr uint64_t kLeastLongest = 4u << 20;
  for (uint32_t i = 0; i < kSizeClasses; ++i)
    result_trials_[i] = ResultTrials({.are_long = (kLeastSizeClass << i) >= options.long_call_bytes,
                                      .are_longest = (kLeastSizeClass << i) >= kLeastLongest,
                                      .copy = copies,
                                      .sum = sums,
                                      .have_string_moves = options.string_moves});
}

/// `bytes`: of the call, or of the longest message that is received.
void Operation::choose_result_trials(uint64_t bytes) {
  results_ =
      bytes >= streaming_bytes_ ? &result_trials_[size_class(bytes, kLeastSizeClass, kSizeClasses)] : nullptr;
}

bool Operation::is_copy_in_memory() const {
  if (!short_ || steps_.size() != 1) return false;
  const BoundStep& step = steps_[0];
  const BoundEnd* ends = &ends_[step.first_end];
  return step.copies && step.sink_count == 1 && ends[0].recv == nullptr && ends[1].send == nullptr;
}

void Operation::bind_step(const Plan& plan, const Step& planned, const BindOptions& options,
                          LinkTable& links) {
  BoundStep bound;
  const Step step = links_first(planned);
  bound.first_end = static_cast<uint32_t>(ends_.size());
  bound.source_count = static_cast<uint8_t>(step.sources.size());
  bound.sink_count = static_cast<uint8_t>(step.sinks.size());
  bound.first_chunk = step.first_chunk;
  bound.chunk_count = step.chunk_count;
  for (const End& end : step.sources) ends_.push_back(bind_end(end, false, links));
  for (const End& end : step.sinks) ends_.push_back(bind_end(end, true, links));
  offsets_.resize(ends_.size());
  const StepUse use = StepUse::of(plan, step, options.op);
  choose_kernel(plan, step, options, use, bound);
  const auto link_count = static_cast<uint8_t>(std::ranges::count_if(step.sinks, is_sent));
  if (bound.copies && link_count < bound.sink_count) bound.sent_first = link_count;
  if (options.direct_writes) find_exposed_buffers(direct_write_peers(plan, step, use), links, bound);
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
    case EndKind::kCollect: assert(false && "only devices have Facts::can_multicast"); break;
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
                              const StepUse& use, BoundStep& bound) const {
  if (use.copies) {
    bound.kernel = reduce::find_copy_kernel();
  } else {
    bound.element_shift = static_cast<uint8_t>(std::countr_zero(type_bytes(options.type)));
    bound.kernel =
        reduce::find_kernel(options.type, options.op,
                            options.reproducible ? reduce::Association::kTree : reduce::Association::kLeft);
  }
  for (size_t i = 0; i < step.sinks.size(); ++i) {
    if (step.sinks[i].kind == EndKind::kOutput && options.message_bytes >= options.streaming_bytes) {
      bound.trial_outputs |= 1u << i;
    }
  }
  bound.job.scaled_sources = use.scaled_sources;
  bound.job.finish = use.finish;
  bound.job.source_count = bound.source_count;
  bound.job.sink_count = bound.sink_count;
  bound.job.divisor = plan.rank_count;
  bound.job.scale_bits = options.premul_scalar_bits;
  bound.copies = use.copies;
  if (use.refers) bound.refer_bytes = std::min(options.reference_bytes, options.pull_bytes);
  bound.refer_end = use.refer_end;
}

/// The exposed buffers of all receivers of the step's result, if each receiver has one.
void Operation::find_exposed_buffers(const std::vector<uint32_t>& peers, LinkTable& links, BoundStep& bound) {
  std::vector<PeerExposedBuffer> exposed;
  exposed.reserve(peers.size());
  for (const uint32_t peer : peers) exposed.push_back(links.exposed_buffer(peer));
  if (std::any_of(exposed.begin(), exposed.end(),
                  [](const PeerExposedBuffer& e) { return e.buffer == nullptr; }))
    return;
  bound.first_exposed = static_cast<uint32_t>(exposed_.size());
  bound.exposed_count = static_cast<uint32_t>(exposed.size());
  exposed_.insert(exposed_.end(), exposed.begin(), exposed.end());
}

/// With one round and adjacent chunks, the step's chunks travel as one piece.
void Operation::merge_step(BoundStep& bound, const Step& step) {
  bound.merged = true;
  bound.merged_bytes = tutti::merged_bytes(step, geometry_);
  set_length(bound, bound.merged_bytes);
  for (uint32_t e = 0; e < uint32_t{bound.source_count} + bound.sink_count; ++e) {
    const BoundEnd& end = ends_[bound.first_end + e];
    if (end.send == nullptr && end.recv == nullptr) offsets_[bound.first_end + e] = end_offset(end, 0, 0);
  }
}

/// Sets what depends on the length of the chunk or message that the step moves next.
void Operation::set_length(BoundStep& step, uint64_t bytes) const {
  step.length = StoreTrials::length_of(bytes, step.slice_bytes);
  step.job.unclaimed_sinks = 0;
  // Claiming the lines of such results makes messages take 1.1 to 1.2 times as long; of longer ones, nothing.
  constexpr uint64_t kLeastUnclaimedResult = 16384;
  if (bytes < kLeastUnclaimedResult || step.length != StoreTrials::kMiddlePiece) return;
  const BoundEnd* sinks = &ends_[step.first_end + step.source_count];
  for (uint32_t i = 0; i < step.sink_count; ++i) {
    if (sinks[i].send == nullptr) step.job.unclaimed_sinks |= 1u << i;
  }
}

/// The offset of an end's k-th chunk plus `start` bytes, relative to the end's base.
uint64_t Operation::end_offset(const BoundEnd& end, uint32_t k, uint64_t start) const {
  switch (end.base) {
    case kInputBase: return geometry_.input_chunk(end.first_chunk + k).offset + start;
    case kOutputBase: return geometry_.output_chunk(end.first_chunk + k).offset + start;
    case kScratchBase: return (end.first_chunk + k) * scratch_stride_;  // holds one round
    case kAbsoluteBase: break;
  }
  return end.address;
}

uint64_t tail_bytes(uint64_t message_bytes, const SliceLimits& limits) {
  const uint64_t rest = message_bytes % slice_bytes_for(message_bytes, limits);
  return rest <= kMostPackedBytes ? rest : 0;
}

std::unique_ptr<Operation> Operation::bind_messages(std::span<const Message> messages,
                                                    const BindOptions& options, LinkTable& links) {
  std::unique_ptr<Operation> operation(new Operation);
  operation->slices_ = options.slices();
  operation->prepare_result_trials(options, true, false);
  operation->reference_bytes_ = options.reference_bytes;
  operation->pull_bytes_ = options.pull_bytes;
  operation->pulled_message_bytes_ = options.pulled_message_bytes;
  operation->pull_cost_ = options.pull_cost;
  operation->message_steps_.assign(messages.size(), kNoStep);
  for (size_t first = 0; first < messages.size(); ++first) {
    if (operation->message_steps_[first] != kNoStep) continue;
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
  operation->settle_links();
  operation->settle_messages();
  if (messages.size() == 1) operation->allow_repeats(messages[0]);
  return operation;
}

void Operation::allow_repeats(const Message& message) {
  if (message.device != nullptr) return;
  repeated_peer_ = message.peer;
  // Below all sizes from which on anything else is chosen.
  const uint64_t others = std::min({streaming_bytes_, reference_bytes_, pull_bytes_, pulled_message_bytes_});
  most_repeated_bytes_ =
      std::min({kMostRepeatedBytes, slices_.least, slices_.most, std::max<uint64_t>(others, 1) - 1});
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
  settle_messages();
  return true;
}

void Operation::copy_histories(std::span<Message> messages) const {
  for (size_t i = 0; i < messages.size(); ++i) {
    if (message_steps_[i] != kNoStep) messages[i].history = steps_[message_steps_[i]].history;
  }
}

/// Whether each message is one slice and all have one direction.
bool Operation::messages_are_short() const {
  return lanes_.size() == 1 && std::all_of(steps_.begin(), steps_.end(), [](const BoundStep& step) {
           return step.device == nullptr && step.merged_bytes > 0 && step.merged_bytes <= step.slice_bytes;
         });
}

/// After the messages have their sizes.
void Operation::settle_messages() {
  short_ = blocks_ == nullptr && messages_are_short();
  uint64_t longest = 0;
  for (const uint32_t number : message_steps_) {
    if (number != kNoStep && steps_[number].trial_outputs != 0)
      longest = std::max(longest, steps_[number].merged_bytes);
  }
  choose_result_trials(longest);
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

/// Sets what differs between two messages of one peer and direction.
void Operation::place_message(const Message& message, uint32_t step_number) {
  BoundStep& step = steps_[step_number];
  step.merged_bytes = message.bytes;
  step.slice_bytes = slice_bytes_for(message.bytes, slices_);
  set_length(step, message.bytes);
  step.trial_outputs = !message.sending && message.bytes >= streaming_bytes_ ? 1 : 0;
  step.shared = message.shared;
  step.registered = message.registered;
  step.device = message.device;
  step.tail = message.tail;
  step.seed = message.seed;
  repeated_bytes_ = 0;
  place_buffer(message, step);
}

void Operation::place_buffer(const Message& message, const BoundStep& step) {
  const uint32_t memory = step.first_end + (message.sending ? 0 : 1);
  ends_[memory].address = reinterpret_cast<uint64_t>(message.buffer);
  offsets_[memory] = ends_[memory].address;
}

}  // namespace tutti
