// How tutti-topo --net tries one pair of rails: each end starts a process of its own, and the two make a
// communicator that can use this pair only. So a pair is tried exactly as jobs use it, with the same errors,
// and a driver that hangs or crashes ends no more than its process.
#pragma once

#include <string>

#include "core/result.h"
#include "tools/tutti_topo/net_report.h"
#include "tutti/tutti.h"

namespace tutti::tool {

struct ProbeOrder {
  int rank = 0;  ///< 0 or 1; over TCP rank 0 connects to rank 1's interface
  NetRail rail;  ///< of this end
  tutti_unique_id_t id{};
};

/// Runs this end's process. Blocks for a minute at most.
NetFigures run_probe(const ProbeOrder& order);

/// The process's work: reads the id from standard input, and writes NetFigures as JSON. Both ends have the
/// same figures; "there" is from rank 0 to rank 1.
int probe_main(int rank);

/// The last error of the calling thread, if `result` is one.
Status check(tutti_result_t result);

}  // namespace tutti::tool
