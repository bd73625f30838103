#include "engine/cut.h"

#include <algorithm>

#include "reduce/reduce.h"

namespace tutti {
namespace {

/// Whether `op` needs arithmetic even in a step with one source.
bool scales_input(ReduceOp op) {
  return op == ReduceOp::kPremulSum;
}

/// What the step's links may refer to: a user buffer that the step copies, or else the part of the receive
/// buffer that the step writes. The verifier has proved the plan with such references (plan/graph.h,
/// may_refer).
void find_reference(const Step& step, StepUse& use) {
  const auto is_user = [](const End& end) {
    return end.kind == EndKind::kInput || end.kind == EndKind::kOutput;
  };
  const bool marked_source =
      step.sources[0].reference_ok && step.sources.size() == 1 && is_user(step.sources[0]);
  const bool marked_sink = std::any_of(step.sinks.begin(), step.sinks.end(), [](const End& sink) {
    return sink.reference_ok && (sink.kind == EndKind::kLink || sink.kind == EndKind::kPublish);
  });
  if (!marked_source && !marked_sink) return;
  if (use.copies && is_user(step.sources[0])) {
    use.refers = true;
    use.refer_end = 0;
    return;
  }
  for (size_t i = 0; i < step.sinks.size() && !use.refers; ++i) {
    use.refers = step.sinks[i].kind == EndKind::kOutput;
    use.refer_end = static_cast<uint8_t>(step.sources.size() + i);
  }
}

}  // namespace

uint64_t merged_bytes(const Step& step, const Geometry& geometry) {
  uint64_t bytes = 0;
  for (uint32_t k = 0; k < step.chunk_count; ++k) bytes += geometry.agreed_chunk(step.first_chunk + k).bytes;
  return bytes;
}

Cut Cut::of(const Plan& plan, const Geometry& geometry, uint32_t slots, const SliceLimits& limits) {
  Cut cut;
  const uint64_t largest = geometry.largest_chunk_bytes();
  const Rounds rounds = Rounds::of(largest, slots, plan.slots_needed, limits);
  cut.slice_bytes = rounds.slice_bytes;
  cut.round_bytes = rounds.round_bytes;
  cut.round_count = rounds.count;
  cut.merges =
      cut.round_count == 1 && geometry.contiguous() && (plan.scratch_chunks == 0 || geometry.equal_chunks());
  cut.scratch_stride = std::min(largest, cut.round_bytes);
  return cut;
}

StepUse StepUse::of(const Plan& plan, const Step& step, ReduceOp op) {
  StepUse use;
  const bool reducing = reduces(plan.collective);
  for (size_t i = 0; i < step.sources.size(); ++i) {
    if (reducing && scales_input(op) && step.sources[i].kind == EndKind::kInput)
      use.scaled_sources |= 1u << i;
  }
  use.finish = reducing && step.finish && op == ReduceOp::kAvg;
  use.copies = step.sources.size() == 1 && step.sources[0].kind != EndKind::kCollect &&
               use.scaled_sources == 0 && !use.finish;
  find_reference(step, use);
  return use;
}

/// Only all_reduce reduces into receive buffers that are equal on all ranks.
std::vector<uint32_t> direct_write_peers(const Plan& plan, const Step& step, const StepUse& use) {
  if (!use.refers || use.refer_end < step.sources.size() || plan.collective != Collective::kAllReduce)
    return {};
  std::vector<uint32_t> peers;
  size_t written = 0;
  for (const End& sink : step.sinks) {
    const bool sends = sink.kind == EndKind::kLink || sink.kind == EndKind::kPublish;
    written += sends ? 0 : 1;
    if (sends && !sink.direct_write_ok) return {};
    for (uint32_t peer = 0; peer < plan.rank_count; ++peer) {
      const bool reads = sink.kind == EndKind::kPublish ? peer != plan.rank : peer == sink.peer;
      if (sends && reads) peers.push_back(peer);
    }
  }
  if (written + peers.size() > reduce::kMaxSinks) return {};
  return peers;
}

}  // namespace tutti
