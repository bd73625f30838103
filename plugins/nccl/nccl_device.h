/* The device API of NCCL 2.28 to 2.32, so that programs which can use it compile and link unchanged.
 *
 * tutti does not serve this API: ncclCommQueryProperties reports deviceApiSupport false, and
 * ncclDevCommCreate returns ncclInvalidUsage with the reason. Only team calls work, because teams are
 * arithmetic on ranks. Programs ask first, and go on with the collectives of the host. Structures that host
 * code fills have NCCL's layout. ncclDevComm and windows have the names of NCCL's fields, not its layout. */
#ifndef NCCL_DEVICE_H_
#define NCCL_DEVICE_H_

#include <stdbool.h>

#include "nccl.h"

#ifdef __CUDACC__
#define NCCL_DEVICE_INLINE __device__ __forceinline__
#define NCCL_HOST_DEVICE_INLINE __host__ __device__ __forceinline__
#else
#define NCCL_DEVICE_INLINE
#define NCCL_HOST_DEVICE_INLINE static inline
#endif
#ifdef __cplusplus
#define NCCL_EXTERN_C extern "C"
#define TUTTI_NCCL_DEFAULT(value) = value
extern "C" {
#else
#define NCCL_EXTERN_C
#define TUTTI_NCCL_DEFAULT(value)
#endif
#define NCCL_IR_EXTERN_C

/* ---- types -------------------------------------------------------------------------------------- */

#define NCCL_NET_DEVICE_INVALID_VERSION 0x0
#define NCCL_NET_MTU_SIZE 4096
#define NCCL_NET_DEVICE_UNPACK_VERSION 0x7
#define NCCL_GIN_MAX_CONNECTIONS 4
#define NCCL_GIN_MAX_ACTIVE_BACKENDS 4
#define NCCL_GIN_BACKEND_MASK_ALL 0u /* no backend */
#define NCCL_LE_ID_INVALID ((ncclCftLeId_t)-1)
#define NCCL_CFT_BARRIER_ALIGN 16
#define NCCL_CFT_BARRIER_GRAN NCCL_CFT_BARRIER_ALIGN

typedef uint32_t ncclDevResourceHandle;
typedef ncclDevResourceHandle ncclDevResourceHandle_t;
typedef uint32_t ncclGinSignal_t;
typedef uint32_t ncclGinCounter_t;
typedef uint32_t ncclCftLeId;
typedef ncclCftLeId ncclCftLeId_t;
typedef void* ncclGinWindow_t;
typedef struct {
  uint64_t opaque[2];
} ncclGinRequest_t;

typedef enum TUTTI_NCCL_ANY_INT {
  NCCL_NET_DEVICE_HOST = 0,
  NCCL_NET_DEVICE_UNPACK = 1,
  NCCL_NET_DEVICE_GIN_PROXY = 2,
  NCCL_NET_DEVICE_GIN_GDAKI = 3,
  NCCL_NET_DEVICE_GIN_GPI = 4,
  NCCL_NET_DEVICE_GIN_EFA_GDA = 5
} ncclNetDeviceType;

typedef struct {
  ncclNetDeviceType netDeviceType;
  int netDeviceVersion;
  void* handle;
  size_t size;
  int needsProxyProgress;
} ncclNetDeviceHandle_v7_t;
typedef ncclNetDeviceHandle_v7_t ncclNetDeviceHandle_v8_t;
typedef ncclNetDeviceHandle_v7_t ncclNetDeviceHandle_v9_t;
typedef ncclNetDeviceHandle_v7_t ncclNetDeviceHandle_v10_t;
typedef ncclNetDeviceHandle_v7_t ncclNetDeviceHandle_v11_t;
typedef ncclNetDeviceHandle_v7_t ncclNetDeviceHandle_v12_t;
typedef ncclNetDeviceHandle_v7_t ncclNetDeviceHandle_t;

typedef enum TUTTI_NCCL_ANY_INT {
  NCCL_GIN_CONNECTION_NONE = 0,
  NCCL_GIN_CONNECTION_FULL = 1,
  NCCL_GIN_CONNECTION_RAIL = 2,
  NCCL_GIN_CONNECTION_CUSTOM_STRIDE = 3
} ncclGinConnectionType_t;

typedef enum TUTTI_NCCL_ANY_INT {
  NCCL_GIN_TYPE_NONE = 0,
  NCCL_GIN_TYPE_PROXY = 2,
  NCCL_GIN_TYPE_GDAKI = 3,
  NCCL_GIN_TYPE_GPI = 4,
  NCCL_GIN_TYPE_EFA_GDA = 5,
  NCCL_GIN_MAX_TYPES = 6
} ncclGinType_t;

typedef enum TUTTI_NCCL_ANY_INT { ncclGinSignalInc = 0, ncclGinSignalAdd = 1 } ncclGinSignalOp_t;

/* Names of the two enumerations below have no suffix in NCCL either. */
enum ncclGinOptFlags {
  ncclGinOptFlagsDefault = 0,
  ncclGinOptFlagsMaySkipCreditCheck = 1,
  ncclGinOptFlagsAggregateRequests = 2
};

typedef enum ncclGinSegmentType TUTTI_NCCL_ANY_INT {
  ncclGinSegmentTypeDevice = 0,
  ncclGinSegmentTypeMixed = 1,
  ncclGinSegmentTypeHostNuma = 2
} ncclGinSegmentType_t;

typedef enum TUTTI_NCCL_ANY_INT {
  NCCL_CFT_TEAM_FLAT = 0,
  NCCL_CFT_TEAM_HIER_MULTIMEM = 1,
  NCCL_CFT_TEAM_HIER_LSA = 2
} ncclCftTeamMode_t;

typedef enum TUTTI_NCCL_ANY_INT { NCCL_CFT_NONE = 0, NCCL_CFT = 1, NCCL_CFT_MULTIMEM = 2 } ncclCftCap_t;

/* Ranks of a communicator at equal distances. */
struct ncclTeam {
  int nRanks;
  int rank;
  int stride;
};
typedef struct ncclTeam ncclTeam_t;

/* Passed by value: one pointer. */
struct ncclMultimemHandle {
  void* mcBasePtr;
};
typedef struct ncclMultimemHandle ncclMultimemHandle_t;

struct ncclLsaBarrierHandle {
  ncclDevResourceHandle_t bufHandle;
  int nBarriers;
};
typedef struct ncclLsaBarrierHandle ncclLsaBarrierHandle_t;

struct ncclGinBarrierHandle {
  ncclGinSignal_t signal0;
  ncclDevResourceHandle_t unused;
};
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t;

struct ncclCftBarrierHandle {
  ncclDevResourceHandle_t bufHandle;
  int nBarriers;
};
typedef struct ncclCftBarrierHandle ncclCftBarrierHandle_t;

struct ncclLLA2AHandle {
  ncclDevResourceHandle_t bufHandle;
  uint32_t nSlots;
};
typedef struct ncclLLA2AHandle ncclLLA2AHandle_t;

struct ncclGinOutboxHandle {
  ncclDevResourceHandle_t bufHandle;
  uint32_t size_log2;
};
typedef struct ncclGinOutboxHandle ncclGinOutboxHandle_t;

struct ncclGinInboxA2AHandle {
  ncclDevResourceHandle_t bufHandle;
  ncclGinSignal_t signals;
  uint32_t size_log2;
  uint32_t nPeers_rcp32;
};
typedef struct ncclGinInboxA2AHandle ncclGinInboxA2AHandle_t;

typedef struct ncclWindow_vidmem ncclWindow_vidmem_t;
typedef struct ncclDevCommWindowTable* ncclDevCommWindowTable_t;

/* Never filled. */
struct ncclDevComm {
  unsigned int magic;
  unsigned int version;
  int rank, nRanks;
  int lsaRank, lsaSize;
  ncclDevCommWindowTable_t windowTable;
  ncclWindow_t resourceWindow;
  ncclMultimemHandle_t lsaMultimem;
  ncclLsaBarrierHandle_t lsaBarrier;
  ncclLsaBarrierHandle_t hybridLsaBarrier;
  ncclGinBarrierHandle_t railGinBarrier;
  ncclGinBarrierHandle_t hybridRailGinBarrier;
  ncclGinBarrierHandle_t hybridDenseGinBarrier;
  ncclGinBarrierHandle_t worldGinBarrier;
  uint8_t ginConnectionCount;
  uint32_t ginContextCount;
  int ginSignalCount;
  int ginCounterCount;
  int ginConnectionStride;
  int ginContextStride;
  uint32_t* abortFlag;
  int cftRank, cftSize;
  int cftMultimemRank, cftMultimemSize;
  ncclCftLeId_t ucLeId;
  ncclCftLeId_t mcLeId;
  ncclCftBarrierHandle_t cftBarrier;
  ncclCftBarrierHandle_t cftMultimemBarrier;
};
typedef struct ncclDevComm ncclDevComm_t;

/* ---- what host code asks for -------------------------------------------------------------------- */

typedef struct ncclDevResourceRequirements {
  struct ncclDevResourceRequirements* next;
  size_t bufferSize, bufferAlign;
  ncclDevResourceHandle_t* outBufferHandle;
  int ginSignalCount;
  int ginCounterCount;
  ncclGinSignal_t* outGinSignalStart;
  ncclGinCounter_t* outGinCounterStart;
} ncclDevResourceRequirements_t;

typedef struct ncclTeamRequirements {
  struct ncclTeamRequirements* next;
  ncclTeam_t team;
  bool multimem;
  ncclMultimemHandle_t* outMultimemHandle;
} ncclTeamRequirements_t;

typedef struct ncclDevCommRequirements {
  size_t size;
  unsigned int magic;
  unsigned int version;
  ncclDevResourceRequirements_t* resourceRequirementsList;
  ncclTeamRequirements_t* teamRequirementsList;
  bool lsaMultimem;
  int barrierCount;
  int lsaBarrierCount;
  int railGinBarrierCount;
  int lsaLLA2ABlockCount, lsaLLA2ASlotCount;
  bool ginForceEnable;
  int ginContextCount;
  int ginSignalCount;
  int ginCounterCount;
  ncclGinConnectionType_t ginConnectionType;
  bool ginExclusiveContexts;
  int ginQueueDepth;
  int ginTrafficClass;
  int worldGinBarrierCount;
  bool ginStrongSignalsRequired;
  bool ginVaSignalsRequired;
  int ginCustomStride;
  ncclGinType_t ginType;
  bool useRuntimeVersion;
  int cftCaps;
  int cftBarrierCount;
} ncclDevCommRequirements_t;

#define NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER                                                              \
  {                                                                                                         \
    sizeof(ncclDevCommRequirements_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NULL, NULL, false, 0, 0, 0, 0, 0, \
        false, 4, 0, 0, NCCL_GIN_CONNECTION_NONE, false, 0, NCCL_CONFIG_UNDEF_INT, 0, true, true, 1,        \
        NCCL_GIN_TYPE_NONE, false, NCCL_CFT_NONE, 0                                                         \
  }

/* May grow at its end, like ncclConfig_t. */
typedef struct ncclCommProperties {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;
  int nRanks;
  int cudaDev; /* -1: host memory */
  int nvmlDev; /* -1: unknown */
  bool deviceApiSupport;
  bool multimemSupport;
  ncclGinType_t ginType;
  int nLsaTeams;
  bool hostRmaSupport;
  ncclGinType_t railedGinType;
  uint64_t commHash;
  int ginMinStride;
  ncclGinConnectionType_t ginConnectionType;
  bool ginSupport[64];
  size_t devCommRuntimeVersionSize;
  bool cftSupport;
  bool cftMulticastSupport;
  bool cftCountedSupport;
} ncclCommProperties_t;

#define NCCL_COMM_PROPERTIES_INITIALIZER                                                                     \
  {                                                                                                          \
    sizeof(ncclCommProperties_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, 0, 0, 0, 0, false, false,               \
        NCCL_GIN_TYPE_NONE, 0, false, NCCL_GIN_TYPE_NONE, 0, 0, NCCL_GIN_CONNECTION_NONE, {false}, 0, false, \
        false, false                                                                                         \
  }

/* ---- calls of the host -------------------------------------------------------------------------- */

/* Rank, count and device; false and NONE for everything that tutti does not serve. */
NCCL_DECLARE_(ncclResult_t, ncclCommQueryProperties, (ncclComm_t comm, ncclCommProperties_t* props));

/* Teams. A communicator that is not valid gives a team of 0 ranks. */
NCCL_DECLARE_(ncclTeam_t, ncclTeamWorld, (ncclComm_t comm));
NCCL_DECLARE_(ncclTeam_t, ncclTeamLsa, (ncclComm_t comm));
NCCL_DECLARE_(ncclTeam_t, ncclTeamRail, (ncclComm_t comm));
NCCL_DECLARE_(ncclTeam_t, ncclTeamCft,
              (ncclComm_t comm, ncclCftTeamMode_t mode TUTTI_NCCL_DEFAULT(NCCL_CFT_TEAM_FLAT)));
NCCL_DECLARE_(ncclTeam_t, ncclTeamCftMultimem, (ncclComm_t comm));
NCCL_DECLARE_(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank));
NCCL_DECLARE_(int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank));
NCCL_DECLARE_(int, ncclLLA2ACalcSlots, (int maxElts, int maxEltSize));

/* All others: ncclInvalidUsage. */
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
NCCL_DECLARE_(ncclResult_t, ncclGetMultimemDeviceLeInfo,
              (ncclWindow_t window, size_t offset, ncclCftLeId* leId, size_t* leOffset));
NCCL_DECLARE_(ncclResult_t, ncclGetCftDeviceLeInfo,
              (ncclWindow_t window, size_t offset, int peerCft, ncclTeam_t cftTeam, ncclCftLeId* leId,
               size_t* leOffset));
NCCL_DECLARE_(ncclResult_t, ncclGetPeerDeviceLeInfo,
              (ncclWindow_t window, size_t offset, int peerWorld, ncclCftLeId* leId, size_t* leOffset));
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

/* ---- arithmetic on teams, for host and device --------------------------------------------------- */

/* The position in team a of rank `rank` of team b. */
NCCL_HOST_DEVICE_INLINE int ncclTeamRankToTeam(ncclTeam_t a, ncclTeam_t b, int rank) {
  return a.rank + (rank - b.rank) * b.stride / a.stride;
}
NCCL_HOST_DEVICE_INLINE bool ncclTeamRankIsMember(ncclTeam_t a, ncclTeam_t b, int rank) {
  const int position = ncclTeamRankToTeam(a, b, rank);
  return (rank - b.rank) * b.stride % a.stride == 0 && position >= 0 && position < a.nRanks;
}
/* The neighbours in blocks of innerSize ranks, and the ranks of equal position in their blocks. */
NCCL_HOST_DEVICE_INLINE ncclTeam_t ncclTeamInnerFactor(ncclTeam_t parent, int innerSize) {
  ncclTeam_t team;
  team.nRanks = innerSize;
  team.rank = parent.rank % innerSize;
  team.stride = parent.stride;
  return team;
}
NCCL_HOST_DEVICE_INLINE ncclTeam_t ncclTeamOuterFactor(ncclTeam_t parent, int innerSize) {
  ncclTeam_t team;
  team.nRanks = parent.nRanks / innerSize;
  team.rank = parent.rank / innerSize;
  team.stride = parent.stride * innerSize;
  return team;
}
/* The parent's rank number `index` among those that are not in the subset. */
NCCL_HOST_DEVICE_INLINE int ncclTeamRankInDifference(ncclTeam_t parent, ncclTeam_t subset, int index) {
  const int stride = subset.stride / parent.stride;
  const int step = stride < 0 ? -stride : stride;
  const int lowest = parent.rank - subset.rank * stride + (stride < 0 ? (subset.nRanks - 1) * stride : 0);
  int passed = subset.nRanks; /* members of the subset below the answer */
  if (index < lowest) return index;
  if (step > 1 && (index - lowest) / (step - 1) + 1 < passed) passed = (index - lowest) / (step - 1) + 1;
  return index + passed;
}
/* Handles count units of 128 bytes. */
NCCL_HOST_DEVICE_INLINE size_t ncclGetResourceBufferOffset(ncclDevResourceHandle_t handle) {
  const size_t units = handle;
  return 128 * units;
}

#ifdef __cplusplus
} /* extern "C" */
#endif

#ifdef __CUDACC__
#include "nccl_device_kernels.h"
#endif

#endif /* NCCL_DEVICE_H_ */
