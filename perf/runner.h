// Runs a tool's cases in the ranks of this process.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "perf/collective.h"
#include "perf/launch.h"
#include "perf/options.h"
#include "perf/reporter.h"
#include "perf/seating.h"

namespace tutti::perf {

/// One combination that gets rows for all sizes.
struct Subject {
  tutti_type_t type;
  TestOp op;
  int root;
};

/// All combinations of types, operators and roots asked for that are defined, in nccl-tests' order.
std::vector<Subject> list_subjects(const Options& options, const CollectiveTest& test, int rank_count);

/// Makes this process' ranks, runs, reports from rank 0; returns the exit status. Errors are on stderr.
int run_process(const Options& options, const CollectiveTest& test, const Place& place,
                const Seating& seating, Reporter& reporter);

}  // namespace tutti::perf
