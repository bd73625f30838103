// Exported calls that make communicators from others, with fewer, more or the same ranks.
#include <optional>
#include <vector>

#include "plugins/nccl/group.h"

using namespace tutti;        // NOLINT: this file is the border between NCCL's names and ours
using namespace tutti::nccl;  // NOLINT

namespace {

/// Makes *newcomm from `comm`. Without `takes_part` this rank only helps.
Status derive(const char* call, ncclComm_t comm, ncclComm_t* newcomm, const ncclConfig_t* config,
              bool takes_part, std::function<Status(tutti_comm_t*, tutti_comm_t**)> make) {
  auto options = read_comm_config(config, comm->config);
  TUTTI_TRY(options.status());
  SetUp job{.call = call, .result = newcomm, .config = *options, .parent = comm, .make = std::move(make)};
  if (takes_part) {
    auto handle = acquire_comm(*options, comm->device);
    TUTTI_TRY(handle.status());
    job.comm = *handle;
  }
  return set_up(std::move(job), comm->config.blocking);
}

/// Runs a call that makes a communicator from `comm`. A failure spoils the open group.
template <class Body>
ncclResult_t deriving(const char* call, ncclComm_t comm, ncclComm_t* newcomm, Body&& body) noexcept {
  if (newcomm != nullptr) *newcomm = nullptr;
  return grouped_on(call, comm,
                    [&]() -> Status { return newcomm == nullptr ? null_argument("newcomm") : body(); });
}

Status split(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, const ncclConfig_t* config) {
  TUTTI_TRY(comm->check_ready());
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
    return {Code::kInvalidArgument,
            format("argument color is %d: it must be NCCL_SPLIT_NOCOLOR or at least 0", color)};
  }
  return derive("ncclCommSplit", comm, newcomm, config, color != NCCL_SPLIT_NOCOLOR,
                [color, key](tutti_comm_t* parent, tutti_comm_t** made) {
                  return status_of(tutti_comm_split(parent, color, key, made, nullptr));
                });
}

Status shrink(ncclComm_t comm, const int* exclude, int exclude_count, ncclComm_t* newcomm,
              const ncclConfig_t* config, int flags) {
  TUTTI_TRY(comm->check_made());
  if (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT) {
    return {Code::kInvalidArgument,
            format("argument shrinkFlags is %d: it must be NCCL_SHRINK_DEFAULT or NCCL_SHRINK_ABORT", flags)};
  }
  if (exclude_count < 0) {
    return {Code::kInvalidArgument, format("argument excludeRanksCount is %d", exclude_count)};
  }
  if (exclude_count > 0 && exclude == nullptr) return null_argument("excludeRanksList");
  const std::vector<int> excluded(exclude, exclude + exclude_count);
  const int below = flags == NCCL_SHRINK_ABORT ? TUTTI_SHRINK_ABORT : 0;
  return derive("ncclCommShrink", comm, newcomm, config, true,
                [excluded, below](tutti_comm_t* parent, tutti_comm_t** made) {
                  return status_of(tutti_comm_shrink(
                      parent, excluded.data(), static_cast<int>(excluded.size()), below, made, nullptr));
                });
}

Status grow(ncclComm_t comm, int rank_count, const ncclUniqueId* id, int rank, ncclComm_t* newcomm,
            const ncclConfig_t* config) {
  TUTTI_TRY(comm->check_ready());
  std::optional<tutti_unique_id_t> below;
  if (id != nullptr) below = id_below(*id);
  return derive(
      "ncclCommGrow", comm, newcomm, config, true,
      [rank_count, below, rank](tutti_comm_t* parent, tutti_comm_t** made) {
        return status_of(tutti_comm_grow(parent, rank_count, below ? &*below : nullptr, rank, made, nullptr));
      });
}

ncclResult_t cannot_rest(const char* call) noexcept {
  return guarded(call, [] { return not_implemented("suspending a communicator is not implemented"); });
}

}  // namespace

TUTTI_NCCL_CALL(ncclResult_t, ncclCommSplit, ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                ncclConfig_t* config) {
  return deriving("ncclCommSplit", comm, newcomm, [&] { return split(comm, color, key, newcomm, config); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommShrink, ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  return deriving("ncclCommShrink", comm, newcomm, [&] {
    return shrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommGetUniqueId, ncclComm_t comm, ncclUniqueId* id) {
  return guarded_on("ncclCommGetUniqueId", comm, [&]() -> Status {
    TUTTI_TRY(comm->check_ready());
    return make_id(id);
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommGrow, ncclComm_t comm, int nRanks, const ncclUniqueId* id, int rank,
                ncclComm_t* newcomm, ncclConfig_t* config) {
  if (comm != nullptr) {
    return deriving("ncclCommGrow", comm, newcomm,
                    [&] { return grow(comm, nRanks, id, rank, newcomm, config); });
  }
  return grouped("ncclCommGrow", [&]() -> Status {
    if (id == nullptr) return null_argument("id");
    return join_rank("ncclCommGrow", newcomm, nRanks, *id, rank, config);
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommRevoke, ncclComm_t comm, int revokeFlags) {
  return guarded_on("ncclCommRevoke", comm, [&]() -> Status {
    if (revokeFlags != NCCL_REVOKE_DEFAULT) {
      return {Code::kInvalidArgument,
              format("argument revokeFlags is %d: it must be NCCL_REVOKE_DEFAULT", revokeFlags)};
    }
    return revoke_comm(comm);
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommSuspend, ncclComm_t, int) {
  return cannot_rest("ncclCommSuspend");
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommResume, ncclComm_t) {
  return cannot_rest("ncclCommResume");
}
