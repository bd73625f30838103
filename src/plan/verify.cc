#include "plan/verify.h"

#include <string>

#include "plan/graph.h"
#include "plan/races.h"
#include "plan/shape.h"
#include "plan/slots.h"
#include "plan/symbolic.h"

namespace tutti {
namespace {

const char* association_name(PlanAssociation association) {
  switch (association) {
    case PlanAssociation::kNone: return "none";
    case PlanAssociation::kAny: return "any";
    case PlanAssociation::kCanonical: return "canonical";
  }
  return "unknown";
}

/// One rank reduces nothing, so every stated association is right.
Status check_association(const Plan& plan, PlanAssociation found) {
  if (plan.association == found || plan.rank_count == 1) return {};
  return {Code::kInvalidArgument, format("the plans state the association '%s', but it is '%s'",
                                         association_name(plan.association), association_name(found))};
}

bool writes_directly(const PlanGraph& graph) {
  for (uint32_t event = 0; event < graph.events().size(); ++event) {
    for (const GraphMessage& message : graph.received(event)) {
      if (message.direct) return true;
    }
  }
  return false;
}

/// A race with copies is also a race with references. So the run with copies only gives a better message.
Status check_all_races(std::span<const Plan> plans, const PlanGraph& graph, bool in_place,
                       bool by_reference) {
  Status status = check_races(plans, graph, {.in_place = in_place, .by_reference = by_reference});
  if (!status && by_reference) TUTTI_TRY(check_races(plans, graph, {.in_place = in_place}));
  TUTTI_TRY(std::move(status));
  if (!by_reference || !writes_directly(graph)) return {};
  return check_races(plans, graph, {.in_place = in_place, .by_reference = true, .direct = true});
}

/// In an all_to_all of variable counts only two ranks know the size of a block. So every step copies blocks
/// between two ends, of which one is a buffer: there lies the block, or its message tells the size to
/// scratch.
Status check_block_sizes(std::span<const Plan> plans) {
  const auto is_link = [](const End& end) {
    return end.kind != EndKind::kInput && end.kind != EndKind::kOutput && end.kind != EndKind::kScratch;
  };
  for (const Plan& plan : plans) {
    for (const Lane& lane : plan.lanes) {
      for (const Step& step : lane.steps) {
        if (step.sources.size() == 1 && step.sinks.size() == 1 &&
            !(is_link(step.sources[0]) && is_link(step.sinks[0])))
          continue;
        return {Code::kInvalidArgument,
                format("rank %u has a step that does not copy from or to one buffer: with variable counts no "
                       "rank knows the size of what it moves",
                       plan.rank)};
      }
    }
  }
  return {};
}

}  // namespace

Status verify_plans(std::span<const Plan> plans, const VerifyOptions& options) {
  TUTTI_TRY(check_shape(plans));
  const auto graph = PlanGraph::build(plans);
  if (!graph) return graph.status();
  TUTTI_TRY(check_slots(*graph, plans[0].slots_needed));
  if (options.variable_counts && plans[0].collective == Collective::kAllToAll)
    TUTTI_TRY(check_block_sizes(plans));
  auto found = PlanAssociation::kNone;
  for (const bool in_place : {false, true}) {
    if (in_place && !options.in_place) break;
    TUTTI_TRY(check_values(plans, *graph, {.in_place = in_place, .variable_counts = options.variable_counts},
                           &found));
    TUTTI_TRY(check_all_races(plans, *graph, in_place, options.by_reference));
  }
  return check_association(plans[0], found);
}

Result<PlanAssociation> find_association(std::span<const Plan> plans) {
  TUTTI_TRY(check_shape(plans));
  const auto graph = PlanGraph::build(plans);
  if (!graph) return graph.status();
  auto found = PlanAssociation::kNone;
  TUTTI_TRY(check_values(plans, *graph, {}, &found));
  return found;
}

}  // namespace tutti
