// Operation, an all_to_all_v by the plan of an all_to_all (algorithms/hierarchical_all_to_all.cc). Only the
// two ranks of a block know its size, but the plan leads it through the scratch of others. The plan does not
// depend on sizes, so it is bound once, and each call only sets its blocks:
//  - A block that lies in a user's buffer has the size that the call says.
//  - A block that comes to scratch has the size that its message's flag word shows, so it is one slice.
//  - Every block has a message, however short, so that each rank sees what it did not expect.
//  - A longer block is a message to its receiver. Both ends know that from its size. By the plan travels an
//    empty message in its place, with a mark in the signature.
#include <algorithm>
#include <cassert>

#include "engine/operation.h"

namespace tutti {
namespace {

constexpr uint32_t kMark = 1;  // in the signature: the block is a message of its own
constexpr uint64_t kAlignBytes = 64;

}  // namespace

std::unique_ptr<Operation> Operation::bind_blocks(const Plan& plan, uint64_t most_bytes,
                                                  const BindOptions& options, LinkTable& links) {
  assert(plan.collective == Collective::kAllToAll && plan.chunks_per_block == 1);
  assert(most_bytes <= options.slot_bytes);
  std::unique_ptr<Operation> operation(new Operation);
  operation->slices_ = options.slices();
  operation->slice_bytes_ = options.slot_bytes;
  operation->prepare_result_trials(options, true, false);
  operation->reference_bytes_ = options.reference_bytes;
  operation->pull_bytes_ = options.pull_bytes;
  operation->scratch_stride_ = (most_bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
  operation->scratch_.resize(plan.scratch_chunks * operation->scratch_stride_);
  operation->bases_[kScratchBase] = operation->scratch_.data();
  auto blocks = std::make_unique<Blocks>();
  blocks->most_bytes = most_bytes;
  blocks->rank = plan.rank;
  blocks->input.resize(plan.rank_count);
  blocks->output.resize(plan.rank_count);
  blocks->scratch.resize(plan.scratch_chunks);
  for (uint32_t chunk = 0; chunk < plan.scratch_chunks; ++chunk)
    blocks->scratch[chunk].offset = chunk * operation->scratch_stride_;
  for (const Lane& lane : plan.lanes) {
    BoundLane bound;
    bound.first_step = static_cast<uint32_t>(operation->steps_.size());
    bound.step_count = static_cast<uint32_t>(lane.steps.size());
    for (const Step& step : lane.steps) {
      assert(step.sources.size() == 1 && step.sinks.size() == 1);
      operation->bind_step(plan, step, options, links);
      const BoundEnd* ends = &operation->ends_[operation->steps_.back().first_end];
      operation->steps_.back().send_empty = ends[0].recv != nullptr || ends[1].send != nullptr;
    }
    if (bound.step_count > 0) operation->lanes_.push_back(bound);
  }
  blocks->plan_lanes = static_cast<uint32_t>(operation->lanes_.size());
  blocks->plan_steps = static_cast<uint32_t>(operation->steps_.size());
  for (uint32_t peer = 0; peer < plan.rank_count; ++peer) {
    if (peer == plan.rank) continue;
    for (const bool sending : {true, false})
      operation->bind_message({.peer = peer, .sending = sending}, links);
  }
  operation->blocks_ = std::move(blocks);
  operation->settle_links();
  return operation;
}

uint32_t Operation::message_step_of(const Message& message) const {
  const uint32_t index = message.peer - (message.peer > blocks_->rank ? 1 : 0);
  return blocks_->plan_steps + 2 * index + (message.sending ? 0 : 1);
}

void Operation::set_blocks(std::span<const Message> messages, uint32_t signature) {
  blocks_->signature = signature;
  lanes_.resize(blocks_->plan_lanes);
  message_steps_.assign(messages.size(), kNoStep);
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    Block& block = (message.sending ? blocks_->input : blocks_->output)[message.peer];
    block = {.offset = reinterpret_cast<uint64_t>(message.buffer),
             .bytes = message.bytes,
             .is_message = message.bytes > blocks_->most_bytes,
             .shared = message.shared,
             .registered = message.registered};
    if (!block.is_message) continue;
    message_steps_[i] = message_step_of(message);
    place_message(message, message_steps_[i]);
    BoundLane lane;
    lane.first_step = message_steps_[i];
    lane.step_count = 1;
    lanes_.push_back(lane);
  }
  settle_messages();
}

/// Null for a link.
Operation::Block* Operation::block_at(const BoundEnd& end, uint32_t chunk) const {
  if (end.send != nullptr || end.recv != nullptr) return nullptr;
  std::vector<Block>& blocks = end.base == kInputBase    ? blocks_->input
                               : end.base == kOutputBase ? blocks_->output
                                                         : blocks_->scratch;
  return &blocks[end.first_chunk + chunk];
}

/// As next_piece, for a block of the plan. False: its size is not known yet.
bool Operation::next_block(BoundLane& lane, BoundStep& step) {
  const BoundEnd* ends = &ends_[step.first_end];
  Block* const from = block_at(ends[0], lane.chunk);
  Block* const to = block_at(ends[1], lane.chunk);
  const bool comes_to_scratch = to != nullptr && ends[1].base == kScratchBase;
  if (comes_to_scratch && from == nullptr && !learn_block(step, *ends[0].recv, *to)) return false;
  if (comes_to_scratch && from != nullptr) {
    to->bytes = from->bytes;
    to->is_message = from->is_message;
  }
  const Block& block = from != nullptr ? *from : *to;
  step.signature = blocks_->signature ^ (block.is_message ? kMark : 0);
  step.shared = block.shared;
  step.registered = block.registered;
  lane.offsets[0] = from != nullptr ? from->offset : 0;
  lane.offsets[1] = to != nullptr ? to->offset : 0;
  lane.piece_bytes = block.is_message ? 0 : block.bytes;
  set_length(step, lane.piece_bytes);
  lane.done_bytes = 0;
  lane.piece_ready = true;
  return true;
}

/// What the next message says of its block. A message of another call shows when the step reads it.
bool Operation::learn_block(const BoundStep& step, const RecvLink& link, Block& block) {
  if (!link.has_arrived()) {
    obstacle_ = {.peer = link.peer, .step = step_number(step)};
    return false;
  }
  const uint64_t word = link.word();
  block.bytes = std::min(flag::bytes(word), blocks_->most_bytes);
  block.is_message = flag::signature(word) == (blocks_->signature ^ kMark);
  return true;
}

/// A block that another rank has handed on, with another size than this rank expects, is its sender's fault.
void Operation::blame_sender(const BoundLane& lane, const BoundStep& step) {
  const BoundEnd& sink = ends_[step.first_end + 1];
  const uint32_t other = flag::signature(obstacle_.word) ^ flag::signature(obstacle_.expected);
  if (sink.send != nullptr || sink.base != kOutputBase || other > kMark) return;
  obstacle_.peer = sink.first_chunk + lane.chunk;
  // With a mark on one side only, the words do not show both sizes.
  if (other == kMark) obstacle_.word = obstacle_.expected;
}

}  // namespace tutti
