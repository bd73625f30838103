// Groups of libnccl.so.2: messages, collectives, communicators set up, split and closed by one thread for
// several ranks, and groups that fail.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "tests/nccl/nccl_cluster.h"

namespace tutti::test {
namespace {

// Goal: in a group sends and receives progress at once, to every rank and to oneself, in any order of calls.
// Method: large messages, receives first on odd ranks; then a ring without a group's help would stand still.
TEST(NcclGroupsTest, MessagesBetweenAllRanks) {
  EXPECT_EQ(
      run_nccl(
          mixed_or_threads(4),
          [](NcclRank& rank) {
            for (const size_t count : {size_t{0}, size_t{3}, size_t{100'000}}) {
              const auto ranks = static_cast<size_t>(rank.count());
              std::vector<int32_t> send(count * ranks);
              std::vector<int32_t> recv(count * ranks, -1);
              std::iota(send.begin(), send.end(), rank.rank() * 1'000'000);
              rank.expect_ok(ncclGroupStart(), "start");
              for (int pass = 0; pass < 2; ++pass) {
                for (int peer = 0; peer < rank.count(); ++peer) {
                  const size_t place = static_cast<size_t>(peer) * count;
                  const bool sending = (rank.rank() + pass) % 2 == 0;
                  rank.expect_ok(
                      sending ? ncclSend(send.data() + place, count, ncclInt32, peer, rank.comm, nullptr)
                              : ncclRecv(recv.data() + place, count, ncclInt32, peer, rank.comm, nullptr),
                      "inside");
                }
              }
              rank.expect_ok(ncclGroupEnd(), "end");
              bool right = true;
              for (size_t peer = 0; peer < ranks; ++peer) {
                for (size_t i = 0; i < count; ++i) {
                  const size_t sent = static_cast<size_t>(rank.rank()) * count + i;
                  right = right && recv[peer * count + i] == static_cast<int32_t>(peer * 1'000'000 + sent);
                }
              }
              rank.expect_true(right, "messages of " + std::to_string(count));
            }
          }),
      "");
}

/// All ranks of one communicator in the calling thread.
std::vector<ncclComm_t> join_all(int ranks, std::string& failures, bool blocking = true) {
  std::vector<ncclComm_t> comms(static_cast<size_t>(ranks), nullptr);
  ncclUniqueId id;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking ? 1 : 0;
  const auto check = [&failures](ncclResult_t result, ncclResult_t wanted, const char* what) {
    if (result != wanted) failures += std::string(what) + ": " + ncclGetLastError(nullptr) + "\n";
  };
  check(ncclGetUniqueId(&id), ncclSuccess, "id");
  check(ncclGroupStart(), ncclSuccess, "start");
  for (int rank = 0; rank < ranks; ++rank) {
    check(ncclCommInitRankConfig(&comms[static_cast<size_t>(rank)], ranks, id, rank, &config), ncclSuccess,
          "init");
  }
  check(ncclGroupEnd(), blocking ? ncclSuccess : ncclInProgress, "end");
  return comms;
}

/// What ncclGetLastError says unless the call returned `wanted`.
std::string expected(ncclResult_t result, ncclResult_t wanted, const char* what) {
  if (result == wanted) return "";
  return std::string(what) + ": got " + std::to_string(result) + ": " + ncclGetLastError(nullptr) + "\n";
}

ncclResult_t finish(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && ncclCommGetAsyncError(comm, &state) == ncclSuccess) {
  }
  return state;
}

/// An all_reduce of all ranks in one group; `wanted` is what the end returns.
std::string reduce_together(const std::vector<ncclComm_t>& comms, ncclResult_t wanted) {
  std::string failures;
  std::vector<double> values(comms.size());
  std::iota(values.begin(), values.end(), 1.0);
  failures += expected(ncclGroupStart(), ncclSuccess, "start");
  for (size_t i = 0; i < comms.size(); ++i) {
    failures += expected(ncclAllReduce(&values[i], &values[i], 1, ncclFloat64, ncclSum, comms[i], nullptr),
                         ncclSuccess, "all_reduce");
  }
  failures += expected(ncclGroupEnd(), wanted, "end");
  for (const ncclComm_t comm : comms) failures += expected(finish(comm), ncclSuccess, "operation");
  const double sum = static_cast<double>(comms.size() * (comms.size() + 1)) / 2;
  for (const double value : values) {
    if (value != sum) failures += "sum " + std::to_string(value) + "\n";
  }
  return failures;
}

std::string destroy_together(const std::vector<ncclComm_t>& comms) {
  std::string failures = expected(ncclGroupStart(), ncclSuccess, "start");
  for (const ncclComm_t comm : comms) failures += expected(ncclCommDestroy(comm), ncclSuccess, "destroy");
  return failures + expected(ncclGroupEnd(), ncclSuccess, "end");
}

// Goal: one thread sets up, uses, splits and destroys all ranks of a communicator, each step as one group.
TEST(NcclGroupsTest, OneThreadDrivesAllRanks) {
  EXPECT_EQ(run_child([] {
              std::string failures;
              const std::vector<ncclComm_t> comms = join_all(8, failures);
              if (!failures.empty()) return failures;
              failures += reduce_together(comms, ncclSuccess);
              std::vector<ncclComm_t> parts(comms.size(), nullptr);
              failures += expected(ncclGroupStart(), ncclSuccess, "start");
              for (size_t i = 0; i < comms.size(); ++i) {
                const int color = i == 7 ? NCCL_SPLIT_NOCOLOR : static_cast<int>(i % 2);
                failures += expected(ncclCommSplit(comms[i], color, -static_cast<int>(i), &parts[i], nullptr),
                                     ncclSuccess, "split");
              }
              failures += expected(ncclGroupEnd(), ncclSuccess, "end");
              if (parts[7] != nullptr) failures += "a communicator without a color\n";
              // Keys fall with the rank: the order is turned.
              failures += reduce_together({parts[6], parts[4], parts[2], parts[0]}, ncclSuccess);
              failures += reduce_together({parts[5], parts[3], parts[1]}, ncclSuccess);
              int rank = -1;
              failures += expected(ncclCommUserRank(parts[0], &rank), ncclSuccess, "rank");
              if (rank != 3) failures += "rank " + std::to_string(rank) + " of 4, not 3\n";
              parts.pop_back();
              failures += destroy_together(parts);
              return failures + destroy_together(comms);
            }),
            "");
}

// Goal: the same with non-blocking communicators: the ends return ncclInProgress, and everything comes to its
// end.
TEST(NcclGroupsTest, OneThreadDrivesNonBlockingRanks) {
  EXPECT_EQ(run_child([] {
              std::string failures;
              const std::vector<ncclComm_t> comms = join_all(4, failures, false);
              for (const ncclComm_t comm : comms) failures += expected(finish(comm), ncclSuccess, "set-up");
              if (!failures.empty()) return failures;
              for (int i = 0; i < 3; ++i) failures += reduce_together(comms, ncclInProgress);
              std::vector<ncclComm_t> parts(comms.size(), nullptr);
              failures += expected(ncclGroupStart(), ncclSuccess, "start");
              for (size_t i = 0; i < comms.size(); ++i) {
                failures += expected(ncclCommSplit(comms[i], 0, 0, &parts[i], nullptr), ncclSuccess, "split");
              }
              failures += expected(ncclGroupEnd(), ncclInProgress, "end");
              for (const ncclComm_t comm : parts) failures += expected(finish(comm), ncclSuccess, "split");
              failures += reduce_together(parts, ncclInProgress);
              failures += reduce_together(comms, ncclInProgress);
              failures += destroy_together(parts);
              return failures + destroy_together(comms);
            }),
            "");
}

// Goal: a split runs before the operations that its group holds for the same non-blocking communicator. The
// two once ran side by side in two threads, and ranks that ran them in different orders failed.
// Method: many groups, each with an operation first and then a split.
TEST(NcclGroupsTest, ANonBlockingSplitRunsBeforeTheOperationsOfItsGroup) {
  EXPECT_EQ(run_nccl(uncreated(mixed_or_threads(3)),
                     [](NcclRank& rank) {
                       const ncclUniqueId id = rank.next_id();
                       ncclConfig_t config = non_blocking_config();
                       rank.expect(ncclCommInitRankConfig(&rank.comm, rank.count(), id, rank.rank(), &config),
                                   ncclInProgress, "init");
                       bool works = rank.expect(rank.finish(rank.comm), ncclSuccess, "set-up");
                       for (int i = 0; works && i < 20; ++i) {
                         std::vector<int32_t> values(1000, 1);
                         ncclComm_t part = nullptr;
                         rank.expect_ok(ncclGroupStart(), "start");
                         rank.expect_ok(ncclAllReduce(values.data(), values.data(), values.size(), ncclInt32,
                                                      ncclSum, rank.comm, nullptr),
                                        "all_reduce");
                         rank.expect_ok(ncclCommSplit(rank.comm, 0, 0, &part, nullptr), "split");
                         works = rank.expect(ncclGroupEnd(), ncclInProgress, "end") &&
                                 rank.expect(rank.finish(part), ncclSuccess, "the part") &&
                                 rank.expect(rank.finish(rank.comm), ncclSuccess, "the parent");
                         const std::vector<int32_t> sums(values.size(), rank.count());
                         works = works && rank.expect_true(values == sums, "sums");
                         if (works) rank.use(part, rank.count());
                         if (part != nullptr) rank.expect_ok(ncclCommDestroy(part), "destroy");
                       }
                     }),
            "");
}

// Goal: the same when one thread drives all ranks: the end waits for no split before all have started.
TEST(NcclGroupsTest, OneThreadSplitsAndReducesInOneGroup) {
  EXPECT_EQ(run_child([] {
              std::string failures;
              const std::vector<ncclComm_t> comms = join_all(4, failures, false);
              for (const ncclComm_t comm : comms) failures += expected(finish(comm), ncclSuccess, "set-up");
              if (!failures.empty()) return failures;
              std::vector<ncclComm_t> parts(comms.size(), nullptr);
              std::vector<int32_t> values(comms.size(), 1);
              failures += expected(ncclGroupStart(), ncclSuccess, "start");
              for (size_t i = 0; i < comms.size(); ++i) {
                failures += expected(ncclCommSplit(comms[i], 0, 0, &parts[i], nullptr), ncclSuccess, "split");
                failures +=
                    expected(ncclAllReduce(&values[i], &values[i], 1, ncclInt32, ncclSum, comms[i], nullptr),
                             ncclSuccess, "all_reduce");
              }
              failures += expected(ncclGroupEnd(), ncclInProgress, "end");
              for (const ncclComm_t comm : comms) failures += expected(finish(comm), ncclSuccess, "parent");
              for (const ncclComm_t comm : parts) failures += expected(finish(comm), ncclSuccess, "split");
              if (values != std::vector<int32_t>(comms.size(), 4)) failures += "sums\n";
              failures += reduce_together(parts, ncclInProgress);
              failures += destroy_together(parts);
              return failures + destroy_together(comms);
            }),
            "");
}

// Goal: abort of the parent or of the part ends a group's end that waits for such a split. Method: the other
// rank never splits.
TEST(NcclGroupsTest, AbortEndsAGroupThatWaitsForASplit) {
  for (const bool parent_first : {true, false}) {
    EXPECT_EQ(run_nccl(uncreated(processes(2)),
                       [parent_first](NcclRank& rank) {
                         const ncclUniqueId id = rank.next_id();
                         ncclConfig_t config = non_blocking_config();
                         rank.expect(
                             ncclCommInitRankConfig(&rank.comm, rank.count(), id, rank.rank(), &config),
                             ncclInProgress, "init");
                         rank.expect(rank.finish(rank.comm), ncclSuccess, "set-up");
                         if (!rank.base().meet()) return;
                         if (rank.rank() == 1) {
                           rank.base().wait_value(1, 1);
                           return;
                         }
                         const ncclComm_t comm = std::exchange(rank.comm, nullptr);
                         ncclComm_t part = nullptr;
                         ncclResult_t result = ncclSuccess;
                         std::thread splitter([&] {
                           int32_t value = 1;
                           rank.expect_ok(ncclGroupStart(), "start");
                           rank.expect_ok(ncclCommSplit(comm, 0, 0, &part, nullptr), "split");
                           rank.expect_ok(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr),
                                          "all_reduce");
                           rank.base().add(0);
                           result = ncclGroupEnd();
                         });
                         rank.base().wait_value(0, 1);
                         ncclResult_t state = ncclSuccess;
                         while (state == ncclSuccess) {
                           if (!rank.expect_ok(ncclCommGetAsyncError(comm, &state), "poll")) break;
                           std::this_thread::yield();
                         }
                         rank.expect_ok(ncclCommAbort(parent_first ? comm : part), "abort");
                         splitter.join();
                         // The end may find the handle dead before it waits.
                         rank.expect_true(result == ncclRemoteError || result == ncclInvalidArgument, "end");
                         rank.expect_ok(ncclCommAbort(parent_first ? part : comm), "abort of the other");
                         rank.base().add(1);
                       }),
              "")
        << parent_first;
  }
}

TEST(NcclGroupsTest, InitAllMakesAllRanksWhateverDevicesAreNamed) {
  EXPECT_EQ(run_child([] {
              std::vector<ncclComm_t> comms(3, nullptr);
              const int devices[] = {0, 0, 5};
              std::string failures = expected(ncclCommInitAll(comms.data(), 3, devices), ncclSuccess, "all");
              failures += reduce_together(comms, ncclSuccess);
              for (int i = 0; i < 3; ++i) {
                int rank = -1;
                failures +=
                    expected(ncclCommUserRank(comms[static_cast<size_t>(i)], &rank), ncclSuccess, "rank");
                if (rank != i) failures += "rank\n";
              }
              failures += destroy_together(comms);
              ncclComm_t one = nullptr;
              failures += expected(ncclCommInitAll(&one, 1, nullptr), ncclSuccess, "one rank");
              return failures + expected(ncclCommDestroy(one), ncclSuccess, "destroy");
            }),
            "");
}

// Goal: a wrong call spoils its group: the call and the end report it, nothing was issued, and all goes on.
// Method: on every rank a good all_reduce and a call that only the plugin finds wrong, or only tutti.
TEST(NcclGroupsTest, AWrongCallSpoilsItsGroup) {
  EXPECT_EQ(
      run_nccl(mixed_or_threads(3),
               [](NcclRank& rank) {
                 const auto wrong_calls = {
                     +[](NcclRank& r, float* value) {
                       return ncclAllReduce(value, value, 1, ncclNumTypes, ncclSum, r.comm, nullptr);
                     },
                     +[](NcclRank&, float* value) {
                       return ncclAllReduce(value, value, 1, ncclFloat32, ncclSum, nullptr, nullptr);
                     },
                     +[](NcclRank& r, float* value) {
                       return ncclBroadcast(value, value, 1, ncclFloat32, r.count(), r.comm, nullptr);
                     },
                     +[](NcclRank& r, float* value) {
                       return ncclReduce(value, nullptr, 1, ncclFloat32, ncclSum, r.rank(), r.comm, nullptr);
                     }};
                 for (const auto wrong : wrong_calls) {
                   float value = 1;
                   rank.expect_ok(ncclGroupStart(), "start");
                   rank.expect_ok(ncclGroupStart(), "nested start");
                   rank.expect_ok(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, rank.comm, nullptr),
                                  "good");
                   rank.expect(wrong(rank, &value), ncclInvalidArgument, "wrong");
                   rank.expect_ok(ncclGroupEnd(), "nested end");
                   rank.expect(ncclGroupEnd(), ncclInvalidArgument, "end");
                   rank.expect_text({"ncclGroupEnd: argument"}, "text");
                   rank.expect_true(value == 1, "something was issued");
                   rank.expect_ok(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, rank.comm, nullptr),
                                  "after");
                   rank.expect_true(value == 3, "sum");
                 }
                 rank.expect(ncclGroupEnd(), ncclInvalidUsage, "an end without a start");
                 rank.expect_text({"ncclGroupStart"}, "text");
               }),
      "");
}

// Goal: a communicator that a group ends is ended also if the group is spoiled, or is only simulated. Such
// calls had no effect, after they had returned success.
TEST(NcclGroupsTest, EndsOfCommunicatorsAreNotDropped) {
  EXPECT_EQ(run_child([] {
              std::string failures;
              for (const bool simulated : {false, true}) {
                const ncclComm_t destroyed = join_all(1, failures)[0];
                const ncclComm_t finalized = join_all(1, failures)[0];
                ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
                float value = 1;
                const auto reduce = [&value](ncclComm_t comm) {
                  return ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr);
                };
                failures += expected(ncclGroupStart(), ncclSuccess, "start");
                failures += expected(ncclCommDestroy(destroyed), ncclSuccess, "destroy");
                failures += expected(ncclCommFinalize(finalized), ncclSuccess, "finalize");
                if (simulated) {
                  failures += expected(ncclGroupSimulateEnd(&info), ncclInvalidUsage, "simulate");
                } else {
                  failures += expected(reduce(nullptr), ncclInvalidArgument, "wrong");
                  failures += expected(ncclGroupEnd(), ncclInvalidArgument, "end");
                }
                failures += expected(reduce(destroyed), ncclInvalidArgument, "destroyed");
                failures += expected(reduce(finalized), ncclInvalidUsage, "finalized");
                failures += expected(ncclCommDestroy(finalized), ncclSuccess, "destroy");
              }
              return failures;
            }),
            "");
}

// Goal: a rank that joins inside a group has its handle at once, as in NCCL, and the variable that the call
// was given is not written when the group ends.
TEST(NcclGroupsTest, AHandleIsGivenOutWhenTheGroupIsOpen) {
  EXPECT_EQ(run_child([] {
              ncclUniqueId id;
              std::string failures = expected(ncclGetUniqueId(&id), ncclSuccess, "id");
              ncclComm_t variable = nullptr;
              failures += expected(ncclGroupStart(), ncclSuccess, "start");
              failures += expected(ncclCommInitRank(&variable, 1, id, 0), ncclSuccess, "init");
              const ncclComm_t comm = std::exchange(variable, nullptr);
              failures += expected(ncclGroupEnd(), ncclSuccess, "end");
              if (variable != nullptr) failures += "the variable was written late\n";
              int count = 0;
              failures += expected(ncclCommCount(comm, &count), ncclSuccess, "the handle");
              return failures + expected(ncclCommDestroy(comm), ncclSuccess, "destroy");
            }),
            "");
}

// Goal: a spoiled group sets up nothing, and the handles in the caller's variables are not live.
TEST(NcclGroupsTest, ASpoiledGroupSetsUpNothing) {
  EXPECT_EQ(run_child([] {
              ncclUniqueId id;
              std::string failures = expected(ncclGetUniqueId(&id), ncclSuccess, "id");
              ncclConfig_t config = non_blocking_config();
              ncclComm_t first = nullptr;
              ncclComm_t second = nullptr;
              failures += expected(ncclGroupStart(), ncclSuccess, "start");
              failures += expected(ncclCommInitRankConfig(&first, 2, id, 0, &config), ncclSuccess, "first");
              failures += expected(ncclCommInitRank(&second, 2, id, 2), ncclInvalidArgument, "second");
              failures += expected(ncclGroupEnd(), ncclInvalidArgument, "end");
              int count = 0;
              failures += expected(ncclCommCount(first, &count), ncclInvalidArgument, "the first is dead");
              if (second != nullptr) failures += "a handle was left\n";
              return failures;
            }),
            "");
}

// Goal: when the first non-blocking set-up of a group fails at once, the caller's other handles are dead too.
// They once stayed half made.
// Method: a rank joins by no id; after it in the group another rank joins, and a communicator is split.
TEST(NcclGroupsTest, AFailedStartLeavesNoHalfMadeHandles) {
  EXPECT_EQ(run_child([] {
              std::string failures;
              const ncclComm_t parent = join_all(1, failures, false)[0];
              failures += expected(finish(parent), ncclSuccess, "set-up");
              const ncclUniqueId wrong{};
              ncclUniqueId id;
              failures += expected(ncclGetUniqueId(&id), ncclSuccess, "id");
              ncclConfig_t config = non_blocking_config();
              ncclComm_t first = nullptr;
              ncclComm_t second = nullptr;
              ncclComm_t part = nullptr;
              failures += expected(ncclGroupStart(), ncclSuccess, "start");
              failures +=
                  expected(ncclCommInitRankConfig(&first, 2, wrong, 0, &config), ncclSuccess, "first");
              failures += expected(ncclCommInitRankConfig(&second, 2, id, 0, &config), ncclSuccess, "second");
              failures += expected(ncclCommSplit(parent, 0, 0, &part, nullptr), ncclSuccess, "split");
              failures += expected(ncclGroupEnd(), ncclInvalidArgument, "end");
              for (const ncclComm_t comm : {first, second})
                failures += expected(ncclCommAbort(comm), ncclInvalidArgument, "the handle is dead");
              if (part != nullptr) failures += "a part was left\n";
              failures += reduce_together({parent}, ncclInProgress);
              return failures + destroy_together({parent});
            }),
            "");
}

// Goal: ncclGroupSimulateEnd closes the group and issues nothing; more work is predicted to take longer; what
// has no price says so.
TEST(NcclGroupsTest, SimulateEndPricesTheGroup) {
  EXPECT_EQ(
      run_nccl(processes(2),
               [](NcclRank& rank) {
                 std::vector<float> data(1'000'000, 1);
                 const auto simulate = [&](size_t count, int calls) {
                   ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
                   rank.expect_ok(ncclGroupStart(), "start");
                   for (int i = 0; i < calls; ++i) {
                     rank.expect_ok(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum,
                                                  rank.comm, nullptr),
                                    "inside");
                   }
                   rank.expect_ok(ncclGroupSimulateEnd(&info), "simulate");
                   return info.estimatedTime;
                 };
                 const float small = simulate(10, 1);
                 const float large = simulate(data.size(), 1);
                 const float twice = simulate(data.size(), 2);
                 rank.expect_true(0 < small && small < large && large < twice, "predictions");
                 rank.expect_true(simulate(10, 0) == 0, "an empty group");
                 rank.expect(ncclGroupEnd(), ncclInvalidUsage, "the group is closed");

                 ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
                 rank.expect_ok(ncclGroupStart(), "start");
                 rank.expect_ok(ncclSend(data.data(), 1, ncclFloat32, 1 - rank.rank(), rank.comm, nullptr),
                                "send");
                 rank.expect(ncclGroupSimulateEnd(&info), ncclInvalidUsage, "messages");
                 rank.expect_true(info.estimatedTime == NCCL_UNDEF_FLOAT, "no prediction");
                 rank.expect_ok(ncclGroupStart(), "start");
                 rank.expect(ncclGroupSimulateEnd(nullptr), ncclInvalidArgument, "no result");
                 info.magic = 0;
                 rank.expect_ok(ncclGroupStart(), "start");
                 rank.expect(ncclGroupSimulateEnd(&info), ncclInvalidArgument, "magic");

                 rank.expect_true(data[0] == 1, "nothing was issued");
                 rank.expect_ok(
                     ncclAllReduce(data.data(), data.data(), 1, ncclFloat32, ncclSum, rank.comm, nullptr),
                     "after");
                 rank.expect_true(data[0] == 2, "sum");
               }),
      "");
}

}  // namespace
}  // namespace tutti::test
