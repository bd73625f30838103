// Communicators of libnccl.so.2 that are made from others: split, shrink, grow; and revoked ones.
#include <gtest/gtest.h>

#include <csignal>
#include <thread>
#include <utility>

#include "tests/nccl/nccl_cluster.h"

namespace tutti::test {
namespace {

/// Joins all ranks, blocking or not, and waits until that is done.
void join(NcclRank& rank, bool blocking) {
  const ncclUniqueId id = rank.next_id();
  ncclConfig_t config = config_of(blocking);
  rank.expect(ncclCommInitRankConfig(&rank.comm, rank.count(), id, rank.rank(), &config),
              blocking ? ncclSuccess : ncclInProgress, "init");
  rank.expect(rank.finish(rank.comm), ncclSuccess, "set-up");
}

void expect_place(NcclRank& rank, ncclComm_t comm, int place, int count) {
  int found_place = -1;
  int found_count = -1;
  rank.expect_ok(ncclCommUserRank(comm, &found_place), "rank");
  rank.expect_ok(ncclCommCount(comm, &found_count), "count");
  rank.expect_true(found_place == place && found_count == count,
                   "rank " + std::to_string(found_place) + " of " + std::to_string(found_count));
}

// Goal: split by color and key, without a color, blocking and not; parent and children serve side by side.
TEST(NcclMembershipTest, SplitOrdersByKeyAndLeavesARankOut) {
  for (const bool blocking : {true, false}) {
    EXPECT_EQ(run_nccl(uncreated(mixed_or_threads(5)),
                       [blocking](NcclRank& rank) {
                         const ncclUniqueId id = rank.next_id();
                         ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
                         config.blocking = blocking ? 1 : 0;
                         const ncclResult_t at_once = blocking ? ncclSuccess : ncclInProgress;
                         rank.expect(
                             ncclCommInitRankConfig(&rank.comm, rank.count(), id, rank.rank(), &config),
                             at_once, "init");
                         rank.expect(rank.finish(rank.comm), ncclSuccess, "set-up");
                         // Ranks 0, 2 and 1, 3, turned round; rank 4 stays outside.
                         const bool outside = rank.rank() == 4;
                         const int color = outside ? NCCL_SPLIT_NOCOLOR : rank.rank() % 2;
                         ncclComm_t part = nullptr;
                         rank.expect(ncclCommSplit(rank.comm, color, 10 - rank.rank(), &part, nullptr),
                                     at_once, "split");
                         rank.expect(rank.finish(rank.comm), ncclSuccess, "the parent");
                         rank.expect_true((part == nullptr) == outside, "outside, or not");
                         if (part != nullptr) {
                           rank.expect(rank.finish(part), ncclSuccess, "the part");
                           int place = -1;
                           int count = -1;
                           rank.expect_ok(ncclCommUserRank(part, &place), "rank");
                           rank.expect_ok(ncclCommCount(part, &count), "count");
                           rank.expect_true(place == 1 - rank.rank() / 2 && count == 2, "place in the part");
                           rank.use(part, 2);
                         }
                         rank.use(rank.comm, rank.count());
                         if (part != nullptr) rank.expect_ok(ncclCommDestroy(part), "destroy");
                       }),
              "");
  }
}

// Goal: one split alone in a group is as good as outside.
TEST(NcclMembershipTest, OneSplitInAGroup) {
  EXPECT_EQ(run_nccl(processes(2),
                     [](NcclRank& rank) {
                       ncclComm_t part = nullptr;
                       rank.expect_ok(ncclGroupStart(), "start");
                       rank.expect_ok(ncclCommSplit(rank.comm, 0, 0, &part, nullptr), "split");
                       rank.expect_ok(ncclGroupEnd(), "end");
                       rank.use(part, 2);
                       rank.expect_ok(ncclCommDestroy(part), "destroy");
                     }),
            "");
}

// Goal: ranks that are left out stay behind, the others go on as a smaller communicator; the parent serves
// on.
TEST(NcclMembershipTest, ShrinkLeavesRanksOut) {
  for (const bool blocking : {true, false}) {
    EXPECT_EQ(run_nccl(uncreated(mixed_or_threads(4)),
                       [blocking](NcclRank& rank) {
                         join(rank, blocking);
                         int excluded[] = {1};
                         if (rank.rank() != 1) {
                           ncclComm_t rest = nullptr;
                           rank.expect(
                               ncclCommShrink(rank.comm, excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT),
                               blocking ? ncclSuccess : ncclInProgress, "shrink");
                           rank.expect(rank.finish(rest), ncclSuccess, "the rest");
                           expect_place(rank, rest, rank.rank() == 0 ? 0 : rank.rank() - 1, 3);
                           rank.use(rest, 3);
                           rank.expect_ok(ncclCommDestroy(rest), "destroy");
                         }
                         rank.expect(rank.finish(rank.comm), ncclSuccess, "the parent");
                         rank.use(rank.comm, 4);
                       }),
              "");
  }
}

// Goal: when a rank has died and the others have been told, they shrink and go on.
TEST(NcclMembershipTest, SurvivorsShrinkAndGoOn) {
  for (const bool blocking : {true, false}) {
    ClusterOptions options = uncreated(processes(3));
    options.lost_processes = {1};
    EXPECT_EQ(run_nccl(options,
                       [blocking](NcclRank& rank) {
                         join(rank, blocking);
                         rank.use(rank.comm, 3);
                         if (!rank.base().meet()) return;
                         if (rank.rank() == 1) raise(SIGKILL);
                         float value = 1;
                         ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, rank.comm, nullptr);
                         rank.expect(rank.finish(rank.comm), ncclRemoteError, "the parent");
                         ncclComm_t rest = nullptr;
                         int excluded[] = {1};
                         rank.expect(
                             ncclCommShrink(rank.comm, excluded, 1, &rest, nullptr, NCCL_SHRINK_ABORT),
                             blocking ? ncclSuccess : ncclInProgress, "shrink");
                         rank.expect(rank.finish(rest), ncclSuccess, "the rest");
                         rank.expect_ok(ncclCommAbort(rank.comm), "abort");
                         rank.comm = rest;
                         expect_place(rank, rest, rank.rank() / 2, 2);
                         rank.use(rest, 2);
                       }),
              "");
  }
}

// Goal: abort ends a shrink that waits for a rank which does not come, long before the set-up's deadline.
TEST(NcclMembershipTest, AbortEndsAShrink) {
  EXPECT_EQ(run_nccl(uncreated(processes(2)),
                     [](NcclRank& rank) {
                       join(rank, false);
                       if (!rank.base().meet()) return;
                       if (rank.rank() == 1) {
                         rank.base().wait_value(0, 1);
                         return;
                       }
                       ncclComm_t rest = nullptr;
                       rank.expect(ncclCommShrink(rank.comm, nullptr, 0, &rest, nullptr, NCCL_SHRINK_DEFAULT),
                                   ncclInProgress, "shrink");
                       rank.expect_ok(ncclCommAbort(rank.comm), "abort");
                       rank.comm = nullptr;
                       rank.expect(rank.finish(rest), ncclRemoteError, "the rest");
                       rank.expect_text({"aborted"}, "the rest");
                       rank.expect_ok(ncclCommAbort(rest), "abort of the rest");
                       rank.base().add(0);
                     }),
            "");
}

/// One rank, and a long time for the set-up of a grow whose second rank never comes.
ClusterOptions one_rank_that_waits_long() {
  ClusterOptions options = uncreated(processes(1));
  options.environment = {{"TUTTI_SETUP_TIMEOUT_MS", "600000"}};
  return options;
}

// Goal: abort and revoke end a grow of another thread that waits for a rank which does not come. They once
// waited for the grow, which went on to its deadline.
TEST(NcclMembershipTest, AbortAndRevokeEndTheGrowOfAnotherThread) {
  for (const bool revokes : {false, true}) {
    EXPECT_EQ(
        run_nccl(one_rank_that_waits_long(),
                 [revokes](NcclRank& rank) {
                   join(rank, true);
                   const ncclUniqueId id = rank.next_id();
                   const ncclComm_t comm = rank.comm;
                   ncclComm_t grown = nullptr;
                   ncclResult_t result = ncclSuccess;
                   std::thread grower([&] { result = ncclCommGrow(comm, 2, &id, -1, &grown, nullptr); });
                   rank.base().wait_until_joined();
                   if (revokes) {
                     rank.expect_ok(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), "revoke");
                   } else {
                     rank.comm = nullptr;
                     rank.expect_ok(ncclCommAbort(comm), "abort");
                   }
                   grower.join();
                   rank.expect(result, ncclRemoteError, "grow");
                   rank.expect_true(grown == nullptr, "an ended grow left a communicator");
                   if (!revokes) return;
                   ncclComm_t rest = nullptr;
                   rank.expect_ok(ncclCommShrink(comm, nullptr, 0, &rest, nullptr, NCCL_SHRINK_ABORT),
                                  "shrink");
                   rank.use(rest, 1);
                   rank.expect_ok(ncclCommDestroy(rest), "destroy");
                 }),
        "")
        << revokes;
  }
}

// Goal: abort ends a non-blocking grow that waits for a rank which does not come. It once waited for the
// grow, which went on to its deadline.
TEST(NcclMembershipTest, AbortEndsANonBlockingGrow) {
  EXPECT_EQ(run_nccl(one_rank_that_waits_long(),
                     [](NcclRank& rank) {
                       join(rank, false);
                       const ncclUniqueId id = rank.next_id();
                       ncclComm_t grown = nullptr;
                       rank.expect(ncclCommGrow(rank.comm, 2, &id, -1, &grown, nullptr), ncclInProgress,
                                   "grow");
                       rank.base().wait_until_joined();
                       rank.expect_ok(ncclCommAbort(rank.comm), "abort");
                       rank.comm = nullptr;
                       rank.expect(rank.finish(grown), ncclRemoteError, "the grown communicator");
                       rank.expect_text({"aborted"}, "the grown communicator");
                       rank.expect_ok(ncclCommAbort(grown), "abort of the grown communicator");
                     }),
            "");
}

// Goal: abort of a communicator that is being made ends its making, and the parent reports the abort. Abort
// once waited for the absent ranks, up to the deadline.
// Method: a split and a shrink that rank 1 never calls.
TEST(NcclMembershipTest, AbortOfAChildEndsItsMaking) {
  for (const bool shrinks : {false, true}) {
    ClusterOptions options = uncreated(processes(2));
    options.environment = {{"TUTTI_SETUP_TIMEOUT_MS", "600000"}};
    EXPECT_EQ(run_nccl(options,
                       [shrinks](NcclRank& rank) {
                         join(rank, false);
                         if (!rank.base().meet()) return;
                         if (rank.rank() == 1) {
                           rank.base().wait_value(0, 1);
                           return;
                         }
                         ncclComm_t child = nullptr;
                         rank.expect(shrinks ? ncclCommShrink(rank.comm, nullptr, 0, &child, nullptr,
                                                              NCCL_SHRINK_DEFAULT)
                                             : ncclCommSplit(rank.comm, 0, 0, &child, nullptr),
                                     ncclInProgress, "the call");
                         rank.expect_ok(ncclCommAbort(child), "abort of the child");
                         rank.expect(rank.finish(rank.comm), ncclRemoteError, "the parent");
                         rank.expect_ok(ncclCommAbort(rank.comm), "abort");
                         rank.comm = nullptr;
                         rank.base().add(0);
                       }),
              "")
        << shrinks;
  }
}

// Goal: the same for a grow, beside a thread that aborts the parent.
TEST(NcclMembershipTest, ParentAndChildAreAbortedSideBySide) {
  EXPECT_EQ(run_nccl(one_rank_that_waits_long(),
                     [](NcclRank& rank) {
                       for (int i = 0; i < 10; ++i) {
                         join(rank, false);
                         const ncclUniqueId id = rank.next_id();
                         const ncclComm_t parent = std::exchange(rank.comm, nullptr);
                         ncclComm_t grown = nullptr;
                         rank.expect(ncclCommGrow(parent, 2, &id, -1, &grown, nullptr), ncclInProgress,
                                     "grow");
                         std::thread other;
                         if (i > 0) other = std::thread([&] { ncclCommAbort(parent); });
                         rank.expect_ok(ncclCommAbort(grown), "abort of the grown communicator");
                         if (i > 0) {
                           other.join();
                           continue;
                         }
                         rank.expect(rank.finish(parent), ncclRemoteError, "the parent");
                         rank.expect_ok(ncclCommAbort(parent), "abort");
                       }
                     }),
            "");
}

// Goal: new ranks join those of a communicator, which keep their places.
TEST(NcclMembershipTest, GrowTakesNewRanksIn) {
  for (const bool blocking : {true, false}) {
    EXPECT_EQ(run_nccl(uncreated(mixed_or_threads(4)),
                       [blocking](NcclRank& rank) {
                         const ncclResult_t at_once = blocking ? ncclSuccess : ncclInProgress;
                         const ncclUniqueId first = rank.next_id();
                         const ncclUniqueId second = rank.next_id();
                         ncclConfig_t config = config_of(blocking);
                         ncclComm_t all = nullptr;
                         if (rank.rank() < 2) {
                           rank.expect(ncclCommInitRankConfig(&rank.comm, 2, first, rank.rank(), &config),
                                       at_once, "init");
                           rank.expect(rank.finish(rank.comm), ncclSuccess, "set-up");
                           const ncclUniqueId* id = rank.rank() == 0 ? &second : nullptr;
                           rank.expect(ncclCommGrow(rank.comm, 4, id, -1, &all, nullptr), at_once, "grow");
                         } else {
                           rank.expect(ncclCommGrow(nullptr, 4, &second, rank.rank(), &all, &config), at_once,
                                       "join");
                         }
                         rank.expect(rank.finish(all), ncclSuccess, "all");
                         expect_place(rank, all, rank.rank(), 4);
                         rank.use(all, 4);
                         if (rank.comm != nullptr) {
                           rank.use(rank.comm, 2);
                           rank.expect_ok(ncclCommDestroy(rank.comm), "destroy");
                         }
                         rank.comm = all;
                       }),
              "");
  }
}

// Goal: ncclCommGetUniqueId makes an id by which a communicator grows.
TEST(NcclMembershipTest, AnIdOfACommunicator) {
  EXPECT_EQ(run_child([] {
              ncclComm_t one = nullptr;
              ncclComm_t grown[2] = {nullptr, nullptr};
              ncclUniqueId id;
              std::string failures;
              const auto check = [&failures](ncclResult_t result, const char* what) {
                if (result != ncclSuccess)
                  failures += std::string(what) + ": " + ncclGetLastError(nullptr) + "\n";
              };
              check(ncclCommInitAll(&one, 1, nullptr), "one");
              check(ncclCommGetUniqueId(one, &id), "id");
              check(ncclGroupStart(), "start");
              check(ncclCommGrow(one, 2, &id, -1, &grown[0], nullptr), "grow");
              check(ncclCommGrow(nullptr, 2, &id, 1, &grown[1], nullptr), "join");
              check(ncclGroupEnd(), "end");
              int count = 0;
              check(ncclCommCount(grown[1], &count), "count");
              if (count != 2) failures += "count\n";
              for (const ncclComm_t comm : {grown[0], grown[1], one}) check(ncclCommDestroy(comm), "destroy");
              return failures;
            }),
            "");
}

// Goal: who is left alone may shrink again.
TEST(NcclMembershipTest, ARankByItselfShrinks) {
  EXPECT_EQ(run_nccl(uncreated(threads(1)),
                     [](NcclRank& rank) {
                       join(rank, true);
                       ncclComm_t rest = nullptr;
                       rank.expect_ok(
                           ncclCommShrink(rank.comm, nullptr, 0, &rest, nullptr, NCCL_SHRINK_DEFAULT),
                           "shrink");
                       rank.use(rest, 1);
                       rank.expect_ok(ncclCommDestroy(rest), "destroy");
                     }),
            "");
}

// Goal: revoke ends what is under way on all ranks and lets nothing begin, though ranks may shrink and go on.
// Method: the others wait in an operation that rank 0 never calls; all revoke, then shrink without leaving
// anyone out.
TEST(NcclMembershipTest, RevokedCommunicatorsMayShrink) {
  for (const bool blocking : {true, false}) {
    EXPECT_EQ(run_nccl(uncreated(mixed_or_threads(3)),
                       [blocking](NcclRank& rank) {
                         join(rank, blocking);
                         float value = 1;
                         if (rank.rank() != 0) {
                           rank.base().add(0);
                           ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, rank.comm, nullptr);
                           rank.expect(rank.finish(rank.comm), ncclRemoteError, "woken");
                           rank.expect_text({"rank 0 called ncclCommAbort or ncclCommRevoke"}, "woken");
                         } else if (!rank.base().wait_value(0, 2)) {
                           return;
                         }
                         rank.expect_ok(ncclCommRevoke(rank.comm, NCCL_REVOKE_DEFAULT), "revoke");
                         rank.expect_ok(ncclCommRevoke(rank.comm, NCCL_REVOKE_DEFAULT), "revoke again");
                         rank.expect(rank.finish(rank.comm), ncclSuccess, "quiet");
                         rank.expect(
                             ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, rank.comm, nullptr),
                             ncclInvalidUsage, "all_reduce");
                         rank.expect_text({"revoked"}, "all_reduce");
                         rank.expect(ncclCommFinalize(rank.comm), ncclInvalidUsage, "finalize");
                         ncclComm_t rest = nullptr;
                         rank.expect(ncclCommShrink(rank.comm, nullptr, 0, &rest, nullptr, NCCL_SHRINK_ABORT),
                                     blocking ? ncclSuccess : ncclInProgress, "shrink");
                         rank.expect(rank.finish(rest), ncclSuccess, "the rest");
                         rank.use(rest, 3);
                         rank.expect_ok(ncclCommDestroy(rest), "destroy");
                       }),
              "");
  }
}

// Goal: all of it between hosts.
TEST(NcclMembershipTest, RanksOfTwoHosts) {
  ClusterOptions options;
  options.layout = {1, 1, 1};
  options.hosts = {0, 1, 1};
  EXPECT_EQ(run_nccl(options,
                     [](NcclRank& rank) {
                       rank.use(rank.comm, 3);
                       std::vector<float> data(100'000, 1);
                       rank.expect_ok(ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32,
                                                    ncclSum, rank.comm, nullptr),
                                      "all_reduce");
                       rank.expect_true(data.front() == 3 && data.back() == 3, "sum");
                       ncclComm_t part = nullptr;
                       rank.expect_ok(ncclCommSplit(rank.comm, rank.rank() == 0 ? 1 : 0, 0, &part, nullptr),
                                      "split");
                       rank.use(part, rank.rank() == 0 ? 1 : 2);
                       rank.expect_ok(ncclCommDestroy(part), "destroy");
                     }),
            "");
}

}  // namespace
}  // namespace tutti::test
