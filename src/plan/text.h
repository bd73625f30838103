// Text form of plans: what tutti-plan prints and reads, and what a user writes by hand.
//
// One plan set per text: a header, then each rank's lanes, one step a line. docs/plan_format.md describes the
// form. The parser survives any input: a wrong text is a Status that names the line, and memory is
// proportional to the text (limits in text.cc).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "plan/plan.h"

namespace tutti {

/// The plans of all ranks (or of the ranks given) as text. For plans whose ends set only the fields that
/// their kind has, parse_plans reads back equal plans.
std::string print_plans(std::span<const Plan> plans);

/// The plans in the order of the text; each rank at most once. Whether they are right is verify's question.
/// Errors: kInvalidArgument with "line N: ..." and what was expected there.
Result<std::vector<Plan>> parse_plans(std::string_view text);

/// One step on one line, e.g. "link 3@0 + input 2..4 -> output 2..4 + publish", for messages.
std::string print_step(const Step& step);

}  // namespace tutti
