// all_to_all_v between emulated hosts, where ranks hand on short blocks of others: the choice, calls that do
// not match, lost ranks, groups. tests/engine/blocks_test.cc and the conformance tests check the blocks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

/// Two hosts of three ranks, forced to hand blocks on.
ClusterOptions by_hosts() {
  return {.layout = processes(6),
          .hosts = {0, 0, 0, 1, 1, 1},
          .environment = {{"TUTTI_ALGORITHM", "hierarchical"}}};
}

/// A call in which each rank's element is its own number. Counts are of the pair (sender, receiver).
class Exchange {
 public:
  using Counts = std::function<size_t(int from, int to)>;

  Exchange(const Rank& rank, const Counts& counts) : rank_(rank) {
    for (int peer = 0; peer < rank.count(); ++peer) {
      send_counts_.push_back(counts(rank.rank(), peer));
      recv_counts_.push_back(counts(peer, rank.rank()));
    }
    send_.assign(sum(send_counts_), rank.rank());
    recv_.assign(sum(recv_counts_), -1);
  }
  void expect_from(int peer, size_t count) {
    recv_counts_[static_cast<size_t>(peer)] = count;
    recv_.assign(sum(recv_counts_), -1);
  }
  tutti_result_t run() {
    return tutti_all_to_all_v(send_.data(), send_counts_.data(), nullptr, recv_.data(), recv_counts_.data(),
                              nullptr, TUTTI_INT32, rank_.comm, TUTTI_BLOCKING);
  }
  bool is_right() const {
    auto next = recv_.begin();
    for (int peer = 0; peer < rank_.count(); ++peer) {
      for (size_t i = 0; i < recv_counts_[static_cast<size_t>(peer)]; ++i) {
        if (*next++ != peer) return false;
      }
    }
    return true;
  }

 private:
  static size_t sum(const std::vector<size_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), size_t{0});
  }

  const Rank& rank_;
  std::vector<size_t> send_counts_;
  std::vector<size_t> recv_counts_;
  std::vector<int32_t> send_;
  std::vector<int32_t> recv_;
};

size_t few(int from, int to) {
  return static_cast<size_t>((from * 5 + to * 3) % 7);
}

// Goal: counts that two ranks of different hosts do not agree on are an error on every rank, and the receiver
// names the sender, not the rank that handed the block on. Method: rank 0 hands on what rank 1
// sends rank 3.
TEST(AllToAllVHostsTest, CountsThatDifferNameBothRanks) {
  struct Case {
    size_t sent;
    size_t expected;
    const char* text;
  };
  constexpr size_t kLong = 10'000;
  ClusterOptions options = by_hosts();
  options.create = false;
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          for (const Case& odd : {Case{3, 4, "its first part has 12 bytes, 16 were expected"},
                                                  Case{0, 4, "its first part has 0 bytes, 16 were expected"},
                                                  Case{3, kLong, "its count is not the expected one"},
                                                  Case{kLong, 0, "its count is not the expected one"},
                                                  Case{kLong, kLong + 1, "rank 1 to rank 3"}}) {
                            if (!rank.renew()) return;
                            const auto counts = [&](int from, int to) {
                              return from == 1 && to == 3 ? odd.sent : few(from, to);
                            };
                            Exchange right(rank, few);
                            rank.expect_ok(right.run(), "a correct call");
                            rank.meet();
                            Exchange exchange(rank, counts);
                            if (rank.rank() == 3) exchange.expect_from(1, odd.expected);
                            tutti_result_t result = exchange.run();
                            if (result == TUTTI_SUCCESS) result = tutti_barrier(rank.comm, TUTTI_BLOCKING);
                            rank.expect(result, TUTTI_MISMATCH, odd.text);
                            rank.expect_text({"a message from rank 1 to rank 3 does not match", odd.text},
                                             std::to_string(odd.sent));
                            rank.meet();
                            rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
                            rank.comm = nullptr;
                          }
                        }),
            "");
}

// Goal: another call on one rank is an error that names both calls, also where only counterparts see it.
TEST(AllToAllVHostsTest, AnotherCallIsAMismatch) {
  for (const int odd : {0, 4}) {
    EXPECT_EQ(run_cluster(by_hosts(),
                          [odd](Rank& rank) {
                            Exchange exchange(rank, few);
                            rank.expect_ok(exchange.run(), "a correct call");
                            rank.meet();
                            const tutti_result_t result = rank.rank() == odd
                                                              ? tutti_barrier(rank.comm, TUTTI_BLOCKING)
                                                              : exchange.run();
                            rank.expect(result, TUTTI_MISMATCH, "the odd call");
                            rank.expect_text({"all_to_all_v(int32)", "barrier()"}, "the odd call");
                          }),
              "");
  }
}

// Goal: a rank that is killed while others wait for blocks that it would hand on is named on every rank.
TEST(AllToAllVHostsTest, AKilledRankIsNamed) {
  for (const bool in_the_call : {false, true}) {
    ClusterOptions options = by_hosts();
    options.lost_processes = {4};
    EXPECT_EQ(run_cluster(options,
                          [in_the_call](Rank& rank) {
                            Exchange exchange(rank, few);
                            rank.expect_ok(exchange.run(), "a correct call");
                            rank.meet();
                            if (rank.rank() == 4) {
                              if (in_the_call) std::thread([] { kill(getpid(), SIGKILL); }).detach();
                              while (in_the_call && exchange.run() == TUTTI_SUCCESS) {
                              }
                              kill(getpid(), SIGKILL);
                            }
                            tutti_result_t result = TUTTI_SUCCESS;
                            while (result == TUTTI_SUCCESS) result = exchange.run();
                            rank.expect(result, TUTTI_PEER_LOST, "without rank 4");
                            rank.expect_text({"rank 4"}, "without rank 4");
                          }),
              "");
  }
}

// Goal: in a group with messages and another collective, and with counts that change from call to call.
TEST(AllToAllVHostsTest, InAGroupWithMessages) {
  EXPECT_EQ(
      run_cluster(
          by_hosts(),
          [](Rank& rank) {
            for (int call = 0; call < 20; ++call) {
              const auto counts = [call](int from, int to) {
                const int draw = (from * 7 + to * 11 + call * 5) % 13;
                return draw < 4 ? size_t{0} : draw < 12 ? static_cast<size_t>(draw) : size_t{9000};
              };
              Exchange first(rank, counts);
              Exchange second(rank, few);
              const int32_t out = rank.rank();
              int32_t in = -1;
              const int to = (rank.rank() + 1) % rank.count();
              const int from = (rank.rank() + rank.count() - 1) % rank.count();
              rank.expect_ok(tutti_group_start(), "start");
              rank.expect_ok(first.run(), "first");
              rank.expect_ok(tutti_send(&out, 1, TUTTI_INT32, to, 0, rank.comm, TUTTI_BLOCKING), "send");
              rank.expect_ok(second.run(), "second");
              rank.expect_ok(tutti_recv(&in, 1, TUTTI_INT32, from, 0, rank.comm, TUTTI_BLOCKING), "recv");
              rank.expect_ok(tutti_group_end(), "end");
              rank.expect_true(first.is_right() && second.is_right() && in == from,
                               "call " + std::to_string(call));
            }
            char words[1024] = "";
            rank.expect_ok(tutti_comm_explain(rank.comm, words, sizeof(words)), "explain");
            const std::string text = words;
            const char* const wanted =
                "algorithm hierarchical, by TUTTI_ALGORITHM, for blocks of up to 16384 bytes";
            rank.expect_true(text.find(wanted) != std::string::npos, text);
          }),
      "");
}

/// What the communicator says of its last all_to_all_v between these hosts.
std::string explained(const std::string& machine, const std::vector<int>& hosts) {
  const std::string file = testing::TempDir() + "/tutti-blocks-" + std::to_string(getpid()) + ".topo";
  std::ofstream(file) << machine;
  const ClusterOptions options{.layout = processes(static_cast<int>(hosts.size())),
                               .hosts = hosts,
                               .environment = {{"TUTTI_TOPOLOGY_FILE", file}},
                               .create = false};
  // The failure of rank 0 carries the text out of its process.
  const std::string text = run_cluster(options, [&](Rank& rank) {
    if (!rank.renew()) return;
    Exchange exchange(rank, few);
    rank.expect_ok(exchange.run(), "all_to_all_v");
    rank.expect_true(exchange.is_right(), "the blocks");
    char words[1024] = "";
    rank.expect_ok(tutti_comm_explain(rank.comm, words, sizeof(words)), "explain");
    if (rank.rank() == 0) rank.fail(words);
    rank.expect_ok(tutti_comm_destroy(rank.comm), "destroy");
    rank.comm = nullptr;
  });
  std::remove(file.c_str());
  return text;
}

// Goal: blocks are handed on where that is predicted to be faster, up to a size; else each is a message.
TEST(AllToAllVHostsTest, ThePriceChooses) {
  const std::string few_hosts = explained("2 hosts x 2 cores, nic 10 Gbit/s", {0, 1});
  EXPECT_NE(few_hosts.find("all_to_all_v(int32): every block is a message"), std::string::npos) << few_hosts;
  const std::string many =
      explained("4 hosts x 4 cores, nic 10 Gbit/s", {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3});
  EXPECT_NE(many.find("all_to_all_v(int32): algorithm hierarchical, predicted "), std::string::npos) << many;
  EXPECT_NE(many.find(" bytes; longer ones are messages, to rank"), std::string::npos) << many;
}

}  // namespace
}  // namespace tutti::test
