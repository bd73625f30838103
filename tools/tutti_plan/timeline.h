// A simulated collective as a timeline: for chrome://tracing or Perfetto, and as a drawing.
#pragma once

#include <string>
#include <vector>

#include "topology/simulate.h"

namespace tutti::tool {

/// Which spans are on the longest chain of spans that wait for each other.
std::vector<bool> longest_chain(const std::vector<topology::Span>& spans);

/// Chrome's trace event format: a process for each rank, a thread for each lane. Times are in microseconds.
std::string chrome_trace(const std::string& title, const topology::Simulation& simulation);

/// SVG: a row for each lane of the first ranks; the longest chain is outlined.
std::string draw_timeline(const std::string& title, const topology::Simulation& simulation);

}  // namespace tutti::tool
