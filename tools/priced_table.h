// Priced table: a choice table (algorithms/choice.txt) for one machine, from predicted times.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tools/machine.h"

namespace tutti::tool {

/// For every collective, rank count and class of sizes a row with the algorithm that is predicted to be the
/// fastest, then the rows of the built-in table for all else. Sizes of a class differ by a factor of four. An
/// algorithm keeps a class in which it loses by less than 3 %, so that few rows are left. Each algorithm is
/// proved for each count up to 64 ranks. Errors: kInvalidArgument (predict), or the reason why a plan is
/// wrong.
Result<std::string> priced_table(Machine& machine, std::span<const uint32_t> rank_counts);

}  // namespace tutti::tool
