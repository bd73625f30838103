// A program that names what host code of nccl-tests names: of the eleven programs of 2.19.6 (July 2026), of
// later versions' work by signals (-H), and of the benchmarks of the network from kernels. It takes their
// steps, from the id to the last free, on two ranks of this process, and prints "correct".
#include <nccl.h>
#include <nccl_device.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

// nccl-tests declares it again, for headers before 2.13.
extern "C" char const* ncclGetLastError(ncclComm_t comm);

namespace {

constexpr int kRanks = 2;
constexpr size_t kCount = 64;
constexpr int kOpsMax = static_cast<int>(ncclNumOps) + (NCCL_VERSION_CODE >= NCCL_VERSION(2, 11, 0) ? 1 : 0);
static_assert(NCCL_MAJOR == 2 && NCCL_MINOR >= 30, "the newest branch of each #if");

bool good = true;

void check(bool condition, const char* what) {
  if (condition) return;
  std::printf("wrong: %s (%s)\n", what, ncclGetLastError(nullptr));
  good = false;
}

void must(ncclResult_t result, const char* what) {
  if (result != ncclSuccess) std::printf("%s: ", ncclGetErrorString(result));
  check(result == ncclSuccess, what);
}

/// As a switch: every name is a value of its own.
size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclChar:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2: return 1;
    case ncclHalf:
    case ncclBfloat16: return 2;
    case ncclInt:
    case ncclUint32:
    case ncclFloat: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclDouble: return 8;
    default: return 0;
  }
}

void names_and_numbers() {
  const ncclDataType_t types[ncclNumTypes] = {ncclInt8,   ncclUint8,    ncclInt32,      ncclUint32,
                                              ncclInt64,  ncclUint64,   ncclHalf,       ncclFloat,
                                              ncclDouble, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2};
  const ncclRedOp_t operators[] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};
  size_t bytes = 0;
  for (const ncclDataType_t type : types) bytes += size_of(type);
  check(bytes == 4 + 2 * 2 + 3 * 4 + 3 * 8, "types");
  check(sizeof operators / sizeof operators[0] + 1 == kOpsMax, "operators");
  int version = 0;
  must(ncclGetVersion(&version), "ncclGetVersion");
  check(version >= NCCL_VERSION(2, 30, 7) && version == NCCL_VERSION_CODE, "the version");
}

ncclConfig_t configuration() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  config.splitShare = 0;
  config.trafficClass = NCCL_CONFIG_UNDEF_INT;
  config.commName = "perftest";
  config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  config.nvlinkCentricSched = 1;
  config.graphUsageMode = 0;
  config.maxP2pPeers = kRanks;
  config.numRmaCtx = 1;
  return config;
}

void start(ncclComm_t (&comms)[kRanks]) {
  ncclUniqueId id;
  must(ncclGetUniqueId(&id), "ncclGetUniqueId");
  ncclConfig_t config = configuration();
  ncclComm_t whole[kRanks];
  must(ncclGroupStart(), "ncclGroupStart");
  for (int rank = 0; rank < kRanks; ++rank) {
    must(ncclCommInitRankScalable(&whole[rank], kRanks, rank, 1, &id, &config), "ncclCommInitRankScalable");
  }
  must(ncclGroupEnd(), "ncclGroupEnd");
  must(ncclGroupStart(), "ncclGroupStart");
  for (int rank = 0; rank < kRanks; ++rank) {
    must(ncclCommSplit(whole[rank], 0, rank, &comms[rank], &config), "ncclCommSplit");
  }
  must(ncclGroupEnd(), "ncclGroupEnd");
  for (ncclComm_t comm : whole) must(ncclCommFinalize(comm), "ncclCommFinalize");
  for (ncclComm_t comm : whole) must(ncclCommDestroy(comm), "ncclCommDestroy");
}

struct Rank {
  ncclComm_t comm = nullptr;
  void* send = nullptr;
  void* recv = nullptr;
  void* handles[2] = {};
  ncclWindow_t windows[2] = {};
};

void allocate(Rank (&ranks)[kRanks]) {
  constexpr size_t kBytes = kRanks * kCount * sizeof(float);
  must(ncclGroupStart(), "ncclGroupStart");
  for (Rank& rank : ranks) {
    must(ncclMemAlloc(&rank.send, kBytes), "ncclMemAlloc");
    must(ncclMemAlloc(&rank.recv, kBytes), "ncclMemAlloc");
    for (size_t i = 0; i < kRanks * kCount; ++i) static_cast<float*>(rank.send)[i] = 1;
    must(ncclCommRegister(rank.comm, rank.send, kBytes, &rank.handles[0]), "ncclCommRegister");
    must(ncclCommRegister(rank.comm, rank.recv, kBytes, &rank.handles[1]), "ncclCommRegister");
    must(ncclCommWindowRegister(rank.comm, rank.send, kBytes, &rank.windows[0], NCCL_WIN_COLL_SYMMETRIC),
         "ncclCommWindowRegister");
    must(ncclCommWindowRegister(rank.comm, rank.recv, kBytes, &rank.windows[1], NCCL_WIN_GIN_ONLY),
         "ncclCommWindowRegister");
  }
  must(ncclGroupEnd(), "ncclGroupEnd");
}

/// One call of every collective, on all ranks.
template <class Call>
void on_all(Rank (&ranks)[kRanks], const char* what, Call call) {
  must(ncclGroupStart(), "ncclGroupStart");
  for (Rank& rank : ranks) must(call(rank, rank.comm), what);
  must(ncclGroupEnd(), what);
}

void collectives(Rank (&ranks)[kRanks]) {
  cudaStream_t stream = nullptr;
#define ON_ALL(name, ...) \
  on_all(ranks, #name, [&](Rank& rank, ncclComm_t comm) { return name(rank.send, rank.recv, __VA_ARGS__); })
  ON_ALL(ncclAllReduce, kCount, ncclFloat, ncclSum, comm, stream);
  check(static_cast<float*>(ranks[0].recv)[kCount - 1] == kRanks, "a sum");
  ON_ALL(ncclReduce, kCount, ncclFloat, ncclMax, 0, comm, stream);
  ON_ALL(ncclReduceScatter, kCount, ncclFloat, ncclAvg, comm, stream);
  ON_ALL(ncclAllGather, kCount, ncclFloat, comm, stream);
  ON_ALL(ncclBroadcast, kCount, ncclFloat, 0, comm, stream);
  ON_ALL(ncclAlltoAll, kCount, ncclFloat, comm, stream);
  ON_ALL(ncclGather, kCount, ncclFloat, 0, comm, stream);
  ON_ALL(ncclScatter, kCount, ncclFloat, 0, comm, stream);
#undef ON_ALL
  on_all(ranks, "ncclSend and ncclRecv", [&](Rank& rank, ncclComm_t comm) {
    int self = 0;
    must(ncclCommUserRank(comm, &self), "ncclCommUserRank");
    must(ncclSend(rank.send, kCount, ncclFloat, 1 - self, comm, stream), "ncclSend");
    return ncclRecv(rank.recv, kCount, ncclFloat, 1 - self, comm, stream);
  });
  float scalar = 3;
  ncclRedOp_t scaled[kRanks];
  for (int i = 0; i < kRanks; ++i) {
    must(ncclRedOpCreatePreMulSum(&scaled[i], &scalar, ncclFloat, ncclScalarHostImmediate, ranks[i].comm),
         "ncclRedOpCreatePreMulSum");
  }
  on_all(ranks, "a scaled sum", [&](Rank& rank, ncclComm_t comm) {
    return ncclAllReduce(rank.send, rank.recv, kCount, ncclFloat, scaled[&rank - ranks], comm, stream);
  });
  check(static_cast<float*>(ranks[1].recv)[0] == 3 * kRanks, "a scaled sum");
  for (int i = 0; i < kRanks; ++i) must(ncclRedOpDestroy(scaled[i], ranks[i].comm), "ncclRedOpDestroy");
  must(ncclGroupStart(), "ncclGroupStart");
  for (Rank& rank : ranks) {
    must(ncclAllReduce(rank.send, rank.recv, kCount, ncclFloat, ncclSum, rank.comm, stream),
         "a simulated call");
  }
  ncclSimInfo_t predicted = NCCL_SIM_INFO_INITIALIZER;
  must(ncclGroupSimulateEnd(&predicted), "ncclGroupSimulateEnd");
  check(predicted.estimatedTime > 0, "a predicted time");
}

/// -H and -D: the calls are there, and refuse with a sentence; who asks first is told that there is nothing.
void refused(Rank& rank) {
  const auto refuses = [&](ncclResult_t result, const char* what) {
    check(result == ncclInvalidUsage && std::strlen(ncclGetLastError(rank.comm)) > 20, what);
  };
  ncclWaitSignalDesc_t wanted = {};
  wanted.opCnt = 1;
  wanted.peer = 1;
  refuses(ncclPutSignal(rank.send, kCount, ncclFloat, 1, rank.windows[1], 0, 0, 0, 0, rank.comm, nullptr),
          "ncclPutSignal");
  refuses(ncclSignal(1, 0, 0, 0, rank.comm, nullptr), "ncclSignal");
  refuses(ncclWaitSignal(1, &wanted, rank.comm, nullptr), "ncclWaitSignal");

  ncclCommProperties properties = NCCL_COMM_PROPERTIES_INITIALIZER;
  must(ncclCommQueryProperties(rank.comm, &properties), "ncclCommQueryProperties");
  check(!properties.deviceApiSupport && !properties.multimemSupport && !properties.hostRmaSupport &&
            properties.ginType == NCCL_GIN_TYPE_NONE && properties.railedGinType == NCCL_GIN_TYPE_NONE &&
            properties.nRanks == kRanks,
        "properties");

  ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  needs.lsaMultimem = true;
  needs.barrierCount = needs.lsaBarrierCount = needs.railGinBarrierCount = needs.worldGinBarrierCount = 16;
  needs.ginContextCount = 4;
  needs.ginQueueDepth = 128;
  needs.ginConnectionType = NCCL_GIN_CONNECTION_FULL;
  needs.ginSignalCount = needs.ginCounterCount = 1;
  needs.ginStrongSignalsRequired = true;
  needs.ginVaSignalsRequired = false;
  ncclDevResourceHandle buffer = 0;
  ncclDevResourceRequirements memory = {};
  memory.bufferSize = 4096;
  memory.outBufferHandle = &buffer;
  memory.next = needs.resourceRequirementsList;
  needs.resourceRequirementsList = &memory;
  ncclDevComm device{};
  refuses(ncclDevCommCreate(rank.comm, &needs, &device), "ncclDevCommCreate");
  refuses(ncclDevCommDestroy(rank.comm, &device), "ncclDevCommDestroy");
}

void finish(Rank (&ranks)[kRanks]) {
  for (Rank& rank : ranks) {
    ncclResult_t state = ncclInProgress;
    must(ncclCommGetAsyncError(rank.comm, &state), "ncclCommGetAsyncError");
    must(state, "the communicator");
    for (void* handle : rank.handles) must(ncclCommDeregister(rank.comm, handle), "ncclCommDeregister");
    for (ncclWindow_t window : rank.windows) {
      must(ncclCommWindowDeregister(rank.comm, window), "ncclCommWindowDeregister");
    }
  }
  must(ncclCommDestroy(ranks[0].comm), "ncclCommDestroy");
  must(ncclCommAbort(ranks[1].comm), "ncclCommAbort");
  for (Rank& rank : ranks) {
    must(ncclMemFree(rank.send), "ncclMemFree");
    must(ncclMemFree(rank.recv), "ncclMemFree");
  }
}

}  // namespace

int main() {
  names_and_numbers();
  ncclComm_t comms[kRanks];
  start(comms);
  Rank ranks[kRanks];
  for (int i = 0; i < kRanks; ++i) ranks[i].comm = comms[i];
  allocate(ranks);
  collectives(ranks);
  refused(ranks[0]);
  finish(ranks);
  if (good) std::printf("correct\n");
  return good ? 0 : 1;
}
