// Trials: short measurements of whole calls on this machine, all algorithms in turns. They correct predicted
// times (corrections.h) and make a first choice table; tutti-tune measures longer.
#pragma once

#include <string>

#include "core/result.h"
#include "tools/samples.h"
#include "topology/call_times.h"
#include "topology/graph.h"

namespace tutti::tool {

/// Runs the perf tools of the folder for 2, 4 and 8 processes, and for 2 and 4 on two emulated hosts. What
/// does not fit into the budget is left out, and so are runs that fail, but for the first, and runs during
/// which the host moved the cores of `machine`. As time is left, runs are repeated until the cores are at the
/// distance of `line_ns`. Errors: those of the first run; kSystemError without a folder for reports.
Result<Samples> try_calls(const std::string& perf_tools, double budget_s, const topology::Graph& machine,
                          uint64_t line_ns);

/// Rows of the choice table (Samples::table) for calls of one host, as long as those that were tried:
/// emulated hosts are unlike other hosts.
std::string table_of_one_host(const Samples& samples);

/// The middle of each algorithm's samples, of those whose cores were at this distance (is_same_distance).
topology::CallTimes call_times(const Samples& samples, uint64_t line_ns);

}  // namespace tutti::tool
