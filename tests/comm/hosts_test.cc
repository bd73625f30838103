// Communicators over several hosts, emulated by TUTTI_HOSTID on the loopback network.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/file_descriptor.h"
#include "net/locality.h"
#include "tests/support/cluster.h"

namespace tutti::test {
namespace {

TEST(PlaceTest, AHostIdTellsProcessesApart) {
  EXPECT_EQ(find_locality("a").host, find_locality("a").host);
  EXPECT_NE(find_locality("a").host, find_locality("b").host);
  EXPECT_EQ(find_locality("a").machine, find_locality("b").machine);
}

// Goal: hosts that are containers of one machine have rows of the table for themselves, and ranks know that
// they are. Between other hosts an all_to_all of 16 bytes takes "direct".
TEST(PlaceTest, ContainersOfOneMachineKnowThatTheyAre) {
  const ClusterOptions options{.layout = processes(4), .hosts = {0, 0, 1, 1}};
  const std::string failures = run_cluster(options, [](Rank& rank) {
    const std::vector<int> sent(4, rank.rank());
    std::vector<int> received(4);
    rank.expect_ok(tutti_all_to_all(sent.data(), received.data(), 1, TUTTI_INT32, rank.comm, TUTTI_BLOCKING),
                   "all_to_all");
    rank.expect_true(received == std::vector<int>{0, 1, 2, 3}, "the blocks");
    char text[1024] = "";
    rank.expect_ok(tutti_comm_explain(rank.comm, text, sizeof(text)), "explain");
    rank.expect_true(std::string_view(text).find("hierarchical") != std::string_view::npos, text);
  });
  EXPECT_EQ(failures, "");
}

struct Hosts {
  const char* name;
  std::vector<int> layout;
  std::vector<int> hosts;
  std::vector<std::pair<std::string, std::string>> environment = {};
};

const std::vector<std::pair<std::string, std::string>> kTls = {{"TUTTI_TLS", "1"}};

void PrintTo(const Hosts& hosts, std::ostream* out) {
  *out << hosts.name;
}

class HostsTest : public testing::TestWithParam<Hosts> {
 protected:
  ClusterOptions options() const {
    return {.layout = GetParam().layout, .hosts = GetParam().hosts, .environment = GetParam().environment};
  }
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

INSTANTIATE_TEST_SUITE_P(
    Hosts, HostsTest,
    testing::Values(Hosts{"Two", {1, 1}, {0, 1}}, Hosts{"TwoOfTwo", {1, 1, 1, 1}, {0, 0, 1, 1}},
                    Hosts{"Cyclic", {1, 1, 1, 1}, {0, 1, 0, 1}}, Hosts{"Uneven", {2, 1, 2}, {0, 0, 1}},
                    Hosts{"Three", {1, 1, 1}, {0, 1, 2}},
                    Hosts{"TwoByTcpByName", {1, 1}, {0, 1}, {{"TUTTI_TRANSPORT", "tcp"}}},
                    Hosts{"TwoByTls", {1, 1}, {0, 1}, kTls}, Hosts{"UnevenByTls", {2, 1, 2}, {0, 0, 1}, kTls},
                    Hosts{"ThreeByTwoTlsConnections",
                          {1, 1, 1},
                          {0, 1, 2},
                          {{"TUTTI_TLS", "1"}, {"TUTTI_CONNECTIONS", "2"}}}),
    [](const auto& test) { return test.param.name; });

TEST(TransportSettingTest, AnUnknownNameIsToldWithTheNamesThatExist) {
  ClusterOptions options{.layout = {1, 1}, .hosts = {0, 1}, .create = false};
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          const tutti_unique_id_t id = rank.id();
                          setenv("TUTTI_TRANSPORT", "tpc", 1);
                          rank.expect(tutti_comm_create(&rank.comm, 2, id, rank.rank(), nullptr),
                                      TUTTI_INVALID_ARGUMENT, "create");
                          rank.expect_text({"TUTTI_TRANSPORT", "\"tpc\"", "tcp"}, "create");
                        }),
            "");
}

TEST(TransportSettingTest, RanksThatDoNotAgreeAreTold) {
  ClusterOptions options{.layout = {1, 1}, .hosts = {0, 1}, .create = false};
  EXPECT_EQ(
      run_cluster(options,
                  [](Rank& rank) {
                    const tutti_unique_id_t id = rank.id();
                    if (rank.rank() == 1) setenv("TUTTI_TRANSPORT", "tcp", 1);
                    rank.expect(tutti_comm_create(&rank.comm, 2, id, rank.rank(), nullptr),
                                TUTTI_INVALID_ARGUMENT, "create");
                    rank.expect_text({"TUTTI_TRANSPORT", "tcp on rank 1", "not set on rank 0"}, "create");
                  }),
      "");
}

TEST(TlsHostsTest, RanksThatDoNotAgreeAreTold) {
  ClusterOptions options{.layout = {1, 1}, .hosts = {0, 1}, .create = false};
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          const tutti_unique_id_t id = rank.id();
                          if (rank.rank() == 1) setenv("TUTTI_TLS", "1", 1);
                          rank.expect(tutti_comm_create(&rank.comm, 2, id, rank.rank(), nullptr),
                                      TUTTI_INVALID_ARGUMENT, "create");
                          rank.expect_text({"TUTTI_TLS", "rank 1"}, "create");
                        }),
            "");
}

TEST(TlsHostsTest, AKilledRankIsNamed) {
  ClusterOptions options{.layout = {1, 1, 1}, .hosts = {0, 1, 2}, .environment = kTls};
  options.lost_processes = {2};
  EXPECT_EQ(run_cluster(options,
                        [](Rank& rank) {
                          float value = 1;
                          if (rank.rank() == 2) {
                            rank.meet();
                            raise(SIGKILL);
                          }
                          rank.meet();
                          rank.expect(tutti_all_reduce(&value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM, rank.comm,
                                                       TUTTI_BLOCKING),
                                      TUTTI_PEER_LOST, "all_reduce");
                          rank.expect_text({"rank 2"}, "all_reduce");
                        }),
            "");
}

/// What passes on the loopback interface, kept by the kernel until it is looked at.
class Capture {
 public:
  Capture() : socket_(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL))) {
    sockaddr_ll where{};
    where.sll_family = AF_PACKET;
    where.sll_protocol = htons(ETH_P_ALL);
    where.sll_ifindex = static_cast<int>(if_nametoindex("lo"));
    const int room = 256 << 20;
    is_open_ = socket_.is_open() &&
               setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) == 0 &&
               bind(socket_.get(), reinterpret_cast<const sockaddr*>(&where), sizeof(where)) == 0;
  }
  bool is_open() const { return is_open_; }
  bool has_seen(const std::string& text) {
    std::vector<char> packet(1 << 17);
    for (bool seen = false;;) {
      const ssize_t bytes = recv(socket_.get(), packet.data(), packet.size(), 0);
      if (bytes <= 0) return seen;
      seen =
          seen || std::string_view(packet.data(), static_cast<size_t>(bytes)).find(text) != std::string::npos;
    }
  }

 private:
  FileDescriptor socket_;
  bool is_open_ = false;
};

// Goal: with TLS nothing of the data can be read on the network between hosts; without, it can: the capture
// works.
TEST(TlsHostsTest, DataIsNotOnTheWireInClear) {
  for (const bool tls : {false, true}) {
    Capture capture;
    if (!capture.is_open()) GTEST_SKIP() << "capturing packets needs root (CAP_NET_RAW, CAP_NET_ADMIN)";
    const std::string secret = "this is said between two ranks of process " + std::to_string(getpid()) +
                               (tls ? " by TLS" : " in clear");
    ClusterOptions options{.layout = {1, 1}, .hosts = {0, 1}};
    if (tls) options.environment = kTls;
    EXPECT_EQ(run_cluster(options,
                          [&secret](Rank& rank) {
                            for (const size_t count : {size_t{1}, size_t{3000}}) {
                              std::string text;
                              for (size_t i = 0; i < count; ++i) text += secret;
                              std::string got(text.size(), ' ');
                              rank.expect_ok(
                                  tutti_broadcast(rank.rank() == 0 ? text.data() : got.data(), got.data(),
                                                  got.size(), TUTTI_UINT8, 0, rank.comm, TUTTI_BLOCKING),
                                  "broadcast");
                              rank.expect_true(got == text, "what came");
                            }
                          }),
              "");
    EXPECT_EQ(capture.has_seen(secret), !tls);
  }
}

}  // namespace
}  // namespace tutti::test
