// Groups: the calls of a thread between ncclGroupStart and ncclGroupEnd.
//
// tutti's own group records the operations. This file records the rest. Set-ups of communicators run side by
// side before the operations. Communicators to be closed are closed after the operations.
#pragma once

#include <functional>
#include <vector>

#include "plugins/nccl/communicator.h"

namespace tutti::nccl {

/// One set-up: a rank joins by an id, or a communicator is made from `parent`.
struct SetUp {
  const char* call = "";
  ncclComm** result = nullptr;  ///< the caller's variable; null: already written, or there is none
  CommConfig config;
  ncclComm* comm = nullptr;  ///< the handle for *result; null: this rank only takes part
  ncclUniqueId id{};
  ncclComm* parent = nullptr;  ///< null: joins by id
  /// Makes the communicator from the parent's tutti communicator. Leaves `made` null if this rank only takes
  /// part, or if the call makes nothing: other collective calls on the parent also run through here. Blocks.
  std::function<Status(tutti_comm_t* parent, tutti_comm_t** made)> make = {};
};

/// Inside a group, records the set-up. Otherwise runs it: to the end if `waits` (the call is blocking), else
/// starts it and returns kInProgress. *result is set at once if the call does not wait, and if a rank joins
/// inside a group.
Status set_up(SetUp job, bool waits);

/// Converts NCCL's id to tutti's.
tutti_unique_id_t id_below(const ncclUniqueId& id);
/// Makes an id for ranks to join by.
Status make_id(ncclUniqueId* id);
/// An id that is equal on all ranks. The ranks get rank 0's real id at the address of NCCL_COMM_ID.
ncclUniqueId address_id();

/// Checks the arguments that all calls with an id share, and sets the communicator up.
Status join_rank(const char* call, ncclComm** comm, int nranks, const ncclUniqueId& id, int rank,
                 const ncclConfig_t* config, int device = current_device());

/// ncclCommFinalize and ncclCommDestroy: run at once, or at the end of the group.
Status close(ncclComm* comm, Status (*what)(ncclComm*));

/// The result of a call that has issued an operation on a communicator.
Status issued(ncclComm* comm);

/// Records the failure of a call inside the group: the end returns it and issues nothing.
void spoil(const Status& why) noexcept;

Status group_start();
Status group_end();
/// Like group_end, but issues nothing. The outermost end returns the predicted time of the operations.
Result<double> group_simulate_end();

/// Runs a call that a group may hold back. A failure spoils the open group.
template <class Body>
ncclResult_t grouped(const char* call, Body&& body) noexcept {
  return guarded(call, [&]() -> Status {
    Status status = body();
    if (has_failed(status)) [[unlikely]]
      spoil(status);
    return status;
  });
}

/// The same, on a communicator. A dead communicator is a failure too.
template <class Body>
ncclResult_t grouped_on(const char* call, ncclComm* comm, Body&& body) noexcept {
  return grouped(call, [&] { return run_on(call, comm, body); });
}

}  // namespace tutti::nccl
