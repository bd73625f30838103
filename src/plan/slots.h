// Slots: checks that the plans make progress with the number of slots that they state.
//
// The model. A link has slots_needed * S slots. A message runs in rounds of at most S slices for each chunk,
// and a lane runs all its steps for a round before the next. A step of k chunks takes k times the round's
// slices. Each slice takes one slice from every link source and puts one into every link sink at once; the
// step waits while a source is empty or a sink is full. A slot is free again when all its readers have taken
// the slice.
//
// The check runs S = 1, 2, 4, each with four rounds: once with S slices in each round (chunks of whole
// rounds), once with S, 1, S, 1 slices (chunks of S + 1 slices). Chunks with fewer slices need no run:
// without a slice's events, every remaining "waits for" still follows from the others. The order of lanes
// does not change the result.
#pragma once

#include <span>

#include "core/result.h"
#include "plan/graph.h"

namespace tutti {

/// Returns ok, or kInvalidArgument with a step that waits forever.
Status check_slots(const PlanGraph& graph, uint32_t slots_needed);

}  // namespace tutti
