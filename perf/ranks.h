// A thread's run: the communicators and buffers of its ranks, then every case.
#pragma once

#include "core/result.h"
#include "perf/measure.h"
#include "perf/reporter.h"
#include "perf/runner.h"
#include "perf/seating.h"
#include "perf/watchdog.h"

namespace tutti::perf {

struct ThreadTask {
  const Options& options;
  const CollectiveTest& test;
  const Seating& seating;
  const TrafficMatrix* traffic;  ///< null: none
  tutti_unique_id_t id;
  int thread;                    ///< of this process
  int first_rank;                ///< of options.ranks_per_thread()
  int rank_count;                ///< of all threads of all processes
  Reporter* reporter;            ///< first thread of process 0 only
  Watchdog* watchdog;            ///< first thread of a process only
  const ProcessContext* joined;  ///< first thread of process 0 only: its id file may go once all have joined
};

/// Runs to the end. On failure aborts the communicators, so that the other threads end too.
Result<Summary> run_ranks(const ThreadTask& task);

}  // namespace tutti::perf
