// Slice probes: what a slice of a message costs two cores of this machine, measured with the library's own
// links and kernels. No probe is a collective.
#pragma once

#include "core/result.h"
#include "topology/measurements.h"

namespace tutti::tool {

/// Fills in `result.slices` in about 1 s, and starts processes for it. Without two cores that this process
/// may use, or if one of them is taken away for a second, nothing is filled in. The process must have no
/// other threads. Errors: kSystemError if no thread can be made.
Status measure_slices(const topology::Graph& graph, topology::Measurements& result);

}  // namespace tutti::tool
