// Trials: short measurements of whole calls on this machine, all algorithms in turns. They correct predicted
// times (corrections.h) and make a first choice table; tutti-tune measures longer.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "tools/machine.h"
#include "tools/runs.h"
#include "tools/samples.h"
#include "topology/call_times.h"
#include "topology/measurements.h"

namespace tutti::tool {

struct TriedCalls {
  Samples samples = {};
  size_t wanted_runs = 0;
  size_t good_runs = 0;  ///< those that ended in time, and whose cores stayed during most rows
};

/// Runs the perf tools of the folder for 2, 4 and 8 processes, and for 2 and 4 on two emulated hosts. What
/// does not fit into the budget is left out, and so are runs that fail, but for the first, and rows during
/// which the cores moved. While time is left, runs are repeated whose cores moved during most rows. Begins
/// with what was tried in the fewest starts, as far as is `known`. Errors: kSystemError; those of the first
/// run.
Result<TriedCalls> try_calls(const std::string& perf_tools, double budget_s,
                             const topology::CallTimes& known = {});

/// Rows of clear gains (Samples::table_of_gains) for calls of one host of so many cores. From all that is
/// kept of this machine.
std::string table_of_trials(const std::vector<topology::Measurements>& all, uint32_t cores);

/// What each algorithm took in this start of the ranks, of samples whose cores were at this distance
/// (is_same_distance): the middle, or the mean where ranks share cores. Algorithms that make equal plans on
/// the machine have their samples in common. `machine`: null: one core, and no plans are compared.
topology::CallTimes call_times(const Samples& samples, uint64_t line_ns, Machine* machine);

}  // namespace tutti::tool
