// Races: no chunk is written while another step may read or write it.
//
// Judged by happens-before over the order of lanes and over messages, never over credits: that a slot was
// given back is not a promise that a plan may rely on. Accesses of one step are ordered slice by slice only,
// so two steps that are ordered by messages alone protect a chunk only if the chunk is not later in the first
// than in the second.
#pragma once

#include <span>

#include "core/result.h"
#include "plan/graph.h"
#include "plan/plan.h"

namespace tutti {

struct RaceOptions {
  bool in_place = false;
  /// A chunk that may travel by reference is also read by the receiver's step.
  bool by_reference = false;
  /// A message that may be written directly is written by the sender's step where the receiver's step copies
  /// it.
  bool direct = false;
};

/// Ok, or kInvalidArgument with the two steps that race. Scratch is watched over two rounds, because a
/// round overwrites what the one before left; rounds of the send and receive buffers do not overlap.
Status check_races(std::span<const Plan> plans, const PlanGraph& graph, const RaceOptions& options);

}  // namespace tutti
