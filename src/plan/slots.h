// Slots: checks that the plans make progress with the number of slots that they state.
//
// The model. A link has slots_needed * S slots. The message runs in rounds. In one round every chunk has at
// most S slices, and a lane runs all its steps for a round before the next round. A step of k chunks takes k
// times the round's slices, slice by slice. Each slice takes one slice from every link source and puts one
// into every link sink at once. The step waits while a source is empty or a sink is full. A slot is free
// again when its reader has taken the slice. A published slot is free when all readers have.
//
// The check runs S = 1, 2, 4, each with four rounds. One run has S slices in each round (chunks of whole
// rounds). One run has S, 1, S, 1 slices (chunks of S + 1 slices). Chunks with fewer slices, and empty
// chunks, need no run: without a slice's events, every remaining "waits for" still follows from the others.
// The order in which lanes run does not change the result.
#pragma once

#include <span>

#include "core/result.h"
#include "plan/graph.h"

namespace tutti {

/// Returns ok, or kInvalidArgument with a step that waits forever.
Status check_slots(const PlanGraph& graph, uint32_t slots_needed);

}  // namespace tutti
