// Symbolic execution: what every chunk holds after all ranks' plans, as expressions.
//
// Run once per placement of the buffers (out of place, in place), in one possible order; plans without races
// hold the same values in every order (plan/races.h).
#pragma once

#include <span>

#include "core/result.h"
#include "plan/graph.h"
#include "plan/plan.h"

namespace tutti {

struct ValueOptions {
  bool in_place = false;
  /// Blocks may have different sizes: every step names the very block that its data belongs to.
  bool variable_counts = false;
};

/// Ok, or kInvalidArgument: a step reads what nothing has written, combines what does not belong together,
/// counts an operand twice, names other chunks than its data's; or an output chunk does not hold
/// exactly its operands, finished once. `found`, if given: the association of the reductions.
Status check_values(std::span<const Plan> plans, const PlanGraph& graph, const ValueOptions& options,
                    PlanAssociation* found);

}  // namespace tutti
