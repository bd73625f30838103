// Slots: do the plans make progress with no more slots than they state?
//
// The model. A link has slots_needed * S slots. The message is cut into rounds; in one round every chunk has
// at most S slices, and a lane runs all its steps for a round before the next. A step of k chunks runs slice
// by slice: k times the round's slices, each of which takes one slice from every link source and puts one
// into every link sink at once, and waits while a source is empty or a sink is full. A slot is free again
// when its reader has taken the slice; a published slot when all readers have.
//
// What is run: S = 1, 2, 4, each with four rounds, once all of S slices (chunks of whole rounds) and once of
// S, 1, S, 1 slices (chunks of S + 1 slices). Chunks with fewer slices, empty ones included, need no run:
// without the events of a slice every "waits for" that remains already followed from those that were there.
// The outcome does not depend on the order in which lanes are run.
#pragma once

#include <span>

#include "core/result.h"
#include "plan/graph.h"

namespace tutti {

/// Ok, or kInvalidArgument with a step that waits forever.
Status check_slots(const PlanGraph& graph, uint32_t slots_needed);

}  // namespace tutti
