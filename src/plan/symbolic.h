// Symbolic execution: the contents of every chunk after all ranks' plans, as expressions.
//
// Runs out of place and in place, each in one possible order. Plans without races (plan/races.h) give the
// same values in every order.
#pragma once

#include <span>

#include "core/result.h"
#include "plan/graph.h"
#include "plan/plan.h"

namespace tutti {

struct ValueOptions {
  bool in_place = false;
  /// Blocks may have different sizes. Then every step must name the block of its data.
  bool variable_counts = false;
};

/// Returns ok or kInvalidArgument. Errors: a step reads a chunk that nothing has written; combines values
/// that do not belong together; counts an operand twice; or names other chunks than its data's. Or an output
/// chunk does not hold exactly its operands, finished once. `found`, if given, gets the association of the
/// reductions.
Status check_values(std::span<const Plan> plans, const PlanGraph& graph, const ValueOptions& options,
                    PlanAssociation* found);

}  // namespace tutti
