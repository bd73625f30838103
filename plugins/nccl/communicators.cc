// Exported calls that make, end and describe communicators.
#include <algorithm>

#include "plugins/nccl/group.h"

using namespace tutti;        // NOLINT: this file is the border between NCCL's names and ours
using namespace tutti::nccl;  // NOLINT

namespace {

/// Calls that only read the communicator.
template <class Value, class Read>
ncclResult_t describe(const char* call, ncclComm_t comm, const char* name, Value* result,
                      Read&& read) noexcept {
  return guarded_on(call, comm, [&]() -> Status {
    if (result == nullptr) return null_argument(name);
    TUTTI_TRY(comm->check_ready());
    *result = read();
    return Status::ok();
  });
}

}  // namespace

TUTTI_NCCL_CALL(ncclResult_t, ncclGetUniqueId, ncclUniqueId* id) {
  return guarded("ncclGetUniqueId", [&]() -> Status {
    if (!settings().comm_id.empty()) {
      if (id == nullptr) return null_argument("id");
      *id = address_id();
      return Status::ok();
    }
    return make_id(id);
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommInitRank, ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
  return grouped("ncclCommInitRank",
                 [&] { return join_rank("ncclCommInitRank", comm, nranks, id, rank, nullptr); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommInitRankConfig, ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                ncclConfig_t* config) {
  return grouped("ncclCommInitRankConfig",
                 [&] { return join_rank("ncclCommInitRankConfig", comm, nranks, id, rank, config); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommInitRankScalable, ncclComm_t* comm, int nranks, int rank, int nId,
                ncclUniqueId* ids, ncclConfig_t* config) {
  return grouped("ncclCommInitRankScalable", [&]() -> Status {
    if (ids == nullptr) return null_argument("ids");
    if (nId < 1 || nId > nranks) {
      return {Code::kInvalidArgument,
              format("argument nId is %d: it must be 1 to nranks, which is %d", nId, nranks)};
    }
    return join_rank("ncclCommInitRankScalable", comm, nranks, ids[0], rank, config);
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommInitAll, ncclComm_t* comms, int ndev, const int* devlist) {
  return grouped("ncclCommInitAll", [&]() -> Status {
    if (comms == nullptr) return null_argument("comms");
    if (ndev < 1) return {Code::kInvalidArgument, format("argument ndev is %d: it must be at least 1", ndev)};
    const int devices = device_count();
    for (int i = 0; devlist != nullptr && i < ndev; ++i) {
      if (devlist[i] < 0 || (devices > 0 && devlist[i] >= devices)) {
        return {Code::kInvalidArgument,
                format("argument devlist[%d] is %d: it must be a device", i, devlist[i])};
      }
    }
    if (devlist == nullptr && devices > 0 && ndev > devices) {
      return {Code::kInvalidArgument,
              format("argument ndev is %d, but there are %d devices: name the device of each rank in devlist",
                     ndev, devices)};
    }
    ncclUniqueId id;
    TUTTI_TRY(make_id(&id));
    TUTTI_TRY(group_start());
    for (int rank = 0; rank < ndev; ++rank) {
      const int named = devlist != nullptr ? devlist[rank] : rank;
      const int device = devices > 0 ? named : kHostMemory;
      const Status joined = join_rank("ncclCommInitAll", &comms[rank], ndev, id, rank, nullptr, device);
      if (!joined.is_ok()) spoil(joined);
    }
    Status status = group_end();
    // The handles are dead.
    if (has_failed(status)) std::fill_n(comms, ndev, nullptr);
    return status;
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommFinalize, ncclComm_t comm) {
  return guarded("ncclCommFinalize", [&] { return close(comm, finalize_comm); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommDestroy, ncclComm_t comm) {
  return guarded("ncclCommDestroy", [&] { return close(comm, destroy_comm); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommAbort, ncclComm_t comm) {
  return guarded("ncclCommAbort", [&] { return abort_comm(comm); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t* asyncError) {
  return guarded("ncclCommGetAsyncError", [&]() -> Status {
    if (asyncError == nullptr) return null_argument("asyncError");
    const Use use(comm);
    TUTTI_TRY(use.status());
    const Status state = comm->async_error();
    *asyncError = result_of(state.code());
    if (state.is_ok() || state.code() == Code::kInProgress) return Status::ok();
    const std::scoped_lock lock(comm->mutex);
    if (state.text() != comm->reported) {
      // Logged once: a polling program would fill the log.
      static_cast<void>(report("ncclCommGetAsyncError", state));
      comm->last_error = last_error_of_thread();
      comm->reported = state.text();
    }
    return Status::ok();
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommCount, ncclComm_t comm, int* count) {
  return describe("ncclCommCount", comm, "count", count, [&] { return comm->rank_count; });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommUserRank, ncclComm_t comm, int* rank) {
  return describe("ncclCommUserRank", comm, "rank", rank, [&] { return comm->rank; });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommCuDevice, ncclComm_t comm, int* device) {
  return describe("ncclCommCuDevice", comm, "device", device, [&] { return comm->device; });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommMemStats, ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value) {
  if (stat < ncclStatGpuMemSuspend || stat > ncclStatGpuMemTotal) {
    return report("ncclCommMemStats", {Code::kInvalidArgument,
                                       format("argument stat is %d: it is not an ncclCommMemStat_t", stat)});
  }
  return describe("ncclCommMemStats", comm, "value", value, [] { return uint64_t{0}; });
}
