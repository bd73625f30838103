// Races: checks that no step writes a chunk while another step may read or write the chunk.
//
// Lanes and messages give the order, never credits: a plan may not rely on a free slot. Accesses within a
// step are ordered only slice by slice. So messages alone protect a chunk only if its index in the first step
// is not higher than in the second step.
#pragma once

#include <span>

#include "core/result.h"
#include "plan/graph.h"
#include "plan/plan.h"

namespace tutti {

struct RaceOptions {
  bool in_place = false;
  /// The receiver's step also reads a chunk that may travel by reference.
  bool by_reference = false;
  /// The sender's step writes a direct message to the receiver's target.
  bool direct = false;
};

/// Returns ok, or kInvalidArgument with the two steps that race. Checks scratch over two rounds, because a
/// round overwrites the scratch of the round before. Rounds of the send and receive buffers do not overlap.
Status check_races(std::span<const Plan> plans, const PlanGraph& graph, const RaceOptions& options);

}  // namespace tutti
