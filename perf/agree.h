// How ranks exchange measurements: through tutti itself, as all-reduces of float64.
//
// All ranks of a thread take part in one group: a thread has one value, whichever of its ranks carries it.
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

/// Calls `work`, inside a group where `grouped`. What fails inside a group ends it: no call of another rank
/// of this thread is left in it.
template <class Work>
Status together(bool grouped, const char* what, Work&& work) {
  if (!grouped) return work();
  TUTTI_TRY(check(tutti_group_start(), what));
  const Status issued = work();
  const Status ended = check(tutti_group_end(), what);
  return issued ? ended : issued;
}

/// One communicator's agreements. Every function is collective and blocks, with nothing else of the
/// communicator under way; on failure *values are undefined.
class Agreement {
 public:
  /// Of a thread whose ranks are added one by one; all threads have as many. rank_count: of all threads.
  explicit Agreement(int rank_count) : rank_count_(rank_count) {}
  /// `memory`: memory_bytes that host and rank reach. All outlive this.
  void add(const Site& site, tutti_comm_t* comm, char* memory);
  static size_t memory_bytes(int rank_count);

  Status sum(std::span<double> values) const;
  Status max(std::span<double> values) const { return reduce(values, TUTTI_MAX); }
  Status min(std::span<double> values) const { return reduce(values, TUTTI_MIN); }
  /// -a: 0 rank 0's value, 1 the mean, 2 the least, 3 the largest.
  Status average(double* value, int how) const;
  Status barrier() const;
  /// Every rank's identity, by rank.
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
