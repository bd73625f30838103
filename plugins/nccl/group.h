// Groups: what a thread has called between ncclGroupStart and ncclGroupEnd.
//
// Operations are recorded by tutti's own group. What that cannot hold is recorded here: communicators to be
// set up, which all run side by side before the operations, and communicators to be closed, after them.
#pragma once

#include <vector>

#include "plugins/nccl/communicator.h"

namespace tutti::nccl {

/// One communicator to be: a rank that joins, or a split of `parent`.
struct SetUp {
  const char* call = "";
  ncclComm** result = nullptr;  ///< the caller's variable
  CommConfig config;
  ncclComm* comm = nullptr;  ///< what will be in *result; null: this rank only takes part in the split
  ncclUniqueId id{};
  ncclComm* parent = nullptr;  ///< null: joins by id
  int color = 0;
  int key = 0;
};

/// Inside a group the set-up is recorded; else it runs: to its end where `waits`, which means that the call
/// is blocking, or it is started and the result is kInProgress. *result is set at once where it does not
/// wait.
Status set_up(SetUp job, bool waits);

/// ncclCommFinalize and ncclCommDestroy: at once, or at the end of the group.
Status close(ncclComm* comm, Status (*what)(ncclComm*));

/// An operation was issued on a communicator: what the call returns.
Status issued(ncclComm* comm);

/// A call inside the group failed: the end returns it and issues nothing.
void spoil(const Status& why) noexcept;

Status group_start();
Status group_end();
/// As group_end, but nothing is issued: the outermost one gives the predicted time of the operations instead.
Result<double> group_simulate_end();

}  // namespace tutti::nccl
