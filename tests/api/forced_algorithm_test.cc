// force_algorithm: algorithms in turns on one communicator, as the perf tools compare them.
#include "api/forced_algorithm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

constexpr const char* kNames[] = {"ring", "double_binary_tree", "hierarchical", nullptr};
constexpr size_t kCounts[] = {3, 5'000, 100'000};

std::string explain(const Rank& rank) {
  char text[512] = "";
  (void)tutti_comm_explain(rank.comm, text, sizeof(text));
  return text;
}

void check_all_reduce(Rank& rank, size_t count, const char* name) {
  const std::vector<int> sent(count, rank.rank() + 1);
  std::vector<int> received(count, -1);
  rank.expect_ok(tutti_all_reduce(sent.data(), received.data(), count, TUTTI_INT32, TUTTI_SUM, rank.comm,
                                  TUTTI_BLOCKING),
                 "all_reduce");
  const int sum = rank.count() * (rank.count() + 1) / 2;
  rank.expect_true(std::ranges::all_of(received, [&](int one) { return one == sum; }), "the sum");
  const std::string text = explain(rank);
  const std::string wanted = name == nullptr ? "" : "algorithm " + std::string(name) + ", by force_algorithm";
  rank.expect_true(text.find(wanted) != std::string::npos, text);
  rank.expect_true((text.find("by force_algorithm") == std::string::npos) == (name == nullptr), text);
}

/// Rank i sends i + 1 elements to all.
void check_all_gather_v(Rank& rank) {
  std::vector<size_t> counts(static_cast<size_t>(rank.count()));
  std::iota(counts.begin(), counts.end(), 1);
  const std::vector<int> sent(static_cast<size_t>(rank.rank()) + 1, rank.rank());
  std::vector<int> received(std::accumulate(counts.begin(), counts.end(), size_t{0}), -1);
  rank.expect_ok(tutti_all_gather_v(sent.data(), received.data(), counts.data(), nullptr, TUTTI_INT32,
                                    rank.comm, TUTTI_BLOCKING),
                 "all_gather_v");
  auto next = received.begin();
  for (int from = 0; from < rank.count(); ++from) {
    for (int i = 0; i <= from; ++i) rank.expect_true(*next++ == from, "a block of all_gather_v");
  }
}

/// Each rank sends each its own number.
void check_all_to_all_v(Rank& rank) {
  const auto ranks = static_cast<size_t>(rank.count());
  const std::vector<size_t> counts(ranks, 5);
  const std::vector<int> sent(5 * ranks, rank.rank());
  std::vector<int> received(sent.size(), -1);
  rank.expect_ok(tutti_all_to_all_v(sent.data(), counts.data(), nullptr, received.data(), counts.data(),
                                    nullptr, TUTTI_INT32, rank.comm, TUTTI_BLOCKING),
                 "all_to_all_v");
  for (size_t i = 0; i < received.size(); ++i)
    rank.expect_true(received[i] == static_cast<int>(i / 5), "a block of all_to_all_v");
}

// Goal: results are right whichever algorithm is named between calls, and each call runs by it. Method: short
// and long calls, twice each in a row, so that bound and repeated calls take part; on one host and on two.
TEST(ForcedAlgorithmTest, AlgorithmsTakeTurns) {
  for (const std::vector<int>& hosts : {std::vector<int>{}, {0, 0, 1, 1}}) {
    const ClusterOptions options{.layout = processes(4), .hosts = hosts};
    EXPECT_EQ(run_cluster(options,
                          [](Rank& rank) {
                            for (int turn = 0; turn < 3; ++turn) {
                              for (const char* const name : kNames) {
                                rank.expect_true(force_algorithm(rank.comm, name).is_ok(), "force_algorithm");
                                for (const size_t count : kCounts) {
                                  check_all_reduce(rank, count, name);
                                  check_all_reduce(rank, count, name);
                                }
                                check_all_gather_v(rank);
                                check_all_to_all_v(rank);
                                check_all_to_all_v(rank);
                              }
                            }
                          }),
              "");
  }
}

// Goal: long calls that are still being tried in several ways are right, too.
TEST(ForcedAlgorithmTest, LongCallsTakeTurns) {
  EXPECT_EQ(run_cluster({},
                        [](Rank& rank) {
                          for (int turn = 0; turn < 160; ++turn) {
                            const char* const name = kNames[turn % std::size(kNames)];
                            rank.expect_true(force_algorithm(rank.comm, name).is_ok(), "force_algorithm");
                            check_all_reduce(rank, 100'000, name);
                          }
                        }),
            "");
}

// Goal: what the communicator is in error with stays, and is told.
TEST(ForcedAlgorithmTest, AnErrorIsTold) {
  ClusterOptions options;
  options.create = false;
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          if (!rank.renew()) return;
                          check_all_to_all_v(rank);
                          rank.expect_ok(tutti_comm_set_timeout(rank.comm, 50), "set_timeout");
                          int word = 0;
                          rank.expect(tutti_recv(&word, 1, TUTTI_INT32, 1 - rank.rank(), 0, rank.comm,
                                                 TUTTI_BLOCKING),
                                      TUTTI_TIMEOUT, "a message that nobody sends");
                          const Status forced = force_algorithm(rank.comm, "ring");
                          rank.expect_true(forced.code() == Code::kTimeout, "force_algorithm after an error");
                          (void)tutti_comm_destroy(rank.comm);
                          rank.comm = nullptr;
                        }),
            "");
}

// Goal: a name that no algorithm has, and a handle that names no communicator, change nothing.
TEST(ForcedAlgorithmTest, MistakesAreRefused) {
  EXPECT_EQ(run_cluster({.layout = {2}},
                        [](Rank& rank) {
                          const Status unknown = force_algorithm(rank.comm, "rings");
                          rank.expect_true(unknown.code() == Code::kInvalidArgument, "an unknown name");
                          rank.expect_true(unknown.text().find("\"rings\"") != std::string_view::npos,
                                           "the error names it");
                          check_all_reduce(rank, 3, nullptr);
                        }),
            "");
  EXPECT_FALSE(force_algorithm(nullptr, "ring").is_ok());
}

}  // namespace
}  // namespace tutti::test
