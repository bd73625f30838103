// How ranks exchange measurements: through tutti itself, as all-reduces of float64.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "perf/report.h"
#include "tutti/tutti.h"

namespace tutti::perf {

/// The Status of a call of the C API: its code and the library's text, after `what`.
Status check(tutti_result_t result, const char* what);

/// One communicator's agreements. Every function is collective and blocks; on failure *values are undefined.
class Agreement {
 public:
  Agreement(tutti_comm_t* comm, int rank_count) : comm_(comm), rank_count_(rank_count) {}

  Status sum(std::span<double> values) const { return reduce(values, TUTTI_SUM); }
  Status max(std::span<double> values) const { return reduce(values, TUTTI_MAX); }
  Status min(std::span<double> values) const { return reduce(values, TUTTI_MIN); }
  /// -a: 0 rank 0's value, 1 the mean, 2 the least, 3 the largest.
  Status average(double* value, int how) const;
  Status barrier() const;
  /// Every rank's identity, by rank.
  Result<std::vector<RankInfo>> rank_infos() const;

 private:
  Status reduce(std::span<double> values, tutti_op_t op) const;

  tutti_comm_t* comm_;
  int rank_count_;
};

/// The processor's model name, or "CPU".
std::string processor_name();

}  // namespace tutti::perf
