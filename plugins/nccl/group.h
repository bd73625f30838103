// Groups: what a thread has called between ncclGroupStart and ncclGroupEnd.
//
// Operations are recorded by tutti's own group. What that cannot hold is recorded here: communicators to be
// set up, which all run side by side before the operations, and communicators to be closed, after them.
#pragma once

#include <functional>
#include <vector>

#include "plugins/nccl/communicator.h"

namespace tutti::nccl {

/// One communicator to be: a rank that joins by an id, or is made from `parent`.
struct Bootstrap {
  const char* call = "";
  ncclComm** result = nullptr;  ///< the caller's variable; null: it has the handle, and may be gone, or
                                ///< there is none
  CommConfig config;
  ncclComm* comm = nullptr;  ///< what will be in *result; null: this rank only takes part
  ncclUniqueId id{};
  ncclComm* parent = nullptr;  ///< null: joins by id
  /// From the parent's communicator below; leaves null where this rank only takes part, or nothing is made:
  /// what is collective on the parent goes the same way. Blocks.
  std::function<Status(tutti_comm_t* parent, tutti_comm_t** made)> make = {};
};

/// Inside a group the set-up is recorded; else it runs: to its end where `waits`, which means that the call
/// is blocking, or it is started and the result is kInProgress. *result is set at once where it does not
/// wait, and where a rank joins inside a group.
Status set_up(Bootstrap job, bool waits);

/// NCCL's id, as tutti has it.
tutti_unique_id_t id_below(const ncclUniqueId& id);
/// Makes an id for ranks to join by.
Status make_id(ncclUniqueId* id);
/// An id that is the same for all: the ranks meet at the address of NCCL_COMM_ID, where rank 0 hands out the
/// true one.
ncclUniqueId address_id();

/// Checks what all calls that join by an id share, and sets the communicator up.
Status join_rank(const char* call, ncclComm** comm, int nranks, const ncclUniqueId& id, int rank,
                 const ncclConfig_t* config, int device = current_device());

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

/// Runs a call that a group holds back; its failure spoils the group that it is in.
template <class Body>
ncclResult_t grouped(const char* call, Body&& body) noexcept {
  return guarded(call, [&]() -> Status {
    Status status = body();
    if (has_failed(status)) [[unlikely]]
      spoil(status);
    return status;
  });
}

/// The same on a communicator; that it is dead is a failure too.
template <class Body>
ncclResult_t grouped_on(const char* call, ncclComm* comm, Body&& body) noexcept {
  return grouped(call, [&] { return run_on(call, comm, body); });
}

}  // namespace tutti::nccl
