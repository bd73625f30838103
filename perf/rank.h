// One rank's run: communicator, buffers, then every case.
#pragma once

#include <vector>

#include "core/result.h"
#include "perf/measure.h"
#include "perf/reporter.h"
#include "perf/runner.h"
#include "perf/watchdog.h"

namespace tutti::perf {

/// What a rank is told before it starts.
struct RankTask {
  const Options& options;
  const CollectiveTest& test;
  tutti_unique_id_t id;
  int rank;
  int rank_count;
  Reporter* reporter;   ///< rank 0 only
  Watchdog* watchdog;   ///< first rank of a process only
  const Place* joined;  ///< first rank of process 0 only: whose id file may go once all have joined
};

/// Runs to the end. On failure the communicator is aborted, so that the other ranks end too.
Result<Summary> run_rank(const RankTask& task);

}  // namespace tutti::perf
