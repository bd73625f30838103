// The graph of a whole job: under a launcher each host's lowest rank tells its graph, and rank 0 joins them.
#pragma once

#include "bootstrap/launcher.h"
#include "core/config.h"
#include "core/result.h"
#include "topology/assembly.h"

namespace tutti::tool {

/// For every rank of the job; blocks until all have come, TUTTI_SETUP_TIMEOUT_MS at most. `own`: this
/// machine, whose host is named "host", so that equal hosts are equal. The result has the graph and a note
/// for each host. Errors: of tutti_share_unique_id and Bootstrap; kInvalidArgument: graphs that do not fit
/// together.
Result<topology::Imported> join_job(const LaunchContext& context, const Config& config,
                                    const topology::Imported& own);

}  // namespace tutti::tool
