// Runs a tool's cases on the ranks of this process.
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

/// A type, operator and root that get rows for all sizes.
struct Subject {
  tutti_type_t type;
  TestOp op;
  int root;
};

/// All defined combinations of the requested types, operators and roots, in nccl-tests' order.
std::vector<Subject> list_subjects(const Options& options, const CollectiveTest& test, int rank_count);

/// Makes this process's ranks and runs them; rank 0 reports. Returns the exit status. Errors go to stderr.
int run_process(const Options& options, const CollectiveTest& test, const ProcessContext& context,
                const Seating& seating, Reporter& reporter);

}  // namespace tutti::perf
