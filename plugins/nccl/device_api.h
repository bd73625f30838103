// The host half of NCCL's device API (2.28 to 2.30), so that programs find the names when they load.
//
// Kernels compiled against NVIDIA's headers read structures without a stable layout, which this library
// cannot serve. Calls return ncclInvalidUsage, and ncclCommQueryProperties reports no device API. Only team
// calls work: teams are arithmetic on ranks.
#pragma once

#include "plugins/nccl/nccl.h"

extern "C" {

struct ncclTeam {
  int nRanks;
  int rank;
  int stride;
};
typedef struct ncclTeam ncclTeam_t;

typedef enum {
  NCCL_GIN_TYPE_NONE = 0,
  NCCL_GIN_TYPE_PROXY = 2,
  NCCL_GIN_TYPE_GDAKI = 3,
  NCCL_GIN_TYPE_GPI = 4
} ncclGinType_t;

/// May grow at its end, like ncclConfig_t.
struct ncclCommProperties {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;
  int nRanks;
  int cudaDev;
  int nvmlDev;
  bool deviceApiSupport;
  bool multimemSupport;
  ncclGinType_t ginType;
  int nLsaTeams;
  bool hostRmaSupport;
  ncclGinType_t railedGinType;
};
typedef struct ncclCommProperties ncclCommProperties_t;

/// Passed by value: one pointer.
struct ncclMultimemHandle {
  void* mcBasePtr;
};
typedef struct ncclMultimemHandle ncclMultimemHandle_t;

typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;
typedef struct ncclLsaBarrierHandle ncclLsaBarrierHandle_t;
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t;
typedef struct ncclLLA2AHandle ncclLLA2AHandle_t;
typedef struct ncclGinOutboxHandle ncclGinOutboxHandle_t;
typedef struct ncclGinInboxA2AHandle ncclGinInboxA2AHandle_t;

NCCL_DECLARE_(ncclResult_t, ncclCommQueryProperties, (ncclComm_t comm, ncclCommProperties_t* props));
NCCL_DECLARE_(ncclTeam_t, ncclTeamWorld, (ncclComm_t comm));
NCCL_DECLARE_(ncclTeam_t, ncclTeamLsa, (ncclComm_t comm));
NCCL_DECLARE_(ncclTeam_t, ncclTeamRail, (ncclComm_t comm));
NCCL_DECLARE_(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank));
NCCL_DECLARE_(int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank));
NCCL_DECLARE_(int, ncclLLA2ACalcSlots, (int maxElts, int maxEltSize));

NCCL_DECLARE_(ncclResult_t, ncclDevCommCreate,
              (ncclComm_t comm, const ncclDevCommRequirements_t* reqs, ncclDevComm_t* outDevComm));
NCCL_DECLARE_(ncclResult_t, ncclDevCommDestroy, (ncclComm_t comm, const ncclDevComm_t* devComm));
NCCL_DECLARE_(ncclResult_t, ncclGetLsaMultimemDevicePointer,
              (ncclWindow_t window, size_t offset, void** outPtr));
NCCL_DECLARE_(ncclResult_t, ncclGetMultimemDevicePointer,
              (ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem, void** outPtr));
NCCL_DECLARE_(ncclResult_t, ncclGetLsaDevicePointer,
              (ncclWindow_t window, size_t offset, int lsaRank, void** outPtr));
NCCL_DECLARE_(ncclResult_t, ncclGetPeerDevicePointer,
              (ncclWindow_t window, size_t offset, int peer, void** outPtr));
NCCL_DECLARE_(ncclResult_t, ncclLsaBarrierCreateRequirement,
              (ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t* outHandle,
               ncclDevResourceRequirements_t* outReq));
NCCL_DECLARE_(ncclResult_t, ncclGinBarrierCreateRequirement,
              (ncclComm_t comm, ncclTeam_t team, int nBarriers, ncclGinBarrierHandle_t* outHandle,
               ncclDevResourceRequirements_t* outReq));
NCCL_DECLARE_(ncclResult_t, ncclLLA2ACreateRequirement,
              (int nBlocks, int nSlots, ncclLLA2AHandle_t* outHandle, ncclDevResourceRequirements_t* outReq));
NCCL_DECLARE_(ncclResult_t, ncclGinOutboxCreateRequirement,
              (int nBlocks, int size_log2, ncclGinOutboxHandle_t* outHandle,
               ncclDevResourceRequirements_t* outReq));
NCCL_DECLARE_(ncclResult_t, ncclGinInboxA2ACreateRequirement,
              (ncclTeam_t peers, int nBlocks, int size_log2, ncclGinInboxA2AHandle_t* outHandle,
               ncclDevResourceRequirements_t* outReq));

}  // extern "C"
