// Ranks of one NCCL communicator as threads, as processes, or mixed: tests/support/cluster.h for programs
// that know NCCL's interface only.
#pragma once

#include <functional>
#include <string>

#include "plugins/nccl/nccl.h"
#include "tests/support/cluster.h"

namespace tutti::test {

/// A body's view of one rank, as Rank is.
class NcclRank {
 public:
  explicit NcclRank(Rank& rank) : rank_(rank) {}

  Rank& base() { return rank_; }
  int rank() const { return rank_.rank(); }
  int count() const { return rank_.count(); }
  /// Null after the body has destroyed or aborted it and set it so.
  ncclComm_t comm = nullptr;

  /// The id of this rank's next communicator, made by rank 0; all ranks call it.
  ncclUniqueId next_id();

  bool expect(ncclResult_t result, ncclResult_t wanted, const std::string& what);
  bool expect_ok(ncclResult_t result, const std::string& what) { return expect(result, ncclSuccess, what); }
  bool expect_true(bool condition, const std::string& what) { return rank_.expect_true(condition, what); }
  /// The text of the last failure must contain all of these.
  void expect_text(const std::vector<std::string>& parts, const std::string& what);
  /// Polls the communicator until it is no longer in progress. What it became.
  ncclResult_t finish(ncclComm_t polled);
  /// One all_reduce of its `ranks` ranks on a communicator of any kind, finished and checked.
  void use(ncclComm_t used, int ranks);

 private:
  Rank& rank_;
};

using NcclBody = std::function<void(NcclRank&)>;

/// Runs `body` on every rank of `layout`, with a blocking communicator of all unless `create` is false. Empty
/// when all went well, else what failed, a line each.
std::string run_nccl(ClusterOptions options, const NcclBody& body);
std::string run_nccl(const std::vector<int>& layout, const NcclBody& body);

/// Ranks without a communicator.
ClusterOptions uncreated(const std::vector<int>& layout);

/// A configuration that asks for a blocking communicator, or for one that is not.
ncclConfig_t config_of(bool blocking);
inline ncclConfig_t non_blocking_config() {
  return config_of(false);
}

}  // namespace tutti::test
