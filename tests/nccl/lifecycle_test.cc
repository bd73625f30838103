// Communicators of libnccl.so.2 from set-up to end: non-blocking ones, splits, aborts, lost and absent ranks.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/nccl/nccl_cluster.h"

namespace tutti::test {
namespace {

// Goal: a non-blocking set-up returns at once, may only be polled until it is done, and then serves;
// operations, finalize too.
TEST(NcclLifecycleTest, NonBlockingCommunicator) {
  EXPECT_EQ(
      run_nccl(uncreated(mixed_or_threads(4)),
               [](NcclRank& rank) {
                 const ncclUniqueId id = rank.next_id();
                 ncclConfig_t config = non_blocking_config();
                 if (rank.rank() != 0) {
                   // Rank 0 comes when the others have been told that the set-up is not finished.
                   rank.expect(ncclCommInitRankConfig(&rank.comm, rank.count(), id, rank.rank(), &config),
                               ncclInProgress, "init");
                   int count = 0;
                   rank.expect(ncclCommCount(rank.comm, &count), ncclInvalidArgument, "too early");
                   rank.expect_text({"ncclCommGetAsyncError"}, "text");
                 }
                 if (!rank.base().meet()) return;
                 if (rank.rank() == 0) {
                   rank.expect(ncclCommInitRankConfig(&rank.comm, rank.count(), id, rank.rank(), &config),
                               ncclInProgress, "init");
                 }
                 rank.expect(rank.finish(rank.comm), ncclSuccess, "set-up");
                 for (int i = 0; i < 3; ++i) rank.use(rank.comm, rank.count());
                 int count = 0;
                 rank.expect_ok(ncclCommCount(rank.comm, &count), "count");
                 rank.expect_true(count == rank.count(), "count");
                 rank.expect(ncclCommFinalize(rank.comm), ncclInProgress, "finalize");
                 rank.expect(rank.finish(rank.comm), ncclSuccess, "finalized");
                 rank.expect(ncclAllReduce(&count, &count, 1, ncclInt32, ncclSum, rank.comm, nullptr),
                             ncclInvalidUsage, "after finalize");
               }),
      "");
}

// Goal: several operations of a non-blocking communicator may be in flight; they run in order.
TEST(NcclLifecycleTest, NonBlockingOperationsQueue) {
  EXPECT_EQ(run_nccl(uncreated(processes(2)),
                     [](NcclRank& rank) {
                       const ncclUniqueId id = rank.next_id();
                       ncclConfig_t config = non_blocking_config();
                       rank.expect(ncclCommInitRankConfig(&rank.comm, 2, id, rank.rank(), &config),
                                   ncclInProgress, "init");
                       rank.expect(rank.finish(rank.comm), ncclSuccess, "set-up");
                       std::vector<int64_t> values(1000, 1);
                       for (int i = 0; i < 20; ++i) {
                         rank.expect(ncclAllReduce(values.data(), values.data(), values.size(), ncclInt64,
                                                   ncclSum, rank.comm, nullptr),
                                     ncclInProgress, "all_reduce");
                       }
                       rank.expect(rank.finish(rank.comm), ncclSuccess, "operations");
                       rank.expect_true(values[0] == 1 << 20 && values[999] == 1 << 20, "result");
                     }),
            "");
}

// Goal: abort wakes a rank that waits, from another thread, and its peers; no handle survives.
TEST(NcclLifecycleTest, AbortWakesWhoeverWaits) {
  EXPECT_EQ(run_nccl(mixed_or_threads(3),
                     [](NcclRank& rank) {
                       if (rank.rank() == 0) {
                         if (!rank.base().wait_value(0, 2)) return;
                         rank.expect_ok(ncclCommAbort(rank.comm), "abort");
                         rank.expect(ncclCommAbort(rank.comm), ncclInvalidArgument, "aborted twice");
                         rank.comm = nullptr;
                         return;
                       }
                       float value = 1;
                       std::thread waiter([&] {
                         rank.base().add(0);
                         rank.expect(
                             ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, rank.comm, nullptr),
                             ncclRemoteError, "all_reduce");
                       });
                       waiter.join();
                       ncclResult_t state = ncclSuccess;
                       rank.expect_ok(ncclCommGetAsyncError(rank.comm, &state), "state");
                       rank.expect_true(state == ncclRemoteError, "state");
                       rank.expect_ok(ncclCommAbort(rank.comm), "abort");
                       rank.comm = nullptr;
                     }),
            "");
}

// Goal: a rank aborts its own communicator while another of its threads waits on it.
// Method: the waiting call first sends what tells the peer, and by it the aborting thread, that it is inside.
TEST(NcclLifecycleTest, AbortBesideTheThreadThatWaits) {
  EXPECT_EQ(run_nccl(processes(2),
                     [](NcclRank& rank) {
                       int32_t value = 7;
                       if (rank.rank() == 1) {
                         rank.expect_ok(ncclRecv(&value, 1, ncclInt32, 0, rank.comm, nullptr), "recv");
                         rank.base().add(0);
                         // It sends nothing, but has not gone either.
                         rank.base().wait_value(1, 1);
                         return;
                       }
                       std::thread waiter([&] {
                         int32_t answer = 0;
                         ncclGroupStart();
                         ncclSend(&value, 1, ncclInt32, 1, rank.comm, nullptr);
                         ncclRecv(&answer, 1, ncclInt32, 1, rank.comm, nullptr);
                         rank.expect(ncclGroupEnd(), ncclRemoteError, "group");
                       });
                       rank.base().wait_value(0, 1);
                       rank.expect_ok(ncclCommAbort(rank.comm), "abort");
                       waiter.join();
                       rank.comm = nullptr;
                       rank.base().add(1);
                     }),
            "");
}

// Goal: after a communicator, forked children are refused, and NCCL's last error says why.
TEST(NcclLifecycleTest, AChildOfARankIsToldSo) {
  EXPECT_EQ(run_nccl(processes(2),
                     [](NcclRank& rank) {
                       const pid_t child = fork();
                       if (child == 0) {
                         skip_leak_check();
                         ncclUniqueId id;
                         ncclComm_t comm = nullptr;
                         const bool refused = ncclGetUniqueId(&id) == ncclInvalidUsage &&
                                              std::strstr(ncclGetLastError(nullptr), "forked") != nullptr &&
                                              ncclCommInitAll(&comm, 1, nullptr) == ncclInvalidUsage &&
                                              ncclCommDestroy(rank.comm) == ncclInvalidUsage;
                         _exit(refused ? 0 : 1);
                       }
                       int status = -1;
                       rank.expect_true(waitpid(child, &status, 0) == child && status == 0, "the child");
                       rank.use(rank.comm, rank.count());
                     }),
            "");
}

// Goal: a set-up that cannot finish is ended by abort, and one whose ranks are absent by its deadline, by
// name.
TEST(NcclLifecycleTest, SetUpWithoutItsRanksEnds) {
  ClusterOptions options = uncreated({1});
  options.environment = {{"TUTTI_SETUP_TIMEOUT_MS", "200"}};
  EXPECT_EQ(
      run_nccl(
          options,
          [](NcclRank& rank) {
            ncclConfig_t config = non_blocking_config();
            ncclComm_t comm = nullptr;
            rank.expect(ncclCommInitRankConfig(&comm, 2, rank.next_id(), 0, &config), ncclInProgress, "init");
            rank.expect_ok(ncclCommAbort(comm), "abort");
            rank.expect(ncclCommInitRankConfig(&comm, 2, rank.next_id(), 0, &config), ncclInProgress, "init");
            rank.expect(rank.finish(comm), ncclRemoteError, "the deadline");
            float value = 1;
            rank.expect(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr),
                        ncclRemoteError, "all_reduce");
            rank.expect_ok(ncclCommDestroy(comm), "destroy");
            rank.expect(ncclCommInitRank(&comm, 2, rank.next_id(), 0), ncclRemoteError, "blocking");
            rank.expect_text({"ncclCommInitRank", "not joined: 1"}, "text");
            rank.expect_true(comm == nullptr, "no handle is left");
          }),
      "");
}

// Goal: a rank whose process dies is reported to the others, by blocking calls and by polling.
TEST(NcclLifecycleTest, ALostRankIsReported) {
  for (const bool blocking : {true, false}) {
    ClusterOptions options = uncreated(processes(3));
    options.lost_processes = {2};
    EXPECT_EQ(run_nccl(options,
                       [blocking](NcclRank& rank) {
                         const ncclUniqueId id = rank.next_id();
                         ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
                         config.blocking = blocking ? 1 : 0;
                         const ncclResult_t joined =
                             ncclCommInitRankConfig(&rank.comm, 3, id, rank.rank(), &config);
                         rank.expect_true(joined == (blocking ? ncclSuccess : ncclInProgress), "init");
                         rank.expect(rank.finish(rank.comm), ncclSuccess, "set-up");
                         rank.use(rank.comm, 3);
                         if (!rank.base().meet()) return;
                         if (rank.rank() == 2) raise(SIGKILL);
                         float value = 1;
                         const ncclResult_t result =
                             ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, rank.comm, nullptr);
                         rank.expect(result, blocking ? ncclRemoteError : ncclInProgress, "all_reduce");
                         rank.expect(rank.finish(rank.comm), ncclRemoteError, "state");
                         rank.expect(rank.finish(rank.comm), ncclRemoteError, "state, asked again");
                         rank.expect_text({"rank 2"}, "text");
                         // An abort is another reason, for whoever has not asked yet.
                         rank.base().add(0);
                         rank.base().wait_value(0, 2);
                         rank.expect_ok(ncclCommAbort(rank.comm), "abort");
                         rank.comm = nullptr;
                       }),
              "");
  }
}

// Goal: ranks that make different calls are told, instead of hanging.
TEST(NcclLifecycleTest, DifferentCallsAreReported) {
  EXPECT_EQ(run_nccl(processes(2),
                     [](NcclRank& rank) {
                       std::vector<float> values(64, 1);
                       const auto count = static_cast<size_t>(rank.rank() == 0 ? 64 : 32);
                       rank.expect(ncclAllReduce(values.data(), values.data(), count, ncclFloat32, ncclSum,
                                                 rank.comm, nullptr),
                                   ncclInvalidUsage, "all_reduce");
                       rank.expect_ok(ncclCommAbort(rank.comm), "abort");
                       rank.comm = nullptr;
                     }),
            "");
}

// Goal: several unique ids are as good as one.
TEST(NcclLifecycleTest, ScalableSetUp) {
  EXPECT_EQ(run_nccl(uncreated(mixed_or_threads(3)),
                     [](NcclRank& rank) {
                       ncclUniqueId ids[] = {rank.next_id(), rank.next_id()};
                       rank.expect_ok(ncclCommInitRankScalable(&rank.comm, 3, rank.rank(), 2, ids, nullptr),
                                      "init");
                       rank.use(rank.comm, 3);
                     }),
            "");
}

// Goal: with NCCL_COMM_ID every rank asks for an id itself, and all meet, more than once; without a key that
// and with a key that is too short that is refused, and the text says which.
TEST(NcclLifecycleTest, RanksMeetAtAnAddress) {
  for (const std::string key : {"a secret of sixteen characters", "short", ""}) {
    const bool with_key = key.size() >= 16;
    ClusterOptions options = uncreated(processes(3));
    if (!key.empty()) options.environment = {{"TUTTI_KEY", key}};
    EXPECT_EQ(run_nccl(options,
                       [with_key, &key](NcclRank& rank) {
                         if (rank.rank() == 0) {
                           const int chosen = free_port();
                           std::memcpy(rank.base().shared_bytes(), &chosen, sizeof(chosen));
                         }
                         if (!rank.base().meet()) return;
                         int port = 0;
                         std::memcpy(&port, rank.base().shared_bytes(), sizeof(port));
                         // Before this process's first call of NCCL, which reads its settings.
                         setenv("NCCL_COMM_ID", ("127.0.0.1:" + std::to_string(port)).c_str(), 1);
                         for (int round = 0; round < 2; ++round) {
                           ncclUniqueId id;
                           rank.expect_ok(ncclGetUniqueId(&id), "id");
                           const ncclResult_t joined = ncclCommInitRank(&rank.comm, 3, id, rank.rank());
                           if (!with_key) {
                             rank.expect(joined, ncclInvalidArgument, "no key");
                             rank.expect_text(
                                 {"NCCL_COMM_ID is 127.0.0.1:",
                                  key.empty() ? "needs a key: set TUTTI_KEY" : "has 5 characters"},
                                 "no key");
                             continue;
                           }
                           if (!rank.expect_ok(joined, "init")) return;
                           rank.use(rank.comm, 3);
                           rank.expect_ok(ncclCommDestroy(rank.comm), "destroy");
                           rank.comm = nullptr;
                         }
                         ncclUniqueId id;
                         rank.expect_ok(ncclGetUniqueId(&id), "id");
                         ncclConfig_t config = non_blocking_config();
                         rank.expect(ncclCommInitRankConfig(&rank.comm, 3, id, rank.rank(), &config),
                                     ncclInvalidUsage, "without blocking");
                       }),
              "");
  }
}

// Goal: communicators come and go without leaving anything behind.
TEST(NcclLifecycleTest, NothingIsLeftBehind) {
  EXPECT_EQ(run_nccl(uncreated(processes(2)),
                     [](NcclRank& rank) {
                       ncclConfig_t config = non_blocking_config();
                       const auto round = [&](ncclConfig_t* given) {
                         const ncclUniqueId id = rank.next_id();
                         ncclCommInitRankConfig(&rank.comm, 2, id, rank.rank(), given);
                         rank.expect(rank.finish(rank.comm), ncclSuccess, "set-up");
                         rank.use(rank.comm, 2);
                         rank.expect_ok(ncclCommDestroy(rank.comm), "destroy");
                         rank.comm = nullptr;
                       };
                       round(nullptr);
                       round(&config);
                       const Holdings before = holdings();
                       for (int i = 0; i < 10; ++i) round(i % 2 == 0 ? nullptr : &config);
                       const Holdings after = settled_holdings(before);
                       rank.expect_true(after.descriptors <= before.descriptors &&
                                            after.threads <= before.threads &&
                                            after.shared_mappings <= before.shared_mappings,
                                        "descriptors, threads or shared memory are left");
                     }),
            "");
}

}  // namespace
}  // namespace tutti::test
