/* NCCL's public interface as tutti's libnccl.so.2 serves it: names, values and layouts of NCCL 2.32.3.
 *
 * A program that includes <nccl.h> compiles against this header where CUDA and NCCL are not installed. Where
 * CUDA's headers are found, they are included, as NVIDIA's header does, so that programs get their types too.
 * NVIDIA's own header serves as well, because the binary interface is the same. docs/nccl.md lists each call.
 *
 * If the process uses CUDA, a rank works on the current device, in the order of streams, as with NCCL.
 * Otherwise buffers are host memory, the stream must be the null stream, and
 *  - a blocking communicator (the default) finishes an operation before the call, or the group's end,
 * returns;
 *  - a non-blocking communicator (ncclConfig_t.blocking = 0) returns ncclInProgress: poll
 *    ncclCommGetAsyncError until ncclSuccess, then the operation is complete.
 *
 * Counts are elements, sizes are bytes. Every call returns ncclSuccess or an error; ncclGetLastError returns
 * the error's text, with a remedy. Every name has a twin with a `p` in front, for tools that intercept calls.
 */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/* Define TUTTI_NCCL_NO_CUDA to leave CUDA's headers out. */
#if !defined(TUTTI_NCCL_NO_CUDA) && defined(__has_include)
#if __has_include(<cuda_runtime.h>) && __has_include(<cuda_fp16.h>)
#define TUTTI_NCCL_WITH_CUDA
#endif
#endif
#ifdef TUTTI_NCCL_WITH_CUDA
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#ifdef CUDART_VERSION
#if CUDART_VERSION >= 11000
#include <cuda_bf16.h>
#endif
#ifdef __cplusplus
#if CUDART_VERSION >= 11080
#include <cuda_fp8.h>
#endif
#endif
#endif
#endif

#define NCCL_MAJOR 2
#define NCCL_MINOR 32
#define NCCL_PATCH 3
#define NCCL_SUFFIX ""
#define NCCL_VERSION_CODE 23203
/* Three digits of minor and patch up to 2.8, four from 2.9 on. */
#define NCCL_VERSION(major, minor, patch)                                \
  (((major) <= 2 && (minor) <= 8) ? (major)*1000 + (minor)*100 + (patch) \
                                  : (major)*10000 + (minor)*100 + (patch))

/* C accepts any int for an enum; with this type C++ does too. */
#ifdef __cplusplus
#define TUTTI_NCCL_ANY_INT : unsigned int
#define TUTTI_NCCL_SIGNED_INT : int
extern "C" {
#else
#define TUTTI_NCCL_ANY_INT
#define TUTTI_NCCL_SIGNED_INT
#endif

#ifndef TUTTI_NCCL_WITH_CUDA
/* The same types as in CUDA's headers. Ranks on host memory accept only NULL. */
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
#endif

typedef struct ncclComm* ncclComm_t;
#define NCCL_COMM_NULL NULL
typedef struct ncclWindow_vidmem* ncclWindow_t;

/* Names a future communicator. Carry its bytes from one rank to all others. The id holds a secret: any
 * process that has the id may join. Passed by value. */
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum TUTTI_NCCL_ANY_INT {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,     /* the operating system refused something, or memory ran out */
  ncclInternalError = 3,   /* a bug in tutti */
  ncclInvalidArgument = 4, /* an argument is wrong, or a non-blocking communicator is not ready */
  ncclInvalidUsage = 5,    /* not legal in this state, not implemented, or ranks made different calls */
  ncclRemoteError = 6,     /* a rank has died, aborted, or did not come before the deadline */
  ncclInProgress = 7,      /* a non-blocking communicator's work is not finished */
  ncclTimeout = 8,         /* never returned by tutti: a deadline that passes is ncclRemoteError */
  ncclNumResults = 9
} ncclResult_t;

typedef enum TUTTI_NCCL_ANY_INT {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

typedef enum TUTTI_NCCL_ANY_INT { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum TUTTI_NCCL_ANY_INT {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,    /* sum, then divided by the rank count; integers truncate toward zero */
  ncclNumOps = 5, /* and above: made by ncclRedOpCreatePreMulSum */
  ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

/* When the scalar of a pre-multiplied sum is read: at each collective that uses it, or at its creation. */
typedef enum TUTTI_NCCL_ANY_INT { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

/* ---- configuration ------------------------------------------------------------------------------ */

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT -1.0f
#define NCCL_API_MAGIC 0xcafebeef
#define NCCL_SPLIT_NOCOLOR -1
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01
#define NCCL_REVOKE_DEFAULT 0x00

/* Values of ncclConfig_t.hostCftMode. */
typedef enum TUTTI_NCCL_SIGNED_INT {
  ncclHostCftDefault = NCCL_CONFIG_UNDEF_INT,
  ncclHostCftEnable = 1,
  ncclHostCftDisable = 2,
  ncclHostCftFallback = 3
} ncclHostCftMode_t;

/* Values of ncclConfig_t.nvlsHostMode: bits, or all. */
typedef enum TUTTI_NCCL_SIGNED_INT {
  ncclNvlsHostModeDefault = NCCL_CONFIG_UNDEF_INT,
  ncclNvlsHostModeEnable = 0,
  ncclNvlsHostModeDisableTransport = 1,
  ncclNvlsHostModeDisableSymmetricMultimem = 2,
  ncclNvlsHostModeDisable = INT_MAX
} ncclNvlsHostMode_t;

/* Grows at its end from version to version; `size` tells which fields the caller knows. Start from
 * NCCL_CONFIG_INITIALIZER. blocking and commName are used. The other fields must be in range and have no
 * effect. */
typedef struct ncclConfig_v23100 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking; /* 1 (default) or 0 */
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName; /* appears in messages; copied */
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
  int graphUsageMode;
  int numRmaCtx;
  int maxP2pPeers;
  int graphStreamOrdering;
  int launchOrderImplicit;
  int numRmaSig;
  int rmaEagerInit;
  int hostCftMode;
  int nvlsHostMode;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                                            \
  {                                                                                                        \
    sizeof(ncclConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT,        \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,        \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,        \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,        \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,        \
        NCCL_CONFIG_UNDEF_INT                                                                              \
  }

/* An option of a vendor, in a list that ends with NULL. Ignored, as NCCL does. */
typedef struct ncclConfigExt {
  struct ncclConfigExt* next;
  struct {
    int vendorId;
    int optionId;
  } key;
  union {
    int i;
    const char* s;
    void* raw;
  } val;
} ncclConfigExt_t;

/* For one collective. Start from NCCL_COLLCONFIG_INITIALIZER. Numbers must be in range and have no effect.
 * Refused with ncclInvalidArgument: algSelection, because tutti has other algorithms, unless
 * forceAlgSelection is 0. Refused with ncclInvalidUsage: launchCompletionEvent. */
typedef struct ncclCollConfig_v23200 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  ncclConfigExt_t* ext;
  int minCTAs;
  int maxCTAs;
  int nvlsCTAs;
  int cgaClusterSize;
  const char* algSelection;
  int forceAlgSelection;
  int CTAPolicy;
  uint64_t userProfilerTag;
  cudaEvent_t launchCompletionEvent;
} ncclCollConfig_t;

#define NCCL_COLLCONFIG_INITIALIZER                                                                 \
  {                                                                                                 \
    sizeof(ncclCollConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_PTR,             \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
        NCCL_CONFIG_UNDEF_PTR, 1, NCCL_CONFIG_UNDEF_INT, 0, NCCL_CONFIG_UNDEF_PTR                   \
  }

/* What ncclGroupSimulateEnd fills. */
typedef struct ncclSimInfo_v22200 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime; /* microseconds */
} ncclSimInfo_t;
#define NCCL_SIM_INFO_MAGIC 0x74685283
#define NCCL_SIM_INFO_INITIALIZER \
  { sizeof(ncclSimInfo_t), NCCL_SIM_INFO_MAGIC, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT }

/* Declares a call and its twin. */
#define NCCL_DECLARE_(type, name, arguments)                  \
  __attribute__((visibility("default"))) type name arguments; \
  __attribute__((visibility("default"))) type p##name arguments

/* ---- the library -------------------------------------------------------------------------------- */

/* *version = NCCL_VERSION_CODE. */
NCCL_DECLARE_(ncclResult_t, ncclGetVersion, (int* version));
/* What a code means; never NULL, for any value. */
NCCL_DECLARE_(const char*, ncclGetErrorString, (ncclResult_t result));
/* The text of the last failed call: of this thread or of `comm`, whichever is later; with NULL, or where
 * neither has failed, of the whole process. "" when there was none, never NULL. Valid until the calling
 * thread's next call of this function. */
NCCL_DECLARE_(const char*, ncclGetLastError, (ncclComm_t comm));
/* Does nothing; kept for programs that link to it. */
NCCL_DECLARE_(void, ncclResetDebugInit, (void));

/* ---- communicators ------------------------------------------------------------------------------ */

/* Makes an id. This process listens for the ranks that use the id, so it must live until all have joined. The
 * process may fork the ranks, as long as it has no communicator. */
NCCL_DECLARE_(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id));
/* Joins as `rank` of `nranks`: blocks until all have joined or the set-up deadline has passed. In a group,
 * several ranks join at its end. On failure *comm is NULL. */
NCCL_DECLARE_(ncclResult_t, ncclCommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank));
/* config may be NULL. With blocking = 0 the call returns ncclInProgress. Then *comm may only be polled and
 * aborted until ncclCommGetAsyncError returns another result. */
NCCL_DECLARE_(ncclResult_t, ncclCommInitRankConfig,
              (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t* config));
/* All ranks pass the same 1 to nranks ids in the same order. The first id is used. */
NCCL_DECLARE_(ncclResult_t, ncclCommInitRankScalable,
              (ncclComm_t * comm, int nranks, int rank, int nId, ncclUniqueId* ids, ncclConfig_t* config));
/* All ranks in this process: comms[0..ndev). devlist may be NULL: devices 0 to ndev - 1. Ranks on
 * host memory ignore the devices. */
NCCL_DECLARE_(ncclResult_t, ncclCommInitAll, (ncclComm_t * comms, int ndev, const int* devlist));
/* Collective on `comm`: ranks of one color form a new communicator, ordered by key, then by rank. Without a
 * color *newcomm is NULL. config NULL: the parent's configuration. */
NCCL_DECLARE_(ncclResult_t, ncclCommSplit,
              (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config));
/* Collective on the live ranks of `comm` that are not excluded, even after an error. These ranks form a new
 * communicator in the order of their ranks. NCCL_SHRINK_ABORT first ends operations in progress; without the
 * flag the call waits for them. `comm` remains the caller's. */
NCCL_DECLARE_(ncclResult_t, ncclCommShrink,
              (ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
               ncclConfig_t* config, int shrinkFlags));
/* An id for ncclCommGrow. */
NCCL_DECLARE_(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId* id));
/* Makes a communicator of nRanks ranks. The ranks of `comm` keep their numbers and pass rank -1. One of them
 * passes the id; the others pass the id or NULL. New ranks pass comm NULL, the id and their rank. */
NCCL_DECLARE_(ncclResult_t, ncclCommGrow,
              (ncclComm_t comm, int nRanks, const ncclUniqueId* id, int rank, ncclComm_t* newcomm,
               ncclConfig_t* config));
/* Ends operations in progress on all ranks. Afterwards only shrink, destroy and abort are legal. */
NCCL_DECLARE_(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int revokeFlags));
/* Waits until everything issued on this rank is complete; only destroy and abort are legal afterwards. */
NCCL_DECLARE_(ncclResult_t, ncclCommFinalize, (ncclComm_t comm));
/* Finalizes if needed, then frees. The handle is dead even after an error. Not collective. */
NCCL_DECLARE_(ncclResult_t, ncclCommDestroy, (ncclComm_t comm));
/* Wakes every wait on the communicator, on all ranks, with ncclRemoteError, then frees this rank's part.
 * Another thread may be in a call on the communicator. */
NCCL_DECLARE_(ncclResult_t, ncclCommAbort, (ncclComm_t comm));
/* *asyncError = ncclSuccess, ncclInProgress, or the communicator's error. Does not block. */
NCCL_DECLARE_(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* asyncError));
NCCL_DECLARE_(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int* count));
/* *device = -1: host memory. */
NCCL_DECLARE_(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int* device));
NCCL_DECLARE_(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int* rank));

#define NCCL_SUSPEND_MEM 0x01
/* Not implemented: ncclInvalidUsage. */
NCCL_DECLARE_(ncclResult_t, ncclCommSuspend, (ncclComm_t comm, int flags));
NCCL_DECLARE_(ncclResult_t, ncclCommResume, (ncclComm_t comm));
typedef enum TUTTI_NCCL_ANY_INT {
  ncclStatGpuMemSuspend = 0,
  ncclStatGpuMemSuspended = 1,
  ncclStatGpuMemPersist = 2,
  ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;
/* *value = 0: GPU memory is not counted. */
NCCL_DECLARE_(ncclResult_t, ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value));

/* ---- memory ------------------------------------------------------------------------------------- */

/* Memory of the current device. Without a device: host memory, zeroed and 4096-byte aligned, that ranks of
 * this host read without a copy. Local. */
NCCL_DECLARE_(ncclResult_t, ncclMemAlloc, (void** ptr, size_t size));
NCCL_DECLARE_(ncclResult_t, ncclMemFree, (void* ptr));
/* A hint that calls will use the buffer often. Local. */
NCCL_DECLARE_(ncclResult_t, ncclCommRegister,
              (const ncclComm_t comm, void* buff, size_t size, void** handle));
NCCL_DECLARE_(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void* handle));

#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_STRICT_ORDERING 0x02
#define NCCL_WIN_GIN_ONLY 0x04
#define NCCL_WIN_CFT_COUNTED 0x08
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096
/* Succeeds with *win = NULL, NCCL's sign that there is no window: programs go on with ordinary buffers. */
NCCL_DECLARE_(ncclResult_t, ncclCommWindowRegister,
              (ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags));
/* NULL is accepted. */
NCCL_DECLARE_(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win));
NCCL_DECLARE_(ncclResult_t, ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void** outUserPtr));

/* Makes a sum in which this rank's operand is first multiplied by *scalar. For `comm` and `datatype` only. */
NCCL_DECLARE_(ncclResult_t, ncclRedOpCreatePreMulSum,
              (ncclRedOp_t * op, void* scalar, ncclDataType_t datatype, ncclScalarResidence_t residence,
               ncclComm_t comm));
NCCL_DECLARE_(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm));

/* ---- collectives, point to point ----------------------------------------------------------------
 * P is the rank count. In place: a rank's block lies where its result goes. */

/* recvbuff[i] = op over ranks of sendbuff[i]. In place: sendbuff == recvbuff. */
NCCL_DECLARE_(ncclResult_t, ncclAllReduce,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
               ncclComm_t comm, cudaStream_t stream));
/* Like ncclAllReduce, with the result at root only. Other ranks' recvbuff is ignored. */
NCCL_DECLARE_(ncclResult_t, ncclReduce,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
               int root, ncclComm_t comm, cudaStream_t stream));
/* root's sendbuff to every recvbuff. Other ranks' sendbuff is ignored. */
NCCL_DECLARE_(ncclResult_t, ncclBroadcast,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
               ncclComm_t comm, cudaStream_t stream));
/* ncclBroadcast in place. */
NCCL_DECLARE_(ncclResult_t, ncclBcast,
              (void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
               cudaStream_t stream));
/* recvbuff[r * sendcount ...) = sendbuff of rank r. */
NCCL_DECLARE_(ncclResult_t, ncclAllGather,
              (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
               ncclComm_t comm, cudaStream_t stream));
/* recvbuff = op over ranks of sendbuff[rank * recvcount ...). */
NCCL_DECLARE_(ncclResult_t, ncclReduceScatter,
              (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream));
/* recvbuff[r * count ...) = rank r's sendbuff[rank * count ...). */
NCCL_DECLARE_(ncclResult_t, ncclAlltoAll,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
               cudaStream_t stream));
/* root's recvbuff[r * count ...) = sendbuff of rank r. */
NCCL_DECLARE_(ncclResult_t, ncclGather,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
               ncclComm_t comm, cudaStream_t stream));
/* recvbuff = root's sendbuff[rank * count ...). */
NCCL_DECLARE_(ncclResult_t, ncclScatter,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
               ncclComm_t comm, cudaStream_t stream));
/* The same collectives with a configuration; NULL: none. */
NCCL_DECLARE_(ncclResult_t, ncclAllReduceConfig,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config));
NCCL_DECLARE_(ncclResult_t, ncclBroadcastConfig,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config));
NCCL_DECLARE_(ncclResult_t, ncclReduceConfig,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
               int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config));
NCCL_DECLARE_(ncclResult_t, ncclAllGatherConfig,
              (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config));
NCCL_DECLARE_(ncclResult_t, ncclReduceScatterConfig,
              (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config));
NCCL_DECLARE_(ncclResult_t, ncclAlltoAllConfig,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
               cudaStream_t stream, const ncclCollConfig_t* config));
NCCL_DECLARE_(ncclResult_t, ncclGatherConfig,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config));
NCCL_DECLARE_(ncclResult_t, ncclScatterConfig,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config));
/* A send matches the peer's receive of the same count and type, in call order. A rank may send to itself only
 * in a group with the matching receive. */
NCCL_DECLARE_(ncclResult_t, ncclSend,
              (const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
               cudaStream_t stream));
NCCL_DECLARE_(ncclResult_t, ncclRecv,
              (void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
               cudaStream_t stream));

/* One-sided operations on windows. Not implemented: ncclInvalidUsage. */
typedef struct {
  int opCnt;
  int peer;
  int sigIdx;
  int ctx;
} ncclWaitSignalDesc_t;
NCCL_DECLARE_(ncclResult_t, ncclPutSignal,
              (const void* localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
               size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
               cudaStream_t stream));
NCCL_DECLARE_(ncclResult_t, ncclSignal,
              (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream));
NCCL_DECLARE_(ncclResult_t, ncclWaitSignal,
              (int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream));

/* ---- groups ------------------------------------------------------------------------------------- */

/* Calls of this thread between start and end are issued together at the outermost end. Communicators are set
 * up side by side, sends and receives progress together, and one thread may drive several ranks. Groups nest.
 * If a call inside fails, both the call and the end return the error, and nothing of the group is issued. */
NCCL_DECLARE_(ncclResult_t, ncclGroupStart, (void));
NCCL_DECLARE_(ncclResult_t, ncclGroupEnd, (void));
/* Ends the group without issuing anything. *simInfo gets the predicted time of its collectives. */
NCCL_DECLARE_(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * simInfo));

/* ---- encryption --------------------------------------------------------------------------------- */

typedef enum TUTTI_NCCL_ANY_INT {
  NCCL_ENCRYPTION_MODE_NONE = 0,
  NCCL_ENCRYPTION_MODE_PSK = 1
} ncclEncryptionMode_t;
typedef struct ncclEncryptionConfig_v23200 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int mode;
  const char* psk;
} ncclEncryptionConfig_t;
#define NCCL_ENCRYPTION_CONFIG_INITIALIZER                                                        \
  {                                                                                               \
    sizeof(ncclEncryptionConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_ENCRYPTION_MODE_NONE, \
        NCCL_CONFIG_UNDEF_PTR                                                                     \
  }
/* NCCL_ENCRYPTION_MODE_NONE only; another mode is ncclInvalidUsage. */
NCCL_DECLARE_(ncclResult_t, ncclSetEncryption, (const ncclEncryptionConfig_t* config));

/* ---- parameters ---------------------------------------------------------------------------------
 * The NCCL_* variables that this library uses, as this process read them. The library owns the texts: a
 * string is valid until the calling thread's next call of the same function. */

typedef struct ncclParamHandle* ncclParamHandle_t;
/* Errors: ncclInvalidArgument: no such parameter. */
NCCL_DECLARE_(ncclResult_t, ncclParamBind, (ncclParamHandle_t * out, const char* key));
/* Errors: ncclInvalidArgument: the value is not a number, or does not fit the type. */
NCCL_DECLARE_(ncclResult_t, ncclParamGetI8, (ncclParamHandle_t h, int8_t* out));
NCCL_DECLARE_(ncclResult_t, ncclParamGetI16, (ncclParamHandle_t h, int16_t* out));
NCCL_DECLARE_(ncclResult_t, ncclParamGetI32, (ncclParamHandle_t h, int32_t* out));
NCCL_DECLARE_(ncclResult_t, ncclParamGetI64, (ncclParamHandle_t h, int64_t* out));
NCCL_DECLARE_(ncclResult_t, ncclParamGetU8, (ncclParamHandle_t h, uint8_t* out));
NCCL_DECLARE_(ncclResult_t, ncclParamGetU16, (ncclParamHandle_t h, uint16_t* out));
NCCL_DECLARE_(ncclResult_t, ncclParamGetU32, (ncclParamHandle_t h, uint32_t* out));
NCCL_DECLARE_(ncclResult_t, ncclParamGetU64, (ncclParamHandle_t h, uint64_t* out));
NCCL_DECLARE_(ncclResult_t, ncclParamGetStr, (ncclParamHandle_t h, const char** out));
/* The text's bytes without a final 0; *len = how many. Errors: ncclInvalidArgument: more than maxLen. */
NCCL_DECLARE_(ncclResult_t, ncclParamGet, (ncclParamHandle_t h, void* out, int maxLen, int* len));
NCCL_DECLARE_(ncclResult_t, ncclParamGetParameter, (const char* key, const char** value, int* valueLen));
NCCL_DECLARE_(ncclResult_t, ncclParamGetAllParameterKeys, (const char*** table, int* tableLen));
/* Writes all parameters to the log of NCCL_DEBUG, or to standard output if there is no log. */
NCCL_DECLARE_(void, ncclParamDumpAll, (void));

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* NCCL_H_ */
