// Slice probes: what a slice of a message costs two cores of this machine, measured with the library's own
// links and kernels. No probe is a collective.
#pragma once

#include <vector>

#include "core/result.h"
#include "topology/measurements.h"

namespace tutti::tool {

/// `common` with slices, in about 1.5 s: one for each distance that the cores were at for long enough, the
/// most common one first; without such a distance, one for all that was measured. Starts processes. Without
/// two cores that this process may use: `common` alone. Without curves if a core is taken away for a second.
/// The process must have no other threads. Errors: kSystemError if no thread can be made.
Result<std::vector<topology::Measurements>> measure_slices(const topology::Graph& graph,
                                                           const topology::Measurements& common);

}  // namespace tutti::tool
