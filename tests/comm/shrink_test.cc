// Going on: communicators of those that are left, and of those that come.
#include <gtest/gtest.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "comm/members.h"
#include "tests/support/cluster.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

// Goal: who goes on is told apart from noise, over shared memory and in a frame.
TEST(MembersTest, ArePackedAndReadBack) {
  Members members{.ranks = {0, 5, 63, 64, kMaxCommRanks - 1}, .lost = {1, 65}, .id = {}};
  members.id.nonce[3] = std::byte{7};
  const auto unpacked = Members::unpack(members.pack());
  ASSERT_TRUE(unpacked.is_ok());
  EXPECT_EQ(unpacked->ranks, members.ranks);
  EXPECT_EQ(unpacked->lost, members.lost);
  EXPECT_EQ(unpacked->id.nonce, members.id.nonce);
  EXPECT_TRUE(members.contains(64) && !members.contains(65));
  EXPECT_TRUE(members.has_lost(65) && !members.has_lost(64));
  Decision decision{};
  EXPECT_TRUE(read_decision(decision).ranks.empty());
  write_decision(decision, members);
  EXPECT_EQ(read_decision(decision).ranks, members.ranks);
  EXPECT_EQ(read_decision(decision).lost, members.lost);
  EXPECT_EQ(read_decision(decision).id.nonce, members.id.nonce);
  EXPECT_FALSE(Members::unpack(std::vector<std::byte>(5)).is_ok());
}

/// Sums `count` times (1 + the rank's number in the cluster) over a communicator; a failure when it is wrong.
tutti_result_t checked_sum(Rank& rank, size_t count, double wanted) {
  std::vector<double> data(count, 1.0 + rank.rank());
  const tutti_result_t result =
      tutti_all_reduce(data.data(), data.data(), count, TUTTI_FLOAT64, TUTTI_SUM, rank.comm, TUTTI_BLOCKING);
  if (result == TUTTI_SUCCESS) {
    const bool right =
        std::all_of(data.begin(), data.end(), [wanted](double value) { return value == wanted; });
    rank.expect_true(right, "the sum is " + std::to_string(data[0]) + ", not " + std::to_string(wanted));
  }
  return result;
}

/// Replaces rank.comm by the communicator of those that are left. False (and a failure) when there is none.
bool go_on(Rank& rank, int expected_count) {
  tutti_comm_t* next = nullptr;
  if (!rank.expect_ok(tutti_comm_shrink(rank.comm, nullptr, 0, 0, &next, nullptr), "shrink")) return false;
  rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy of the old one");
  rank.comm = next;
  int count = 0;
  rank.expect_ok(tutti_comm_count(rank.comm, &count), "count");
  return rank.expect_true(count == expected_count,
                          "ranks: " + std::to_string(count) + ", expected " + std::to_string(expected_count));
}

// Goal: a loop that shrinks until it works goes on with the last rank too.
TEST(LoneShrinkTest, ARankByItselfGoesOn) {
  EXPECT_EQ(run_cluster(Arrangement{threads(1)}.options(),
                        [](Rank& rank) {
                          for (const int flags : {0, TUTTI_SHRINK_ABORT}) {
                            tutti_comm_t* next = nullptr;
                            rank.expect_ok(tutti_comm_shrink(rank.comm, nullptr, 0, flags, &next, nullptr),
                                           "shrink");
                            rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy of the old one");
                            rank.comm = next;
                            rank.expect_ok(checked_sum(rank, 100, 1), "sum");
                          }
                        }),
            "");
}

class ShrinkTest : public testing::TestWithParam<Arrangement> {};

// Goal: ranks that live and are excluded are left out of a healthy communicator, which goes on as well.
TEST_P(ShrinkTest, ExcludedRanksAreLeftOut) {
  EXPECT_EQ(run_cluster(GetParam().options(),
                        [](Rank& rank) {
                          const std::array<int, 2> exclude = {0, 2};
                          const bool stays = rank.rank() != 0 && rank.rank() != 2;
                          const double all = rank.count() * (rank.count() + 1) / 2.0;
                          rank.expect_ok(checked_sum(rank, 1000, all), "before");
                          if (stays) {
                            tutti_comm_t* const old = rank.comm;
                            tutti_comm_t* next = nullptr;
                            rank.expect_ok(tutti_comm_shrink(old, exclude.data(), 2, 0, &next, nullptr),
                                           "shrink");
                            rank.comm = next;
                            rank.expect_ok(checked_sum(rank, 3000, all - 1 - 3), "in the new one");
                            rank.expect_ok(tutti_comm_destroy(next), "destroy");
                            rank.comm = old;
                          }
                          rank.expect_ok(checked_sum(rank, 1000, all), "in the old one");
                        }),
            "");
}

TEST_P(ShrinkTest, WrongArgumentsAreRefused) {
  EXPECT_EQ(run_cluster(GetParam().options(),
                        [](Rank& rank) {
                          tutti_comm_t* next = nullptr;
                          const int beyond = rank.count();
                          const int self = rank.rank();
                          const auto refused = [&](const int* exclude, int count, int flags,
                                                   const char* what) {
                            rank.expect(tutti_comm_shrink(rank.comm, exclude, count, flags, &next, nullptr),
                                        TUTTI_INVALID_ARGUMENT, what);
                          };
                          refused(&beyond, 1, 0, "beyond");
                          rank.expect_text({"exclude[0]"}, "beyond");
                          refused(&self, 1, 0, "self");
                          refused(nullptr, 1, 0, "null");
                          refused(&beyond, -1, 0, "negative");
                          refused(nullptr, 0, 2, "flags");
                          rank.expect_true(next == nullptr, "a communicator was made");
                          rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "afterwards");
                        }),
            "");
}

// Goal: a rank that does not come is named at the deadline.
TEST_P(ShrinkTest, WhoDoesNotComeIsNamed) {
  ClusterOptions options = GetParam().options();
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          tutti_config_t config = rank.config();
                          config.setup_timeout_ms = 200;
                          tutti_comm_t* next = nullptr;
                          if (rank.rank() != rank.count() - 1) {
                            rank.expect(tutti_comm_shrink(rank.comm, nullptr, 0, 0, &next, &config),
                                        TUTTI_TIMEOUT, "shrink");
                            rank.expect_text({"rank", "tutti_comm_shrink"}, "shrink");
                          }
                          rank.meet();
                          // And when all come, it succeeds.
                          go_on(rank, rank.count());
                        }),
            "");
}

// Goal: ranks that exclude others are all told so, and none waits for the deadline; once they exclude the
// same they get a communicator. Method: the last rank excludes one more, then one less, than the others.
TEST_P(ShrinkTest, DifferentExclusionsAreAnErrorOnAll) {
  ClusterOptions options = GetParam().options();
  options.create = false;
  EXPECT_EQ(
      run_cluster(options,
                  [](Rank& rank) {
                    for (const bool more : {true, false}) {
                      if (!rank.renew()) return;
                      const bool is_last = rank.rank() == rank.count() - 1;
                      const std::array<int, 2> exclude = {1, 2};
                      const int count = is_last == more ? 2 : 1;
                      const double start = seconds_now();
                      // Rank 2 comes only where the first rank waits for it.
                      if (rank.rank() != 1 && (more || rank.rank() != 2)) {
                        tutti_comm_t* next = nullptr;
                        rank.expect(tutti_comm_shrink(rank.comm, exclude.data(), count, 0, &next, nullptr),
                                    TUTTI_MISMATCH, more ? "one more" : "one less");
                        rank.expect_text({"must exclude the same"}, "shrink");
                      }
                      rank.expect_true(seconds_now() - start < patience_s(20), "waited for the deadline");
                      rank.meet();
                      if (rank.rank() != 1 && rank.rank() != 2) {
                        tutti_comm_t* next = nullptr;
                        rank.expect_ok(tutti_comm_shrink(rank.comm, exclude.data(), 2, 0, &next, nullptr),
                                       "shrink once more");
                        rank.expect_ok(tutti_barrier(next, TUTTI_BLOCKING), "in the new one");
                        rank.expect_ok(tutti_comm_destroy(next), "destroy of the new one");
                      }
                      rank.meet();
                      rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
                      rank.comm = nullptr;
                    }
                  }),
      "");
}

// Goal: a communicator can be shrunk again at once, also by ranks that were left out, and others may lead
// then.
TEST_P(ShrinkTest, MayBeRepeated) {
  EXPECT_EQ(run_cluster(GetParam().options(),
                        [](Rank& rank) {
                          tutti_comm_t* const old = rank.comm;
                          const double all = rank.count() * (rank.count() + 1) / 2.0;
                          for (int round = 0; round < 12; ++round) {
                            const int left_out = round % 3 == 0 ? 0 : rank.count() - 1;
                            // Who is left out does not come while the others are not out of this one.
                            if (rank.rank() != left_out) {
                              tutti_comm_t* next = nullptr;
                              if (!rank.expect_ok(tutti_comm_shrink(old, &left_out, 1, 0, &next, nullptr),
                                                  "shrink"))
                                return;
                              rank.comm = next;
                              rank.expect_ok(checked_sum(rank, 10, all - 1 - left_out), "in the new one");
                              rank.expect_ok(tutti_comm_destroy(next), "destroy");
                              rank.comm = old;
                            }
                            if (round % 3 != 1) rank.expect_ok(checked_sum(rank, 10, all), "in the old one");
                          }
                        }),
            "");
}

// Goal: abort by another thread ends a shrink that waits, and frees nothing under it.
TEST_P(ShrinkTest, AbortEndsIt) {
  EXPECT_EQ(run_cluster(GetParam().options(),
                        [](Rank& rank) {
                          if (rank.rank() != 0) {
                            rank.meet();
                            return;
                          }
                          tutti_result_t result = TUTTI_SUCCESS;
                          tutti_comm_t* next = nullptr;
                          std::thread shrinks([&] {
                            rank.add(0);
                            result = tutti_comm_shrink(rank.comm, nullptr, 0, 0, &next, nullptr);
                          });
                          rank.wait_value(0, 1);
                          rank.expect_ok(tutti_comm_abort(rank.comm), "abort");
                          shrinks.join();
                          rank.comm = nullptr;
                          // It may also have come too late.
                          rank.expect_true(result == TUTTI_ABORTED || result == TUTTI_INVALID_USAGE,
                                           tutti_error_string(result));
                          rank.meet();
                        }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Arrangements, ShrinkTest,
                         testing::Values(Arrangement{threads(4)}, Arrangement{processes(4)},
                                         Arrangement{mixed(5)}, Arrangement{processes(5), 1, 2}),
                         [](const auto& test) { return test.param.name(); });

/// Ends this process a little later, whatever it is doing: by an alarm that nobody handles.
void die_in_us(uint32_t microseconds) {
  const itimerval once{{0, 0}, {0, static_cast<suseconds_t>(microseconds + 1)}};
  setitimer(ITIMER_REAL, &once, nullptr);
}

/// In which order the processes of a cluster die; the last one lives.
std::vector<int> order_of_deaths(uint32_t seed, int count) {
  std::vector<int> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  return order;
}

// Goal: survivors go on after every death, the first act being a checked sum, and nothing stays behind.
// Method: the ranks of a cluster die one after the other, in an order and at times that the seed tells,
// inside sums of a size that it tells too; the last one to die does so while the others shrink.
void survive(uint32_t seed, int count, const std::vector<int>& hosts) {
  const std::vector<int> order = order_of_deaths(seed, count);
  ClusterOptions options;
  options.layout = processes(count);
  options.hosts = hosts;
  options.lost_processes.assign(order.begin(), order.end() - 1);
  const std::string failures = run_cluster(options, [&](Rank& rank) {
    std::mt19937 random(seed * 100 + static_cast<uint32_t>(rank.rank()));
    double wanted = count * (count + 1) / 2.0;
    const size_t elements = size_t{1} << (seed % 5 * 4);
    Holdings before{};
    for (int round = 0; round + 1 < count; ++round) {
      rank.at("round " + std::to_string(round));
      rank.expect_ok(checked_sum(rank, 5000, wanted), "the first act");
      // Whoever is through this knows that all have made the checked sum.
      tutti_result_t result = tutti_barrier(rank.comm, TUTTI_BLOCKING);
      if (round == 1) before = holdings();
      const int victim = order[static_cast<size_t>(round)];
      if (rank.rank() == victim) die_in_us(static_cast<uint32_t>(random() % 3000));
      while (result == TUTTI_SUCCESS) result = checked_sum(rank, elements, wanted);
      if (rank.rank() == victim) {
        for (;;) pause();
      }
      if (!rank.expect(result, TUTTI_PEER_LOST, "after a death")) return;
      rank.expect_text({"rank "}, "after a death");
      wanted -= 1.0 + victim;
      if (!go_on(rank, count - round - 1)) return;
    }
    rank.expect_ok(checked_sum(rank, 5000, wanted), "alone");
    if (count < 4) return;
    const Holdings after = settled_holdings(before);
    rank.expect_true(after.descriptors <= before.descriptors, "descriptors have leaked");
    rank.expect_true(after.shared_mappings <= before.shared_mappings, "shared mappings have leaked");
  });
  EXPECT_EQ(failures, "") << "seed " << seed;
}

TEST(SurvivorsTest, GoOnAfterEveryDeath) {
  for (uint32_t seed = 0; seed < runs_of_scope(4, 25); ++seed) survive(seed, 5, {});
}

TEST(SurvivorsTest, GoOnAfterEveryDeathOnSeveralHosts) {
  for (uint32_t seed = 0; seed < runs_of_scope(4, 25); ++seed) survive(seed, 5, {0, 0, 1, 1, 2});
}

// Goal: a rank that dies while the others shrink is left out as well.
TEST(SurvivorsTest, GoOnWhenAnotherDiesMeanwhile) {
  for (uint32_t seed = 0; seed < runs_of_scope(6, 50); ++seed) {
    ClusterOptions options;
    options.layout = processes(4);
    const bool spread = seed % 2 != 0;
    if (spread) options.hosts = {0, 0, 1, 1};
    const std::vector<int> order = order_of_deaths(seed, 4);
    options.lost_processes = {order[0], order[1]};
    const std::string failures = run_cluster(options, [&](Rank& rank) {
      rank.expect_ok(checked_sum(rank, 100, 10), "before");
      rank.meet();
      if (rank.rank() == order[0]) kill(getpid(), SIGKILL);
      tutti_result_t result = TUTTI_SUCCESS;
      while (result == TUTTI_SUCCESS) result = checked_sum(rank, 1000, 10);
      rank.expect(result, TUTTI_PEER_LOST, "after the first death");
      if (rank.rank() == order[1]) die_in_us(seed * 137 % 1500);
      for (;;) {
        tutti_comm_t* next = nullptr;
        if (!rank.expect_ok(tutti_comm_shrink(rank.comm, nullptr, 0, 0, &next, nullptr), "shrink")) return;
        rank.expect_ok(tutti_comm_abort(rank.comm), "abort of the old one");
        rank.comm = next;
        int count = 0;
        tutti_comm_count(rank.comm, &count);
        const bool all_have_died = count == 2;
        const double left = 10.0 - (1 + order[0]) - (all_have_died ? 1 + order[1] : 0);
        do {
          result = checked_sum(rank, 1000, left);
        } while (result == TUTTI_SUCCESS && !all_have_died);
        if (all_have_died) break;
      }
      rank.expect(result, TUTTI_SUCCESS, "the two that are left");
    });
    EXPECT_EQ(failures, "") << "seed " << seed;
  }
}

// Goal: new ranks join, those that are there keep their ranks, and one of them is enough to know the id.
TEST(GrowTest, NewRanksJoin) {
  for (const auto& hosts : {std::vector<int>{}, std::vector<int>{0, 0, 1, 1}}) {
    ClusterOptions options;
    options.layout = processes(4);
    options.hosts = hosts;
    options.create = false;
    EXPECT_EQ(run_cluster(options,
                          [](Rank& rank) {
                            const bool is_old = rank.rank() < 2;
                            tutti_unique_id_t id{};
                            if (rank.rank() == 0) {
                              rank.expect_ok(tutti_get_unique_id(&id), "id");
                              std::memcpy(rank.shared_bytes(), &id, sizeof(id));
                            }
                            if (is_old) {
                              rank.expect_ok(
                                  tutti_comm_create(&rank.comm, 2, rank.id(), rank.rank(), nullptr),
                                  "create");
                            }
                            rank.meet();
                            std::memcpy(&id, rank.shared_bytes(), sizeof(id));
                            tutti_comm_t* next = nullptr;
                            const bool knows = rank.rank() != 0;
                            rank.expect_ok(tutti_comm_grow(rank.comm, 4, knows ? &id : nullptr,
                                                           is_old ? -1 : rank.rank(), &next, nullptr),
                                           "grow");
                            if (rank.comm != nullptr)
                              rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
                            rank.comm = next;
                            int number = -1;
                            tutti_comm_rank(next, &number);
                            rank.expect_true(number == rank.rank(), "rank " + std::to_string(number));
                            rank.expect_ok(checked_sum(rank, 5000, 10), "sum");
                          }),
              "");
  }
}

// A cluster of five for deaths of joiners: ranks 0 and 1 are there, 2 to 4 join, and 3 dies.
constexpr int kGrown = 5;
constexpr int kDies = 3;

ClusterOptions growing_cluster(const std::vector<int>& hosts) {
  ClusterOptions options;
  options.layout = processes(kGrown);
  options.hosts = hosts;
  options.create = false;
  options.lost_processes = {kDies};
  return options;
}

/// The communicator that is to grow, on its ranks, and the id for that, on all.
tutti_unique_id_t begin_to_grow(Rank& rank) {
  tutti_unique_id_t id{};
  if (rank.rank() == 0) {
    rank.expect_ok(tutti_get_unique_id(&id), "id");
    std::memcpy(rank.shared_bytes(), &id, sizeof(id));
  }
  if (rank.rank() < 2) {
    rank.expect_ok(tutti_comm_create(&rank.comm, 2, rank.id(), rank.rank(), nullptr), "create");
  }
  rank.meet();
  std::memcpy(&id, rank.shared_bytes(), sizeof(id));
  return id;
}

tutti_result_t grow(Rank& rank, const tutti_unique_id_t& id, tutti_comm_t** next,
                    const tutti_config_t* config) {
  const int number = rank.rank() < 2 ? -1 : rank.rank();
  return tutti_comm_grow(rank.comm, kGrown, &id, number, next, config);
}

// Goal: a joiner that is killed in the middle is named to all that are there, and to a joiner that comes
// later, at once: the deadline is two minutes. The communicator that was to grow goes on. Method: rank 3 dies
// when the bootstrap knows it; rank 4 comes when it is dead.
TEST(GrowTest, AJoinerThatDiesIsNamed) {
  for (const auto& hosts : {std::vector<int>{}, std::vector<int>{0, 0, 1, 1, 2}}) {
    EXPECT_EQ(run_cluster(growing_cluster(hosts),
                          [](Rank& rank) {
                            const tutti_unique_id_t id = begin_to_grow(rank);
                            tutti_comm_t* next = nullptr;
                            if (rank.rank() == kDies) {
                              tutti_config_t config = rank.config();
                              config.nonblocking = 1;
                              rank.expect(grow(rank, id, &next, &config), TUTTI_IN_PROGRESS, "grow");
                              rank.wait_until_joined();
                              kill(getpid(), SIGKILL);
                            }
                            if (rank.rank() == 4) rank.wait_until_dead(kDies);
                            rank.expect(grow(rank, id, &next, nullptr), TUTTI_PEER_LOST, "grow");
                            rank.expect_text({"rank 3"}, "grow");
                            rank.expect_true(next == nullptr, "a failed grow left a communicator");
                            if (rank.comm != nullptr)
                              rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "the old one");
                          }),
              "")
        << hosts.size();
  }
}

// Goal: whenever a joiner dies, all that are left hear of it: from the call, or from the first one on what it
// made. Method: it dies after some time; a short deadline for those that it has never joined.
TEST(GrowTest, AJoinerMayDieAtAnyMoment) {
  for (const auto& hosts : {std::vector<int>{}, std::vector<int>{0, 0, 1, 1, 2}}) {
    for (const unsigned us : {500u, 2000u, 6000u}) {
      EXPECT_EQ(run_cluster(growing_cluster(hosts),
                            [us](Rank& rank) {
                              const tutti_unique_id_t id = begin_to_grow(rank);
                              tutti_config_t config = rank.config();
                              config.setup_timeout_ms = static_cast<uint64_t>(patience_s(1)) * 1000;
                              if (rank.rank() == kDies) die_in_us(us);
                              tutti_comm_t* next = nullptr;
                              tutti_result_t result = grow(rank, id, &next, &config);
                              if (rank.rank() == kDies) {
                                for (;;) pause();
                              }
                              if (result == TUTTI_SUCCESS) result = tutti_barrier(next, TUTTI_BLOCKING);
                              const std::string text = tutti_last_error();
                              rank.expect_true(result == TUTTI_PEER_LOST || result == TUTTI_TIMEOUT,
                                               tutti_error_string(result));
                              rank.expect_true(text.find('3') != std::string::npos, text);
                              // An abort before that would be what the others hear of first.
                              rank.add(0);
                              rank.wait_value(0, kGrown - 1);
                              if (next != nullptr) rank.expect_ok(tutti_comm_abort(next), "abort");
                              if (rank.comm != nullptr)
                                rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "the old one");
                              rank.add(1);
                              rank.wait_value(1, kGrown - 1);
                            }),
                "")
          << us << " us, " << hosts.size();
    }
  }
}

TEST(GrowTest, WrongArgumentsAreRefused) {
  ClusterOptions options;
  options.layout = processes(2);
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          tutti_comm_t* next = nullptr;
                          tutti_unique_id_t id;
                          rank.expect_ok(tutti_get_unique_id(&id), "id");
                          rank.expect(tutti_comm_grow(rank.comm, 2, &id, -1, &next, nullptr),
                                      TUTTI_INVALID_ARGUMENT, "no more ranks than there are");
                          rank.expect(tutti_comm_grow(rank.comm, 3, nullptr, -1, &next, nullptr),
                                      TUTTI_INVALID_ARGUMENT, "no id");
                          rank.expect(tutti_comm_grow(nullptr, 3, nullptr, 2, &next, nullptr),
                                      TUTTI_INVALID_ARGUMENT, "a new rank without id");
                          rank.expect(tutti_comm_grow(rank.comm, 3, &id, 2, &next, nullptr),
                                      TUTTI_INVALID_ARGUMENT, "another rank");
                          rank.expect_ok(tutti_barrier(rank.comm, TUTTI_BLOCKING), "afterwards");
                        }),
            "");
}

}  // namespace
}  // namespace tutti::test
