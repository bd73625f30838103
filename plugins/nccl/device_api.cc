// Exported calls of the host half of the device API, see nccl_device.h.
#include "plugins/nccl/nccl_device.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "plugins/nccl/communicator.h"

using namespace tutti;        // NOLINT: this file is the border between NCCL's names and ours
using namespace tutti::nccl;  // NOLINT

namespace {

Status no_device_api() {
  return not_implemented("NCCL's device API is not implemented (use the collectives of the host)");
}

/// Rank and rank count, or 0 of 0 for an invalid communicator, because a team cannot carry an error.
ncclTeam_t world_of(const char* call, ncclComm_t comm) noexcept {
  ncclTeam_t world{0, 0, 1};
  static_cast<void>(guarded_on(call, comm, [&]() -> Status {
    TUTTI_TRY(comm->check_ready());
    world = {comm->rank_count, comm->rank, 1};
    return Status::ok();
  }));
  return world;
}

}  // namespace

TUTTI_NCCL_CALL(ncclResult_t, ncclCommQueryProperties, ncclComm_t comm, ncclCommProperties_t* props) {
  return guarded_on("ncclCommQueryProperties", comm, [&]() -> Status {
    if (props == nullptr) return null_argument("props");
    if (props->size < offsetof(ncclCommProperties, rank) || props->magic != NCCL_API_MAGIC) {
      return {Code::kInvalidArgument,
              "argument props is not an ncclCommProperties_t: start from NCCL_COMM_PROPERTIES_INITIALIZER"};
    }
    TUTTI_TRY(comm->check_ready());
    ncclCommProperties all{};
    all.size = props->size;
    all.magic = props->magic;
    all.version = props->version;
    all.rank = comm->rank;
    all.nRanks = comm->rank_count;
    all.cudaDev = comm->device;
    all.nvmlDev = -1;
    all.ginType = NCCL_GIN_TYPE_NONE;
    all.nLsaTeams = comm->rank_count;
    all.railedGinType = NCCL_GIN_TYPE_NONE;
    std::memcpy(props, &all, std::min(props->size, sizeof(all)));
    return Status::ok();
  });
}

// No rank can load from or store to another rank's device memory. So each rank is alone in its load-store
// (LSA) team. The rail team has one rank of each LSA team, so it is the whole world.
TUTTI_NCCL_CALL(ncclTeam_t, ncclTeamWorld, ncclComm_t comm) {
  return world_of("ncclTeamWorld", comm);
}

TUTTI_NCCL_CALL(ncclTeam_t, ncclTeamLsa, ncclComm_t) {
  return {1, 0, 1};
}

TUTTI_NCCL_CALL(ncclTeam_t, ncclTeamRail, ncclComm_t comm) {
  return world_of("ncclTeamRail", comm);
}

// Ranks that reach each other by CUDA fabric transfers (CFT): each rank is alone here too. In the modes for
// hierarchies, the team has one rank of each inner team.
TUTTI_NCCL_CALL(ncclTeam_t, ncclTeamCft, ncclComm_t comm, ncclCftTeamMode_t mode) {
  return mode == NCCL_CFT_TEAM_FLAT ? ncclTeam_t{1, 0, 1} : world_of("ncclTeamCft", comm);
}

TUTTI_NCCL_CALL(ncclTeam_t, ncclTeamCftMultimem, ncclComm_t) {
  return {1, 0, 1};
}

TUTTI_NCCL_CALL(int, ncclTeamRankToWorld, ncclComm_t comm, ncclTeam_t team, int rank) {
  return world_of("ncclTeamRankToWorld", comm).rank + (rank - team.rank) * team.stride;
}

TUTTI_NCCL_CALL(int, ncclTeamRankToLsa, ncclComm_t, ncclTeam_t team, int rank) {
  return (rank - team.rank) * team.stride;
}

TUTTI_NCCL_CALL(int, ncclLLA2ACalcSlots, int maxElts, int maxEltSize) {
  // A slot holds 8 bytes.
  return maxElts * ((maxEltSize + 7) / 8);
}

#define TUTTI_NCCL_DEVICE_CALL(name, ...)            \
  TUTTI_NCCL_CALL(ncclResult_t, name, __VA_ARGS__) { \
    return guarded(#name, no_device_api);            \
  }
TUTTI_NCCL_DEVICE_CALL(ncclDevCommCreate, ncclComm_t, const ncclDevCommRequirements_t*, ncclDevComm_t*)
TUTTI_NCCL_DEVICE_CALL(ncclDevCommDestroy, ncclComm_t, const ncclDevComm_t*)
TUTTI_NCCL_DEVICE_CALL(ncclGetLsaMultimemDevicePointer, ncclWindow_t, size_t, void**)
TUTTI_NCCL_DEVICE_CALL(ncclGetMultimemDevicePointer, ncclWindow_t, size_t, ncclMultimemHandle_t, void**)
TUTTI_NCCL_DEVICE_CALL(ncclGetLsaDevicePointer, ncclWindow_t, size_t, int, void**)
TUTTI_NCCL_DEVICE_CALL(ncclGetPeerDevicePointer, ncclWindow_t, size_t, int, void**)
TUTTI_NCCL_DEVICE_CALL(ncclGetMultimemDeviceLeInfo, ncclWindow_t, size_t, ncclCftLeId*, size_t*)
TUTTI_NCCL_DEVICE_CALL(ncclGetCftDeviceLeInfo, ncclWindow_t, size_t, int, ncclTeam_t, ncclCftLeId*, size_t*)
TUTTI_NCCL_DEVICE_CALL(ncclGetPeerDeviceLeInfo, ncclWindow_t, size_t, int, ncclCftLeId*, size_t*)
TUTTI_NCCL_DEVICE_CALL(ncclLsaBarrierCreateRequirement, ncclTeam_t, int, ncclLsaBarrierHandle_t*,
                       ncclDevResourceRequirements_t*)
TUTTI_NCCL_DEVICE_CALL(ncclGinBarrierCreateRequirement, ncclComm_t, ncclTeam_t, int, ncclGinBarrierHandle_t*,
                       ncclDevResourceRequirements_t*)
TUTTI_NCCL_DEVICE_CALL(ncclLLA2ACreateRequirement, int, int, ncclLLA2AHandle_t*,
                       ncclDevResourceRequirements_t*)
TUTTI_NCCL_DEVICE_CALL(ncclGinOutboxCreateRequirement, int, int, ncclGinOutboxHandle_t*,
                       ncclDevResourceRequirements_t*)
TUTTI_NCCL_DEVICE_CALL(ncclGinInboxA2ACreateRequirement, ncclTeam_t, int, int, ncclGinInboxA2AHandle_t*,
                       ncclDevResourceRequirements_t*)
#undef TUTTI_NCCL_DEVICE_CALL
