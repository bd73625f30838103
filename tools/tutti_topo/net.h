// tutti-topo --net: tries each pair of rails between the hosts of a job, with one try at a time on each host.
#pragma once

#include "core/result.h"
#include "tools/tutti_topo/net_report.h"

namespace tutti::tool {

/// This machine's rails, as jobs with this environment would use them. Errors: kInvalidArgument
/// (environment), kSystemError.
Result<NetHost> find_rails();

/// Runs on every rank of a launcher's job, with `rank` of them given back. All ranks return the same report.
/// Errors: those of the communicator that joins the ranks.
Result<NetReport> try_network(int& rank);

}  // namespace tutti::tool
