#include "plan/shape.h"

#include <algorithm>
#include <string>

#include "plan/graph.h"
#include "plan/text.h"

namespace tutti {
namespace {

constexpr size_t kMaxRanks = size_t{1} << 16;

Status refuse(const std::string& text) {
  return {Code::kInvalidArgument, text};
}

bool is_buffer(EndKind kind) {
  return kind == EndKind::kInput || kind == EndKind::kOutput || kind == EndKind::kScratch;
}

/// Whether two buffer ends of one plan share a chunk, in memory that is not aliased.
bool overlap(const End& a, const End& b) {
  return a.kind == b.kind && a.first_chunk < uint64_t{b.first_chunk} + b.chunk_count &&
         b.first_chunk < uint64_t{a.first_chunk} + a.chunk_count;
}

/// Only the root of reduce and gather has a receive buffer.
bool may_write_output(const Plan& plan) {
  const bool only_root = plan.collective == Collective::kReduce || plan.collective == Collective::kGather;
  return !only_root || plan.rank == plan.root;
}

/// Only the root of broadcast and scatter has a send buffer.
bool may_read_input(const Plan& plan) {
  const bool only_root = plan.collective == Collective::kBroadcast || plan.collective == Collective::kScatter;
  return !only_root || plan.rank == plan.root;
}

uint64_t buffer_chunks(const Plan& plan, EndKind kind) {
  switch (kind) {
    case EndKind::kInput:
      return uint64_t{input_blocks(plan.collective, plan.rank_count)} * plan.chunks_per_block;
    case EndKind::kOutput:
      return uint64_t{output_blocks(plan.collective, plan.rank_count)} * plan.chunks_per_block;
    case EndKind::kScratch: return plan.scratch_chunks;
    default: return 0;
  }
}

/// The checks of one step of one plan. Each returns what is wrong, or an empty text.
class StepShape {
 public:
  StepShape(const Plan& plan, const Step& step) : plan_(plan), step_(step) {}

  std::string check() const {
    for (const auto part : {&StepShape::check_counts, &StepShape::check_sources, &StepShape::check_sinks,
                            &StepShape::check_chunks, &StepShape::check_overlaps}) {
      std::string defect = (this->*part)();
      if (!defect.empty()) return defect;
    }
    return {};
  }

 private:
  std::string check_counts() const {
    if (step_.sources.empty() || step_.sources.size() > size_t{kMaxStepSources}) {
      return format("has %zu sources; 1 to %d are allowed", step_.sources.size(), kMaxStepSources);
    }
    if (step_.sinks.empty() || step_.sinks.size() > size_t{kMaxStepSinks}) {
      return format("has %zu sinks; 1 to %d are allowed", step_.sinks.size(), kMaxStepSinks);
    }
    const bool may_reduce = reduces(plan_.collective) || plan_.collective == Collective::kBarrier;
    if (!may_reduce && step_.sources.size() > 1) return "reduces in a collective that does not";
    if (!may_reduce && step_.finish) return "finishes a reduction in a collective that has none";
    return {};
  }

  /// Whether 'direct' has a meaning on the step's sinks.
  bool may_write_directly() const {
    return std::any_of(step_.sinks.begin(), step_.sinks.end(),
                       [](const End& end) { return end.kind == EndKind::kOutput; }) &&
           std::none_of(step_.sinks.begin(), step_.sinks.end(), [](const End& end) {
             return end.direct_write_ok && (is_buffer(end.kind) || !end.reference_ok);
           });
  }

  std::string check_sources() const {
    for (const End& end : step_.sources) {
      if (end.direct_write_ok) return "has 'direct' on a source";
      if (end.kind == EndKind::kPublish) return "has publish as a source; read link RANK@255";
      if (end.kind == EndKind::kLink && end.channel == kCollectChannel) {
        return "reads the channel of contributions; use collect";
      }
      if (end.kind == EndKind::kCollect) {
        if (!reduces(plan_.collective)) return "collects in a collective that does not reduce";
        if (step_.sources.size() > 1) return "has a source beside collect";
        if (end.reference_ok) return "has 'ref' on collect";
      }
      if (end.kind == EndKind::kInput && !may_read_input(plan_)) {
        return format("reads the input, which only root %u has", plan_.root);
      }
      std::string defect = check_end(end);
      if (!defect.empty()) return defect;
    }
    return {};
  }

  std::string check_sinks() const {
    for (const End& end : step_.sinks) {
      if (end.kind == EndKind::kInput) return "writes the input";
      if (end.kind == EndKind::kCollect) return "has collect as a sink; send on link RANK@254";
      if (end.kind == EndKind::kLink && end.channel == kCollectChannel && may_refer(step_)) {
        return "lets a contribution travel as a reference";
      }
      if (is_buffer(end.kind) && end.reference_ok) return "has 'ref' on a buffer that it writes";
      if (end.direct_write_ok && !may_write_directly())
        return "has 'direct', but it writes no output, or not as a reference";
      if (end.kind == EndKind::kOutput && !may_write_output(plan_)) {
        return format("writes the output, which only root %u has", plan_.root);
      }
      if (end.kind == EndKind::kLink && end.channel == kPublishChannel) {
        return "sends on the channel of published messages; use publish";
      }
      std::string defect = check_end(end);
      if (!defect.empty()) return defect;
    }
    return {};
  }

  std::string check_end(const End& end) const {
    if (end.kind > EndKind::kCollect)
      return format("has an end of unknown kind %d", static_cast<int>(end.kind));
    if (is_buffer(end.kind)) {
      if (end.chunk_count != step_.chunk_count) {
        return format("has an end of %u chunks in a step of %u", end.chunk_count, step_.chunk_count);
      }
      const uint64_t chunks = buffer_chunks(plan_, end.kind);
      if (uint64_t{end.first_chunk} + end.chunk_count > chunks) {
        return format("names chunk %llu of a buffer of %llu",
                      static_cast<unsigned long long>(uint64_t{end.first_chunk} + end.chunk_count - 1),
                      static_cast<unsigned long long>(chunks));
      }
      return {};
    }
    if (end.chunk_count != 0 || end.first_chunk != 0) return "has a chunk range on a link";
    if (end.kind != EndKind::kLink) return {};
    if (end.peer >= plan_.rank_count)
      return format("has a link to rank %u of %u", end.peer, plan_.rank_count);
    if (end.channel == kCollectChannel) return {};
    if (end.peer == plan_.rank) return "has a link to its own rank";
    if (end.channel >= kPlanChannels && end.channel != kPublishChannel) {
      return format("has a link on channel %u; a plan has channels 0 to %u", end.channel, kPlanChannels - 1);
    }
    return {};
  }

  std::string check_chunks() const {
    if (step_.chunk_count == 0) return "covers no chunk";
    const uint64_t chunks = uint64_t{geometry_blocks(plan_)} * plan_.chunks_per_block;
    if (uint64_t{step_.first_chunk} + step_.chunk_count > chunks) {
      return format("covers chunks %u.. + %u of %llu", step_.first_chunk, step_.chunk_count,
                    static_cast<unsigned long long>(chunks));
    }
    const auto is_link = [](const End& end) { return !is_buffer(end.kind); };
    const bool has_link = std::any_of(step_.sources.begin(), step_.sources.end(), is_link) ||
                          std::any_of(step_.sinks.begin(), step_.sinks.end(), is_link);
    if (has_link && step_.chunk_count > plan_.slots_needed) {
      return format("moves %u chunks over a link, but the plan states %u slots", step_.chunk_count,
                    plan_.slots_needed);
    }
    return {};
  }

  std::string check_overlaps() const {
    for (size_t i = 0; i < step_.sinks.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (is_buffer(step_.sinks[i].kind) ? overlap(step_.sinks[i], step_.sinks[j])
                                           : same_link(i, j, step_.sinks)) {
          return "writes to one place twice";
        }
      }
      for (const End& source : step_.sources) {
        const bool buffers = is_buffer(source.kind) && overlap(source, step_.sinks[i]);
        if (buffers && source.first_chunk != step_.sinks[i].first_chunk) {
          return "reads and writes overlapping chunks at different places";
        }
      }
    }
    for (size_t i = 0; i < step_.sources.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (same_link(i, j, step_.sources)) return "reads one link twice";
      }
    }
    return {};
  }

  static bool same_link(size_t i, size_t j, const std::vector<End>& ends) {
    const End& a = ends[i];
    const End& b = ends[j];
    if (a.kind != b.kind || is_buffer(a.kind)) return false;
    return a.kind == EndKind::kPublish || (a.peer == b.peer && a.channel == b.channel);
  }

  const Plan& plan_;
  const Step& step_;
};

Status check_plan_steps(const Plan& plan, uint64_t& moves) {
  for (size_t lane = 0; lane < plan.lanes.size(); ++lane) {
    const auto& steps = plan.lanes[lane].steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      const std::string defect = StepShape(plan, steps[i]).check();
      if (!defect.empty()) {
        return refuse(
            format("rank %u lane %zu step %zu (%s) ", plan.rank, lane, i, print_step(steps[i]).c_str()) +
            defect);
      }
      moves += uint64_t{steps[i].chunk_count} * (steps[i].sources.size() + steps[i].sinks.size());
      const auto meets_all = [](const End& end) {
        return end.kind == EndKind::kPublish || end.kind == EndKind::kCollect;
      };
      if (std::any_of(steps[i].sinks.begin(), steps[i].sinks.end(), meets_all)) moves += plan.rank_count;
      if (meets_all(steps[i].sources[0])) moves += uint64_t{plan.rank_count} * steps[i].chunk_count;
    }
  }
  return {};
}

/// What all ranks must state alike, because rounds, chunks and the order of reduction follow from it.
Status check_agreement(std::span<const Plan> plans) {
  const Plan& first = plans[0];
  for (uint32_t i = 0; i < plans.size(); ++i) {
    const Plan& plan = plans[i];
    if (plan.rank != i)
      return refuse(format("plan %u is that of rank %u; give all ranks in order", i, plan.rank));
    const auto differs = [&](const char* what) {
      return refuse(format("rank %u states another %s than rank 0", i, what));
    };
    if (plan.collective != first.collective) return differs("collective");
    if (plan.rank_count != first.rank_count) return differs("rank count");
    if (plan.root != first.root) return differs("root");
    if (plan.chunks_per_block != first.chunks_per_block) return differs("chunks_per_block");
    if (plan.scratch_chunks != first.scratch_chunks) return differs("scratch_chunks");
    if (plan.slots_needed != first.slots_needed) return differs("slots_needed");
    if (plan.association != first.association) return differs("association");
  }
  return {};
}

}  // namespace

uint32_t geometry_blocks(const Plan& plan) {
  return std::max(input_blocks(plan.collective, plan.rank_count),
                  output_blocks(plan.collective, plan.rank_count));
}

Status check_shape(std::span<const Plan> plans, const ShapeLimits& limits) {
  if (plans.empty()) return refuse("there is no plan");
  const Plan& first = plans[0];
  if (first.rank_count != plans.size()) {
    return refuse(
        format("there are %zu plans for %u ranks; give one a rank", plans.size(), first.rank_count));
  }
  if (plans.size() > kMaxRanks)
    return refuse(format("%zu ranks are more than can be verified", plans.size()));
  if (static_cast<int>(first.collective) >= kCollectiveCount || first.collective == Collective::kSendRecv) {
    return refuse("plans of '" + std::string(collective_name(first.collective)) +
                  "' have no common result to verify");
  }
  if (has_root(first.collective) && first.root >= first.rank_count) {
    return refuse(format("root %u is not one of %u ranks", first.root, first.rank_count));
  }
  if (first.chunks_per_block == 0) return refuse("chunks_per_block is 0");
  if (first.slots_needed == 0) return refuse("slots_needed is 0");
  TUTTI_TRY(check_agreement(plans));
  const uint64_t locations = buffer_chunks(first, EndKind::kInput) + buffer_chunks(first, EndKind::kOutput) +
                             buffer_chunks(first, EndKind::kScratch);
  if (locations > limits.locations_most / plans.size())
    return refuse("the plans have too many chunks to verify");
  uint64_t moves = 0;
  for (const Plan& plan : plans) {
    TUTTI_TRY(check_plan_steps(plan, moves));
    if (moves > limits.moves_most / ((plans.size() + 63) / 64))
      return refuse("the plans move too many chunks to verify");
  }
  return {};
}

}  // namespace tutti
