// Ranks exchange measurements through tutti itself, by all-reduces of float64.
//
// All ranks of a thread take part in one group. A thread has one value, whichever rank carries it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "perf/check.h"
#include "perf/report.h"
#include "perf/site.h"
#include "tutti/tutti.h"

namespace tutti::perf {

/// Calls `work`, inside a group if `grouped`. A failure ends the group, so no call of another rank of this
/// thread is left in it.
template <class Work>
Status together(bool grouped, const char* what, Work&& work) {
  if (!grouped) return work();
  TUTTI_TRY(check(tutti_group_start(), what));
  const Status issued = work();
  const Status ended = check(tutti_group_end(), what);
  return issued ? ended : issued;
}

/// The agreements of one communicator. Every function is collective and blocks. Nothing else of the
/// communicator may be in progress. After a failure *values are undefined.
class Agreement {
 public:
  /// Starts without ranks; `add` adds the thread's ranks one by one. All threads have equally many.
  /// rank_count: the ranks of all threads.
  explicit Agreement(int rank_count) : rank_count_(rank_count) {}
  /// `memory`: memory_bytes that both host and rank reach. All arguments outlive this.
  void add(const Site& site, tutti_comm_t* comm, char* memory);
  static size_t memory_bytes(int rank_count);

  Status sum(std::span<double> values) const;
  Status max(std::span<double> values) const { return reduce(values, TUTTI_MAX); }
  Status min(std::span<double> values) const { return reduce(values, TUTTI_MIN); }
  /// -a: 0 is rank 0's value, 1 the mean, 2 the minimum, 3 the maximum.
  Status average(double* value, int how) const;
  Status barrier() const;
  Result<std::vector<RankInfo>> rank_infos() const;

 private:
  struct BootstrapNode {
    const Site* site;
    tutti_comm_t* comm;
    char* memory;
  };

  template <class Issue>
  Status call(const char* what, Issue&& issue) const;
  Status reduce(std::span<double> values, tutti_op_t op) const;

  int rank_count_;
  std::vector<BootstrapNode> members_;
};

/// The processor's model name, or "CPU".
std::string processor_name();

}  // namespace tutti::perf
