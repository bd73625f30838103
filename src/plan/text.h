// The text form of plans, which tutti-plan prints and reads, and which users write by hand.
//
// A text holds one plan set: a header, then each rank's lanes, one step on each line. docs/plan_format.md
// describes the form. The parser accepts any input safely: a wrong text gives a Status that names the line.
// Memory is proportional to the text (limits in text.cc).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "plan/plan.h"

namespace tutti {

/// The plans of all ranks (or of the given ranks) as text. parse_plans reads back equal plans if each end
/// sets only the fields of its kind.
std::string print_plans(std::span<const Plan> plans);

/// The plans in the order of the text, each rank at most once. The parser does not check whether the plans
/// are right; verify_plans does. Errors: kInvalidArgument with "line N: ..." and the expected text.
Result<std::vector<Plan>> parse_plans(std::string_view text);

/// One step on one line, e.g. "link 3@0 + input 2..4 -> output 2..4 + publish", for messages.
std::string print_step(const Step& step);

}  // namespace tutti
