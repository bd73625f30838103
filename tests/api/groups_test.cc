// Groups: many sends and receives, many collectives, one thread for several ranks; tags; messages to oneself.
#include <gtest/gtest.h>

#include <numeric>
#include <string_view>
#include <thread>

#include "api/handle.h"
#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

const tutti_stream_t kNow = TUTTI_BLOCKING;

/// What `from` sends to `to` as message number `message`.
float token(int from, int to, int message, size_t i) {
  return static_cast<float>(from * 64 + to * 8 + message) + static_cast<float>(i % 7) / 8;
}

std::vector<float> tokens(int from, int to, int message, size_t count) {
  std::vector<float> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = token(from, to, message, i);
  return data;
}

class GroupsTest : public testing::TestWithParam<Arrangement> {
 protected:
  static ClusterOptions options() { return GetParam().options(); }
};

// Goal: many messages between all ranks, itself included, progress at once, in call order per pair and tag.
// Method: four messages a pair, larger than a link's slots; receives are issued before sends on odd ranks.
TEST_P(GroupsTest, ManyMessagesBetweenAllRanks) {
  EXPECT_EQ(run_cluster(options(),
                        [](Rank& rank) {
                          constexpr int kMessages = 4;
                          for (const size_t count : {size_t{0}, size_t{1}, size_t{5'000}, size_t{200'000}}) {
                            std::vector<std::vector<float>> sent;
                            std::vector<std::vector<float>> got;
                            for (int peer = 0; peer < rank.count(); ++peer) {
                              for (int m = 0; m < kMessages; ++m) {
                                sent.push_back(tokens(rank.rank(), peer, m, count));
                                got.emplace_back(count);
                              }
                            }
                            rank.expect_ok(tutti_group_start(), "start");
                            for (int pass = 0; pass < 2; ++pass) {
                              for (int peer = 0; peer < rank.count(); ++peer) {
                                for (int m = 0; m < kMessages; ++m) {
                                  const auto i = static_cast<size_t>(peer * kMessages + m);
                                  const tutti_result_t result =
                                      (rank.rank() + pass) % 2 == 0
                                          ? tutti_send(sent[i].data(), count, TUTTI_FLOAT32, peer, m / 2,
                                                       rank.comm, kNow)
                                          : tutti_recv(got[i].data(), count, TUTTI_FLOAT32, peer, m / 2,
                                                       rank.comm, kNow);
                                  rank.expect_ok(result, "inside");
                                }
                              }
                            }
                            rank.expect_ok(tutti_group_end(), "end");
                            for (int peer = 0; peer < rank.count(); ++peer) {
                              for (int m = 0; m < kMessages; ++m) {
                                rank.expect_true(got[static_cast<size_t>(peer * kMessages + m)] ==
                                                     tokens(peer, rank.rank(), m, count),
                                                 "message " + std::to_string(m) + " from " +
                                                     std::to_string(peer) + " of " + std::to_string(count));
                              }
                            }
                          }
                        }),
            "");
}

// Goal: several collectives and messages in one group give what they give alone, though ranks list them
// differently.
TEST_P(GroupsTest, CollectivesAndMessagesMixed) {
  EXPECT_EQ(
      run_cluster(
          options(),
          [](Rank& rank) {
            constexpr size_t kCount = 100'000;
            const int next = (rank.rank() + 1) % rank.count();
            const int previous = (rank.rank() + rank.count() - 1) % rank.count();
            std::vector<float> sum(kCount, 1.0f);
            std::vector<float> root(kCount, static_cast<float>(rank.rank()));
            std::vector<float> from(kCount);
            const std::vector<float> to = tokens(rank.rank(), next, 0, kCount);
            const auto exchange = [&] {
              rank.expect_ok(tutti_send(to.data(), kCount, TUTTI_FLOAT32, next, 0, rank.comm, kNow), "send");
              rank.expect_ok(tutti_recv(from.data(), kCount, TUTTI_FLOAT32, previous, 0, rank.comm, kNow),
                             "recv");
            };
            rank.expect_ok(tutti_group_start(), "start");
            if (rank.rank() % 2 == 0) exchange();
            rank.expect_ok(
                tutti_all_reduce(sum.data(), sum.data(), kCount, TUTTI_FLOAT32, TUTTI_SUM, rank.comm, kNow),
                "sum");
            rank.expect_ok(tutti_group_start(), "nested start");
            rank.expect_ok(tutti_broadcast(root.data(), root.data(), kCount, TUTTI_FLOAT32, rank.count() - 1,
                                           rank.comm, kNow),
                           "broadcast");
            rank.expect_ok(tutti_group_end(), "nested end");
            rank.expect_true(sum[0] == 1.0f, "an inner end issued the group");
            if (rank.rank() % 2 == 1) exchange();
            rank.expect_ok(tutti_group_end(), "end");
            rank.expect_true(sum[kCount - 1] == static_cast<float>(rank.count()), "sum");
            rank.expect_true(root[kCount - 1] == static_cast<float>(rank.count() - 1), "broadcast");
            rank.expect_true(from == tokens(previous, rank.rank(), 0, kCount), "message");
          }),
      "");
}

// Goal: messages of different tags may be listed in different orders by the two sides of a group.
TEST_P(GroupsTest, TagsSortMessages) {
  EXPECT_EQ(run_cluster(
                options(),
                [](Rank& rank) {
                  if (rank.count() < 2 || rank.rank() > 1) return;
                  std::vector<std::vector<float>> data(3, std::vector<float>(20'000));
                  rank.expect_ok(tutti_group_start(), "start");
                  for (int i = 0; i < 3; ++i) {
                    const int tag = rank.rank() == 0 ? i : 2 - i;
                    auto& one = data[static_cast<size_t>(tag)];
                    if (rank.rank() == 0) {
                      one = tokens(0, 1, tag, one.size());
                      rank.expect_ok(
                          tutti_send(one.data(), one.size(), TUTTI_FLOAT32, 1, tag, rank.comm, kNow), "send");
                    } else {
                      rank.expect_ok(
                          tutti_recv(one.data(), one.size(), TUTTI_FLOAT32, 0, tag, rank.comm, kNow), "recv");
                    }
                  }
                  rank.expect_ok(tutti_group_end(), "end");
                  for (int tag = 0; tag < 3; ++tag) {
                    rank.expect_true(data[static_cast<size_t>(tag)] == tokens(0, 1, tag, 20'000),
                                     "tag " + std::to_string(tag));
                  }
                }),
            "");
}

// Goal: messages outside a group run one after the other, and mix with collectives.
TEST_P(GroupsTest, PingPongWithoutAGroup) {
  EXPECT_EQ(run_cluster(options(),
                        [](Rank& rank) {
                          for (const size_t count : {size_t{1}, size_t{3'000}, size_t{300'000}}) {
                            std::vector<float> data = tokens(0, 1, 0, count);
                            for (int turn = 0; turn < 4 && rank.rank() < 2 && rank.count() > 1; ++turn) {
                              const bool sends = (turn + rank.rank()) % 2 == 0;
                              if (sends) {
                                rank.expect_ok(tutti_send(data.data(), count, TUTTI_FLOAT32, 1 - rank.rank(),
                                                          turn, rank.comm, kNow),
                                               "send");
                              } else {
                                std::fill(data.begin(), data.end(), 0.0f);
                                rank.expect_ok(tutti_recv(data.data(), count, TUTTI_FLOAT32, 1 - rank.rank(),
                                                          turn, rank.comm, kNow),
                                               "recv");
                              }
                              rank.expect_true(data == tokens(0, 1, 0, count),
                                               "data of turn " + std::to_string(turn));
                            }
                            rank.expect_ok(tutti_barrier(rank.comm, kNow), "barrier");
                          }
                        }),
            "");
}

// Goal: what a rank sends to itself must match, found before anything is sent.
TEST_P(GroupsTest, MessagesToOneselfMustMatch) {
  EXPECT_EQ(
      run_cluster(
          options(),
          [](Rank& rank) {
            float a = 1;
            float b = 2;
            const int me = rank.rank();
            rank.expect_ok(tutti_group_start(), "start");
            rank.expect_ok(tutti_send(&a, 1, TUTTI_FLOAT32, me, 0, rank.comm, kNow), "send");
            rank.expect(tutti_group_end(), TUTTI_INVALID_USAGE, "end without recv");
            rank.expect_text({"itself", "4 bytes of float32 with tag 0", "is none"}, "end without recv");
            rank.expect_ok(tutti_group_start(), "start");
            rank.expect_ok(tutti_send(&a, 1, TUTTI_FLOAT32, me, 0, rank.comm, kNow), "send");
            rank.expect_ok(tutti_recv(&b, 1, TUTTI_INT32, me, 0, rank.comm, kNow), "recv");
            rank.expect(tutti_group_end(), TUTTI_INVALID_USAGE, "end with another type");
            rank.expect_text({"itself", "float32 with tag 0", "int32 with tag 0"}, "end with another type");
            rank.expect_ok(tutti_group_start(), "start");
            rank.expect_ok(tutti_recv(&b, 1, TUTTI_FLOAT32, me, 7, rank.comm, kNow), "recv");
            rank.expect_ok(tutti_send(&a, 1, TUTTI_FLOAT32, me, 7, rank.comm, kNow), "send");
            rank.expect_ok(tutti_group_end(), "end");
            rank.expect_true(b == 1.0f, "data");
            rank.expect_ok(tutti_barrier(rank.comm, kNow), "barrier");
          }),
      "");
}

INSTANTIATE_TEST_SUITE_P(Layouts, GroupsTest,
                         testing::Values(Arrangement{threads(1)}, Arrangement{threads(2)},
                                         Arrangement{threads(2), 2}, Arrangement{processes(3)},
                                         Arrangement{mixed(4)}, Arrangement{mixed(4), 3},
                                         Arrangement{mixed(4), 1, 2}),
                         [](const auto& test) { return test.param.name(); });

// Goal: one thread drives all ranks of create_all inside a group, for collectives and messages.
TEST(OneThreadTest, DrivesAllRanksOfAProcess) {
  EXPECT_EQ(
      run_child([] {
        constexpr int kRanks = 5;
        constexpr size_t kCount = 150'000;
        std::vector<tutti_comm_t*> comms(kRanks);
        if (tutti_comm_create_all(comms.data(), kRanks, nullptr) != TUTTI_SUCCESS)
          return std::string(tutti_last_error());
        std::vector<std::vector<float>> data(kRanks, std::vector<float>(kCount, 1.0f));
        std::vector<std::vector<float>> got(kRanks, std::vector<float>(kCount));
        std::string failures;
        const auto check = [&](tutti_result_t result) {
          if (result != TUTTI_SUCCESS) failures += std::string(tutti_last_error()) + "\n";
        };
        check(tutti_group_start());
        for (int rank = 0; rank < kRanks; ++rank) {
          const auto i = static_cast<size_t>(rank);
          check(tutti_all_reduce(data[i].data(), data[i].data(), kCount, TUTTI_FLOAT32, TUTTI_SUM, comms[i],
                                 kNow));
          check(tutti_barrier(comms[i], kNow));
        }
        check(tutti_group_end());
        check(tutti_group_start());
        for (int rank = 0; rank < kRanks; ++rank) {
          const auto i = static_cast<size_t>(rank);
          check(tutti_send(data[i].data(), kCount, TUTTI_FLOAT32, (rank + 2) % kRanks, 0, comms[i], kNow));
          check(tutti_recv(got[i].data(), kCount, TUTTI_FLOAT32, (rank + 3) % kRanks, 0, comms[i], kNow));
        }
        check(tutti_group_end());
        for (const auto& one : got) {
          if (one != std::vector<float>(kCount, kRanks)) failures += "wrong data\n";
        }
        for (tutti_comm_t* comm : comms) check(tutti_comm_destroy(comm));
        return failures;
      }),
      "");
}

size_t ranks_in_a_collective(const tutti_comm_t* comm) {
  constexpr std::string_view kInside = "is in collective";
  const std::string report = comm->comm->peers().report();
  size_t count = 0;
  for (size_t at = report.find(kInside); at != std::string::npos; at = report.find(kInside, at + 1)) ++count;
  return count;
}

// Goal: when a group fails, a rank that one thread drives does not wait for the thread's other ranks to leave
// its buffers: they cannot before it is their turn. Each once waited 10 s for those behind it. Method: of
// four ranks that may use each other's buffers three are in a sum, and wait for the fourth, which is aborted.
TEST(OneThreadTest, LeavesAFailedGroupOfManyRanksAtOnce) {
  EXPECT_EQ(run_child([] {
              constexpr size_t kRanks = 4;
              constexpr size_t kCount = 1 << 20;
              constexpr double kPatienceOfOneRankS = 10;
              std::vector<tutti_comm_t*> comms(kRanks);
              if (tutti_comm_create_all(comms.data(), kRanks, nullptr) != TUTTI_SUCCESS)
                return std::string(tutti_last_error());
              std::vector<std::vector<float>> data(kRanks, std::vector<float>(kCount, 1.0f));
              std::string failures;
              const auto check = [&](tutti_result_t result, tutti_result_t wanted) {
                if (result != wanted) failures += std::string(tutti_error_string(result)) + "\n";
              };
              std::thread aborter([&, comm = comms.back()] {
                while (ranks_in_a_collective(comm) < kRanks - 1) std::this_thread::yield();
                check(tutti_comm_abort(comm), TUTTI_SUCCESS);
              });
              check(tutti_group_start(), TUTTI_SUCCESS);
              for (size_t rank = 0; rank + 1 < kRanks; ++rank) {
                check(tutti_all_reduce(data[rank].data(), data[rank].data(), kCount, TUTTI_FLOAT32, TUTTI_SUM,
                                       comms[rank], kNow),
                      TUTTI_SUCCESS);
              }
              const double begin_s = seconds_now();
              check(tutti_group_end(), TUTTI_ABORTED);
              if (seconds_now() - begin_s > kPatienceOfOneRankS) failures += "waited for its own ranks\n";
              aborter.join();
              for (size_t rank = 0; rank + 1 < kRanks; ++rank)
                check(tutti_comm_destroy(comms[rank]), TUTTI_SUCCESS);
              return failures;
            }),
            "");
}

}  // namespace
}  // namespace tutti::test
