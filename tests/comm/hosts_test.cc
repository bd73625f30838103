// Communicators over several hosts, emulated by TUTTI_HOSTID on the loopback network.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "comm/hosts.h"
#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

TEST(PlaceTest, AHostIdTellsProcessesApart) {
  EXPECT_EQ(find_place("a").host, find_place("a").host);
  EXPECT_NE(find_place("a").host, find_place("b").host);
  EXPECT_EQ(find_place("a").machine, find_place("b").machine);
}

struct Hosts {
  const char* name;
  std::vector<int> layout;
  std::vector<int> hosts;
};

void PrintTo(const Hosts& hosts, std::ostream* out) {
  *out << hosts.name;
}

class HostsTest : public testing::TestWithParam<Hosts> {
 protected:
  ClusterOptions options() const { return {.layout = GetParam().layout, .hosts = GetParam().hosts}; }
};

// Goal: sums and messages between hosts are right, from one element to many rounds.
TEST_P(HostsTest, AllReduceAndMessagesAreRight) {
  const std::string failures = run_cluster(options(), [](Rank& rank) {
    for (const size_t count : {size_t{1}, size_t{13}, size_t{5000}, size_t{300'000}}) {
      std::vector<double> data(count);
      std::iota(data.begin(), data.end(), rank.rank());
      rank.expect_ok(tutti_all_reduce(data.data(), data.data(), count, TUTTI_FLOAT64, TUTTI_SUM, rank.comm,
                                      TUTTI_BLOCKING),
                     "all_reduce");
      const int ranks = rank.count();
      bool right = true;
      for (size_t i = 0; i < count; ++i) {
        right = right && data[i] == static_cast<double>(i) * ranks + ranks * (ranks - 1) / 2.0;
      }
      rank.expect_true(right, "sum of " + std::to_string(count));
      std::vector<double> got(count);
      const int to = (rank.rank() + 1) % ranks;
      const int from = (rank.rank() + ranks - 1) % ranks;
      data.assign(count, rank.rank());
      rank.expect_ok(tutti_group_start(), "group");
      rank.expect_ok(tutti_send(data.data(), count, TUTTI_FLOAT64, to, 0, rank.comm, TUTTI_BLOCKING), "send");
      rank.expect_ok(tutti_recv(got.data(), count, TUTTI_FLOAT64, from, 0, rank.comm, TUTTI_BLOCKING),
                     "recv");
      rank.expect_ok(tutti_group_end(), "group");
      rank.expect_true(got == std::vector<double>(count, from), "message of " + std::to_string(count));
    }
  });
  EXPECT_EQ(failures, "");
}

INSTANTIATE_TEST_SUITE_P(Hosts, HostsTest,
                         testing::Values(Hosts{"Two", {1, 1}, {0, 1}},
                                         Hosts{"TwoOfTwo", {1, 1, 1, 1}, {0, 0, 1, 1}},
                                         Hosts{"Cyclic", {1, 1, 1, 1}, {0, 1, 0, 1}},
                                         Hosts{"Uneven", {2, 1, 2}, {0, 0, 1}},
                                         Hosts{"Three", {1, 1, 1}, {0, 1, 2}}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tutti::test
