// Socket probes: what a message over TCP costs two cores of this machine that both wait without sleeping, as
// ranks do. The message passes the loopback interface with a header, as frames do.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/result.h"
#include "topology/slice_costs.h"

namespace tutti::tool {

/// Nanoseconds a message.
using SliceSamples = std::map<std::pair<topology::SliceWork, uint32_t>, std::vector<double>>;

/// Fills the curves of sockets in about 0.2 s. Nothing if a core is taken away for a second. Errors:
/// kSystemError if sockets or threads cannot be made.
Result<SliceSamples> measure_sockets(std::array<uint32_t, 2> cores);

}  // namespace tutti::tool
