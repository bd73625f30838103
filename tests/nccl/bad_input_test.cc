// What libnccl.so.2 refuses, with which code and text; and what it only knows by name.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>

#include "plugins/nccl/nccl_device.h"
#include "tests/nccl/nccl_cluster.h"

namespace tutti::test {
namespace {

/// Runs `body` on the only rank of a communicator.
void run_alone(const NcclBody& body) {
  EXPECT_EQ(run_nccl(std::vector<int>{1}, body), "");
}

// Goal: arguments that cannot be right are refused before anything happens, and named.
TEST(NcclBadInputTest, WrongArguments) {
  run_alone([](NcclRank& rank) {
    float value = 1;
    const auto reduce = [&](void* send, void* recv, size_t count, int type, int op, ncclComm_t comm) {
      return ncclAllReduce(send, recv, count, static_cast<ncclDataType_t>(type), static_cast<ncclRedOp_t>(op),
                           comm, nullptr);
    };
    rank.expect(reduce(&value, &value, 1, -1, ncclSum, rank.comm), ncclInvalidArgument, "type");
    rank.expect_text({"ncclAllReduce: argument datatype is -1"}, "type");
    // tutti's own further types and operators are none of NCCL's.
    rank.expect(reduce(&value, &value, 1, TUTTI_INT16, ncclSum, rank.comm), ncclInvalidArgument, "type");
    rank.expect(reduce(&value, &value, 1, ncclInt32, TUTTI_BAND, rank.comm), ncclInvalidArgument, "operator");
    rank.expect(reduce(&value, &value, 1, ncclInt32, -1, rank.comm), ncclInvalidArgument, "operator");
    rank.expect(reduce(nullptr, &value, 1, ncclFloat32, ncclSum, rank.comm), ncclInvalidArgument, "NULL");
    rank.expect(reduce(&value, &value, SIZE_MAX, ncclFloat32, ncclSum, rank.comm), ncclInvalidArgument,
                "count");
    rank.expect(reduce(&value, &value, 1, ncclFloat32, ncclSum, nullptr), ncclInvalidArgument,
                "no communicator");
    rank.expect_text({"comm"}, "no communicator");
    rank.expect(ncclSend(&value, 1, ncclFloat32, 1, rank.comm, nullptr), ncclInvalidArgument, "peer");
    rank.expect(ncclSend(&value, 1, ncclFloat32, 0, rank.comm, nullptr), ncclInvalidUsage, "to itself");
    rank.expect_text({"ncclSend and ncclRecv", "ncclGroupStart and ncclGroupEnd"}, "its words are NCCL's");
    rank.expect(ncclBcast(&value, 1, ncclFloat32, -1, rank.comm, nullptr), ncclInvalidArgument, "root");
    rank.expect(ncclCommCount(rank.comm, nullptr), ncclInvalidArgument, "count");
    rank.expect(ncclCommGetAsyncError(rank.comm, nullptr), ncclInvalidArgument, "error");
    rank.expect(ncclCommSplit(rank.comm, -2, 0, nullptr, nullptr), ncclInvalidArgument, "split");
    rank.expect(ncclGetVersion(nullptr), ncclInvalidArgument, "version");
    rank.expect(ncclGetUniqueId(nullptr), ncclInvalidArgument, "id");
    rank.expect(ncclMemAlloc(nullptr, 1), ncclInvalidArgument, "memory");
    rank.expect(ncclMemFree(&value), ncclInvalidArgument, "not from ncclMemAlloc");
    ncclRedOp_t op{};
    rank.expect(ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat32, ncclScalarDevice, rank.comm),
                ncclInvalidArgument, "scalar");
    rank.expect(ncclRedOpCreatePreMulSum(&op, &value, ncclFloat32, std::bit_cast<ncclScalarResidence_t>(2),
                                         rank.comm),
                ncclInvalidArgument, "residence");
    rank.expect_ok(reduce(&value, &value, 1, ncclFloat32, ncclSum, rank.comm),
                   "the communicator still serves");
  });
}

// Goal: a registration that cannot be right is refused, and so is a handle that is none, or none any more.
TEST(NcclBadInputTest, WrongRegistrations) {
  run_alone([](NcclRank& rank) {
    float value = 1;
    void* handle = nullptr;
    rank.expect(ncclCommRegister(rank.comm, &value, 0, &handle), ncclInvalidArgument, "nothing");
    rank.expect_text({"ncclCommRegister: argument size is 0"}, "nothing");
    rank.expect(ncclCommRegister(rank.comm, &value, SIZE_MAX, &handle), ncclInvalidArgument, "overflow");
    rank.expect_text({"argument size", std::to_string(SIZE_MAX)}, "overflow");
    rank.expect(ncclCommRegister(rank.comm, nullptr, 4, &handle), ncclInvalidArgument, "no buffer");
    rank.expect_text({"buff"}, "no buffer");
    rank.expect(ncclCommRegister(rank.comm, &value, sizeof value, nullptr), ncclInvalidArgument, "no handle");
    rank.expect_text({"handle"}, "no handle");
    rank.expect(ncclCommDeregister(rank.comm, &value), ncclInvalidArgument, "not a handle");
    rank.expect_text({"ncclCommDeregister: argument handle"}, "not a handle");
    rank.expect(ncclCommDeregister(rank.comm, nullptr), ncclInvalidArgument, "NULL");
    rank.expect_ok(ncclCommRegister(rank.comm, &value, sizeof value, &handle), "register");
    ncclComm_t other = nullptr;
    rank.expect_ok(ncclCommSplit(rank.comm, 0, 0, &other, nullptr), "split");
    rank.expect(ncclCommDeregister(other, handle), ncclInvalidArgument, "of another communicator");
    rank.expect_ok(ncclCommDestroy(other), "destroy");
    rank.expect_ok(ncclCommDeregister(rank.comm, handle), "deregister");
    rank.expect(ncclCommDeregister(rank.comm, handle), ncclInvalidArgument, "deregistered twice");
  });
}

// Goal: an operator is legal for its own communicator only.
TEST(NcclBadInputTest, AnOperatorOfAnotherCommunicator) {
  run_alone([](NcclRank& rank) {
    ncclComm_t other = nullptr;
    rank.expect_ok(ncclCommSplit(rank.comm, 0, 0, &other, nullptr), "split");
    float value = 1;
    ncclRedOp_t op{};
    rank.expect_ok(ncclRedOpCreatePreMulSum(&op, &value, ncclFloat32, ncclScalarHostImmediate, other), "op");
    rank.expect(ncclAllReduce(&value, &value, 1, ncclFloat32, op, rank.comm, nullptr), ncclInvalidArgument,
                "all_reduce");
    rank.expect(ncclRedOpDestroy(op, rank.comm), ncclInvalidArgument, "destroy");
    rank.expect_ok(ncclCommDestroy(other), "destroy");
  });
}

// Goal: a set-up that cannot be right is refused at the call.
TEST(NcclBadInputTest, WrongSetUps) {
  EXPECT_EQ(
      run_nccl(
          uncreated({1}),
          [](NcclRank& rank) {
            const ncclUniqueId id = rank.next_id();
            ncclComm_t comm = nullptr;
            rank.expect(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument, "comm");
            rank.expect(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument, "nranks");
            rank.expect(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument, "rank");
            rank.expect(ncclCommInitRank(&comm, 2, id, -1), ncclInvalidArgument, "rank");
            // An id of another library.
            ncclUniqueId foreign{};
            std::memset(&foreign, 0x2a, sizeof(foreign));
            rank.expect(ncclCommInitRank(&comm, 1, foreign, 0), ncclInvalidArgument, "id");
            rank.expect_text({"unique id"}, "id");
            ncclConfig_t config = non_blocking_config();
            rank.expect(ncclCommInitRankConfig(&comm, 1, foreign, 0, &config), ncclInvalidArgument, "id");
            rank.expect_true(comm == nullptr, "no handle is left");
            ncclUniqueId ids[] = {id, id};
            rank.expect(ncclCommInitRankScalable(&comm, 1, 0, 2, ids, nullptr), ncclInvalidArgument, "nId");
            rank.expect(ncclCommInitRankScalable(&comm, 1, 0, 0, ids, nullptr), ncclInvalidArgument, "nId");
            rank.expect(ncclCommInitRankScalable(&comm, 1, 0, 1, nullptr, nullptr), ncclInvalidArgument,
                        "ids");
            const int device = -1;
            rank.expect(ncclCommInitAll(&comm, 1, &device), ncclInvalidArgument, "devlist");
            rank.expect(ncclCommInitAll(&comm, 0, nullptr), ncclInvalidArgument, "ndev");
            rank.expect(ncclCommInitAll(nullptr, 1, nullptr), ncclInvalidArgument, "comms");
          }),
      "");
}

/// Sets up a communicator of one rank with the configuration; destroys it where that went well.
ncclResult_t join_with(NcclRank& rank, ncclConfig_t config) {
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRankConfig(&comm, 1, rank.next_id(), 0, &config);
  if (comm == nullptr) return result;
  rank.expect(rank.finish(comm), ncclSuccess, "set-up");
  rank.expect_ok(ncclCommDestroy(comm), "destroy");
  return result;
}

// Goal: configurations are read by size and version: older callers' tails and newer callers' tails are
// ignored.
TEST(NcclBadInputTest, ConfigurationsOfOtherVersions) {
  EXPECT_EQ(run_nccl(uncreated({1}),
                     [](NcclRank& rank) {
                       ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
                       rank.expect_ok(join_with(rank, config), "this version");
                       config.magic = 1;
                       rank.expect(join_with(rank, config), ncclInvalidArgument, "magic");
                       rank.expect_text({"NCCL_CONFIG_INITIALIZER"}, "magic");
                       config = NCCL_CONFIG_INITIALIZER;
                       config.size = 8;
                       rank.expect(join_with(rank, config), ncclInvalidArgument, "size");
                       // 2.14: only `blocking` is there; what lies behind it is not read.
                       config = non_blocking_config();
                       config.size = 24;
                       config.version = 21400;
                       config.minCTAs = -7;
                       rank.expect(join_with(rank, config), ncclInProgress, "2.14");
                       // A field newer than the caller's version is no field of its.
                       config = NCCL_CONFIG_INITIALIZER;
                       config.version = 22807;
                       config.numRmaCtx = -7;
                       rank.expect_ok(join_with(rank, config), "2.28.7");
                       config.version = NCCL_VERSION_CODE;
                       rank.expect(join_with(rank, config), ncclInvalidArgument, "2.30.7");
                       rank.expect_text({"config.numRmaCtx is -7"}, "2.30.7");
                       // A newer caller's struct is longer.
                       struct Newer {
                         ncclConfig_t known = NCCL_CONFIG_INITIALIZER;
                         int further[6] = {1, 2, 3, 4, 5, 6};
                       } newer;
                       newer.known.size = sizeof(newer);
                       newer.known.version = 23203;
                       newer.known.blocking = 0;
                       ncclComm_t comm = nullptr;
                       rank.expect(ncclCommInitRankConfig(&comm, 1, rank.next_id(), 0, &newer.known),
                                   ncclInProgress, "2.32.3");
                       rank.expect(rank.finish(comm), ncclSuccess, "2.32.3");
                       rank.expect_ok(ncclCommDestroy(comm), "destroy");
                       config = NCCL_CONFIG_INITIALIZER;
                       config.blocking = 2;
                       rank.expect(join_with(rank, config), ncclInvalidArgument, "blocking");
                       config = NCCL_CONFIG_INITIALIZER;
                       config.minCTAs = 8;
                       config.maxCTAs = 4;
                       rank.expect(join_with(rank, config), ncclInvalidArgument, "minCTAs over maxCTAs");
                     }),
            "");
}

// Goal: NCCL_COMM_BLOCKING is stronger than the configuration, either way.
TEST(NcclBadInputTest, TheEnvironmentDecidesAboutBlocking) {
  for (const char* value : {"0", "1"}) {
    ClusterOptions options = uncreated({1});
    options.environment = {{"NCCL_COMM_BLOCKING", value}};
    EXPECT_EQ(run_nccl(options,
                       [value](NcclRank& rank) {
                         ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
                         config.blocking = *value == '0' ? 1 : 0;
                         rank.expect(join_with(rank, config), *value == '0' ? ncclInProgress : ncclSuccess,
                                     value);
                       }),
              "");
  }
}

// Goal: a stream is refused by a text that says what to do, in a group too.
TEST(NcclBadInputTest, StreamsNeedCuda) {
  run_alone([](NcclRank& rank) {
    float value = 1;
    const auto stream = reinterpret_cast<cudaStream_t>(&value);
    rank.expect(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, rank.comm, stream), ncclInvalidUsage,
                "stream");
    rank.expect_text({"argument stream", "works on host memory", "null stream"}, "stream");
    rank.expect_ok(ncclGroupStart(), "start");
    rank.expect(ncclBcast(&value, 1, ncclFloat32, 0, rank.comm, stream), ncclInvalidUsage, "stream");
    rank.expect(ncclGroupEnd(), ncclInvalidUsage, "end");
  });
}

// Goal: windows on host memory: none is given, which NCCL's callers know how to take; what needs one says so.
TEST(NcclBadInputTest, ThereAreNoWindowsOnHostMemory) {
  run_alone([](NcclRank& rank) {
    void* memory = nullptr;
    rank.expect_ok(ncclMemAlloc(&memory, 4096), "ncclMemAlloc");
    auto window = reinterpret_cast<ncclWindow_t>(memory);
    rank.expect_ok(ncclCommWindowRegister(rank.comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC),
                   "register");
    rank.expect_true(window == nullptr, "no window");
    rank.expect_ok(ncclCommWindowDeregister(rank.comm, window), "deregister");
    rank.expect(ncclCommWindowDeregister(rank.comm, reinterpret_cast<ncclWindow_t>(memory)),
                ncclInvalidArgument, "not a window");
    void* pointer = memory;
    rank.expect(ncclWinGetUserPtr(rank.comm, nullptr, &pointer), ncclInvalidArgument, "pointer");
    rank.expect(ncclPutSignal(memory, 1, ncclInt8, 0, nullptr, 0, 0, 0, 0, rank.comm, nullptr),
                ncclInvalidUsage, "put");
    rank.expect(ncclSignal(0, 0, 0, 0, rank.comm, nullptr), ncclInvalidUsage, "signal");
    rank.expect(ncclWaitSignal(0, nullptr, rank.comm, nullptr), ncclInvalidUsage, "wait");
    rank.expect_ok(ncclMemFree(memory), "ncclMemFree");
  });
}

// Goal: what is not implemented says so, gives nothing, and leaves the communicator as it was.
TEST(NcclBadInputTest, WhatIsNotImplementedSaysSo) {
  run_alone([](NcclRank& rank) {
    rank.expect(ncclCommSuspend(rank.comm, NCCL_SUSPEND_MEM), ncclInvalidUsage, "suspend");
    rank.expect_text({"ncclCommSuspend", "in this version of tutti"}, "suspend");
    rank.expect(ncclCommResume(rank.comm), ncclInvalidUsage, "resume");
    rank.expect(ncclDevCommCreate(rank.comm, nullptr, nullptr), ncclInvalidUsage, "device communicator");
    rank.expect_text({"device API"}, "device communicator");
    uint64_t bytes = 1;
    rank.expect_ok(ncclCommMemStats(rank.comm, ncclStatGpuMemTotal, &bytes), "memory");
    rank.expect_true(bytes == 0, "memory");
    int32_t value = 5;
    rank.expect_ok(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, rank.comm, nullptr), "all_reduce");
  });
}

// Goal: properties say that there is no device API, in as many bytes as the caller has; teams are arithmetic.
TEST(NcclBadInputTest, PropertiesAndTeams) {
  EXPECT_EQ(run_nccl(threads(3),
                     [](NcclRank& rank) {
                       ncclCommProperties_t properties{};
                       properties.size = sizeof(properties);
                       properties.magic = NCCL_API_MAGIC;
                       properties.version = NCCL_VERSION_CODE;
                       properties.deviceApiSupport = true;
                       rank.expect_ok(ncclCommQueryProperties(rank.comm, &properties), "properties");
                       rank.expect_true(properties.rank == rank.rank() && properties.nRanks == 3 &&
                                            properties.cudaDev == -1 && !properties.deviceApiSupport,
                                        "properties");
                       properties.size = offsetof(ncclCommProperties, nRanks);
                       properties.nRanks = 99;
                       rank.expect_ok(ncclCommQueryProperties(rank.comm, &properties), "short properties");
                       rank.expect_true(properties.nRanks == 99, "nothing behind the end is written");
                       properties.magic = 0;
                       rank.expect(ncclCommQueryProperties(rank.comm, &properties), ncclInvalidArgument,
                                   "magic");
                       const ncclTeam_t world = ncclTeamWorld(rank.comm);
                       rank.expect_true(world.nRanks == 3 && world.rank == rank.rank() && world.stride == 1,
                                        "world");
                       rank.expect_true(ncclTeamRankToWorld(rank.comm, world, 2) == 2, "rank in the world");
                       rank.expect_true(ncclTeamLsa(rank.comm).nRanks == 1, "load-store team");
                       int device = 0;
                       rank.expect_ok(ncclCommCuDevice(rank.comm, &device), "device");
                       rank.expect_true(device == -1, "host memory");
                     }),
            "");
}

// Goal: shrinking, growing and revoking with arguments that cannot be right is refused.
TEST(NcclBadInputTest, WrongMemberships) {
  run_alone([](NcclRank& rank) {
    ncclComm_t other = rank.comm;
    int excluded = 1;
    rank.expect(ncclCommShrink(rank.comm, &excluded, 1, &other, nullptr, NCCL_SHRINK_DEFAULT),
                ncclInvalidArgument, "no such rank");
    rank.expect_true(other == nullptr, "no handle is left");
    rank.expect(ncclCommShrink(rank.comm, nullptr, 1, &other, nullptr, 0), ncclInvalidArgument, "list");
    rank.expect(ncclCommShrink(rank.comm, nullptr, -1, &other, nullptr, 0), ncclInvalidArgument, "count");
    rank.expect(ncclCommShrink(rank.comm, nullptr, 0, &other, nullptr, 2), ncclInvalidArgument, "flags");
    rank.expect(ncclCommShrink(rank.comm, nullptr, 0, nullptr, nullptr, 0), ncclInvalidArgument, "newcomm");
    ncclUniqueId id{};
    rank.expect(ncclCommGrow(rank.comm, 1, &id, -1, &other, nullptr), ncclInvalidArgument, "not more ranks");
    rank.expect(ncclCommGrow(rank.comm, 2, nullptr, -1, &other, nullptr), ncclInvalidArgument, "no id");
    rank.expect(ncclCommGrow(nullptr, 2, nullptr, 1, &other, nullptr), ncclInvalidArgument, "no id");
    rank.expect(ncclCommGetUniqueId(rank.comm, nullptr), ncclInvalidArgument, "id");
    rank.expect(ncclCommGetUniqueId(nullptr, &id), ncclInvalidArgument, "comm");
    rank.expect(ncclCommRevoke(rank.comm, 1), ncclInvalidArgument, "flags");
    int32_t value = 5;
    rank.expect_ok(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, rank.comm, nullptr), "all_reduce");
  });
}

// Goal: a destroyed communicator is noticed by every kind of call; NULL is as good as destroyed already.
TEST(NcclBadInputTest, DestroyedCommunicators) {
  run_alone([](NcclRank& rank) {
    const ncclComm_t dead = rank.comm;
    rank.expect_ok(ncclCommDestroy(rank.comm), "destroy");
    rank.comm = nullptr;
    float value = 1;
    ncclResult_t state = ncclSuccess;
    rank.expect(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, dead, nullptr), ncclInvalidArgument,
                "use");
    rank.expect_text({"destroyed"}, "use");
    rank.expect(ncclCommGetAsyncError(dead, &state), ncclInvalidArgument, "state");
    rank.expect(ncclCommDestroy(dead), ncclInvalidArgument, "destroyed twice");
    rank.expect(ncclCommFinalize(dead), ncclInvalidArgument, "finalize");
    rank.expect(ncclCommAbort(dead), ncclInvalidArgument, "abort");
    rank.expect_ok(ncclCommDestroy(nullptr), "destroy of NULL");
    rank.expect_ok(ncclCommAbort(nullptr), "abort of NULL");
    rank.expect_ok(ncclCommFinalize(nullptr), "finalize of NULL");
  });
}

// Goal: no text is NULL. Without a communicator, ncclGetLastError returns the process's last error.
TEST(NcclBadInputTest, EveryCodeHasATextAndTheLastErrorIsKept) {
  EXPECT_EQ(run_child([] {
              std::string failures;
              for (int code = -1; code <= static_cast<int>(ncclNumResults) + 1; ++code) {
                const char* text = ncclGetErrorString(static_cast<ncclResult_t>(code));
                if (text == nullptr || *text == '\0')
                  failures += "no text for " + std::to_string(code) + "\n";
              }
              if (*ncclGetLastError(nullptr) != '\0') failures += "a text before any error\n";
              ncclGetVersion(nullptr);
              if (std::string(ncclGetLastError(nullptr)) != "ncclGetVersion: argument version is NULL") {
                failures += std::string("text: ") + ncclGetLastError(nullptr) + "\n";
              }
              return failures;
            }),
            "");
}

// Goal: parameters are the variables that mean something, as they are set.
TEST(NcclBadInputTest, ParametersAreReadAndUnknownOnesRefused) {
  EXPECT_EQ(
      run_child(
          [] {
            std::string failures;
            const auto check = [&failures](bool good, const char* what) {
              if (!good) failures += std::string(what) + ": " + ncclGetLastError(nullptr) + "\n";
            };
            const char** keys = nullptr;
            int count = 0;
            check(ncclParamGetAllParameterKeys(&keys, &count) == ncclSuccess && count > 2, "keys");
            ncclParamHandle_t handle = nullptr;
            for (int i = 0; i < count; ++i) check(ncclParamBind(&handle, keys[i]) == ncclSuccess, keys[i]);
            check(ncclParamBind(&handle, "NCCL_NO_SUCH_THING") == ncclInvalidArgument, "unknown");
            check(ncclParamBind(&handle, "NCCL_COMM_BLOCKING") == ncclSuccess, "bind");
            int8_t small = 0;
            uint64_t large = 0;
            const char* text = nullptr;
            check(ncclParamGetI8(handle, &small) == ncclSuccess && small == 1, "int8");
            check(ncclParamGetU64(handle, &large) == ncclSuccess && large == 1, "uint64");
            check(ncclParamGetStr(handle, &text) == ncclSuccess && std::string(text) == "1", "text");
            char bytes[4] = {};
            int length = 0;
            check(ncclParamGet(handle, bytes, 4, &length) == ncclSuccess && length == 1 && bytes[0] == '1',
                  "bytes");
            check(ncclParamGet(handle, bytes, 0, &length) == ncclInvalidArgument, "too few bytes");
            check(ncclParamGetParameter("NCCL_DEBUG", &text, &length) == ncclSuccess && length == 4,
                  "by key");
            check(ncclParamBind(&handle, "NCCL_DEBUG") == ncclSuccess, "bind");
            check(ncclParamGetI32(handle, nullptr) == ncclInvalidArgument, "NULL");
            int32_t number = 0;
            check(ncclParamGetI32(handle, &number) == ncclInvalidArgument, "no number");
            return failures;
          },
          {{"NCCL_COMM_BLOCKING", "1"}, {"NCCL_DEBUG", "none"}}),
      "");
}

}  // namespace
}  // namespace tutti::test
