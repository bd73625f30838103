// The text form of slice costs: lines of files with measurements (measurements.h) and with graphs (text.h).
//
//   turn 1.4 us spread 12
//   slice send 1024 85 ns
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "topology/slice_costs.h"
#include "topology/units.h"

namespace tutti::topology {

/// What the lines begin with, for messages.
inline constexpr std::string_view kSliceLines = "turn, call, apart, slice or trial";
inline constexpr uint64_t kSpreadMax = 10'000;

std::string print_slices(const SliceCosts& slices);
/// Reads a line, if it is one of these; false: it is another one. Errors: kInvalidArgument: "expected ...,
/// found ...".
Result<bool> take_slice_line(Scanner& scanner, SliceCosts& slices);

/// " spread 12", or nothing.
std::string print_spread(const Fact& fact);
/// A measured time or speed, and its spread. Errors: as take_slice_line.
Result<Fact> take_measured(Scanner& scanner, bool is_time);

}  // namespace tutti::topology
