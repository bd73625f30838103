// Goal: a path that fails costs no message, and no message comes twice. Method: two ranks of this process
// over the fake devices, which fail as they are told. The simulated reader checks number and contents of each
// message.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <functional>
#include <string>

#include "core/clock.h"
#include "tests/rdma/provider/control.h"
#include "tests/support/scope.h"
#include "tests/transports/mesh.h"
#include "transports/rdma/rdma_connection.h"

namespace tutti::test {
namespace {

constexpr RingShape kLargeSlots{.slots = 8, .slot_bytes = 16384};
constexpr uint32_t kDevices = 2;

const TransportCase& rdma_case() {
  for (const TransportCase& one : transport_cases()) {
    if (one.name == "rdma") return one;
  }
  ADD_FAILURE() << "the fake devices are not found";
  return transport_cases()[0];
}

class RdmaFailoverTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_verbs::reset(1);
    testing::internal::CaptureStderr();
  }
  void TearDown() override {
    if (!log_is_read_) read_log();
    const fake_verbs::Seen seen = fake_verbs::seen();
    EXPECT_EQ(seen.misuse, "");
    EXPECT_EQ(seen.open_objects, 0u) << "left open";
    EXPECT_EQ(seen.registered_bytes, 0u);
  }
  std::string read_log() {
    log_is_read_ = true;
    return testing::internal::GetCapturedStderr();
  }

  /// Gives both ranks turns until `is_done`; false: a minute has passed.
  static bool run_until(Mesh& mesh, const std::function<bool()>& is_done) {
    const uint64_t deadline_ns = deadline_after_ms(60'000);
    while (!is_done()) {
      if (now_ns() > deadline_ns) return false;
      for (uint32_t rank = 0; rank < 2; ++rank) mesh.transport(rank).progress();
    }
    return true;
  }
  static std::string detour(Mesh& mesh, uint32_t rank) {
    return mesh.side(rank, 1 - rank).connection().detour();
  }
  static std::string route(Mesh& mesh, uint32_t rank) {
    return mesh.side(rank, 1 - rank).connection().route();
  }
  /// Traffic to its end, with `disturb` called before every turn. What was wrong, or empty.
  static std::string run(Mesh& mesh, uint64_t seed, uint64_t messages, const std::function<void()>& disturb) {
    Traffic traffic(mesh.side(0, 1), mesh.side(1, 0), seed, messages, seed % 2 == 0);
    SimRandom random(seed);
    const uint64_t deadline_ns = deadline_after_ms(60'000);
    while (!traffic.complete() && traffic.failure().empty()) {
      disturb();
      traffic.turn(static_cast<uint32_t>(random.below(2)));
      for (uint32_t rank = 0; rank < 2; ++rank) {
        const Status& status = mesh.side(rank, 1 - rank).connection().status();
        if (!status.is_ok()) return std::string(status.text());
        mesh.transport(rank).progress();
      }
      if (now_ns() > deadline_ns) return "not done after a minute: " + route(mesh, 0);
    }
    return traffic.failure();
  }

 private:
  bool log_is_read_ = false;
};

TEST_F(RdmaFailoverTest, AnyFailedRequestMovesTheTrafficAndLosesNothing) {
  for (const int status :
       {IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_PROT_ERR,
        IBV_WC_WR_FLUSH_ERR, IBV_WC_FATAL_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_INV_REQ_ERR}) {
    for (uint64_t seed = 1; seed <= runs_of_scope(2, 20); ++seed) {
      fake_verbs::reset(seed);
      Mesh mesh(rdma_case(), {.shape = kLargeSlots, .channels = 5});
      uint64_t turns = 0;
      const std::string wrong = run(mesh, seed, 100, [&] {
        if (++turns == 5 + seed) fake_verbs::fail_sometimes(seed % kDevices, 3, status);
      });
      ASSERT_EQ(wrong, "") << "status " << status << ", seed " << seed;
    }
  }
  const std::string log = read_log();
  EXPECT_NE(log.find("goes on over"), std::string::npos) << log;
}

TEST_F(RdmaFailoverTest, APortThatGoesDownMovesTheTrafficAndBackWhenItReturns) {
  Mesh mesh(rdma_case(), {.shape = kLargeSlots, .channels = 5});
  const std::string before = route(mesh, 0);
  EXPECT_EQ(before.find("instead"), std::string::npos) << before;
  uint64_t turns = 0;
  ASSERT_EQ(run(mesh, 3, 300,
                [&] {
                  if (++turns == 20) fake_verbs::set_port(1, false);
                }),
            "");
  const auto says = [&](const char* words) { return route(mesh, 0).find(words) != std::string::npos; };
  EXPECT_TRUE(run_until(mesh, [&] { return says("instead of") && says("the port went down"); }))
      << route(mesh, 0);
  EXPECT_NE(route(mesh, 0).find(detour(mesh, 0)), std::string::npos) << detour(mesh, 0);
  EXPECT_NE(detour(mesh, 0).find("the port went down"), std::string::npos) << detour(mesh, 0);
  fake_verbs::set_port(1, true);
  EXPECT_TRUE(run_until(mesh, [&] { return route(mesh, 0) == before; })) << route(mesh, 0);
  EXPECT_EQ(detour(mesh, 0), "");
  ASSERT_EQ(run(mesh, 4, 100, [] {}), "");
  EXPECT_EQ(route(mesh, 0), before);
  const std::string log = read_log();
  for (const char* part :
       {"RDMA device fake1, port 1: the port went down", "goes on over fake0", "goes again over"})
    EXPECT_NE(log.find(part), std::string::npos) << log;
}

TEST_F(RdmaFailoverTest, WithoutAnyPortTheTrafficGoesOverTcpAndBack) {
  Mesh mesh(rdma_case(), {.shape = kLargeSlots, .channels = 5});
  const std::string before = route(mesh, 0);
  uint64_t turns = 0;
  ASSERT_EQ(run(mesh, 5, 300,
                [&] {
                  ++turns;
                  if (turns == 20) fake_verbs::set_port(1, false);
                  if (turns == 30) fake_verbs::set_port(0, false);
                }),
            "");
  EXPECT_EQ(route(mesh, 1).find("TCP"), 0u) << route(mesh, 1);
  for (uint32_t device = 0; device < kDevices; ++device) fake_verbs::set_port(device, true);
  EXPECT_TRUE(run_until(mesh, [&] { return route(mesh, 0) == before; })) << route(mesh, 0);
  ASSERT_EQ(run(mesh, 6, 100, [] {}), "");
}

TEST_F(RdmaFailoverTest, FaultsOfAllKindsInAnyOrderLoseNothing) {
  for (uint64_t seed = 1; seed <= runs_of_scope(30, 500); ++seed) {
    fake_verbs::reset(seed);
    Mesh mesh(rdma_case(), {.shape = kLargeSlots, .channels = 5});
    SimRandom random(seed * 77);
    bool is_up[kDevices] = {true, true};
    const std::string wrong = run(mesh, seed, 400, [&] {
      if (!random.one_in(40)) return;
      const auto device = static_cast<uint32_t>(random.below(kDevices));
      switch (random.below(5)) {
        case 0: fake_verbs::set_port(device, is_up[device] = !is_up[device]); break;
        case 1: fake_verbs::hold(random.one_in(2)); break;
        case 2: fake_verbs::fail_sometimes(device, 1 + random.below(50), IBV_WC_RETRY_EXC_ERR); break;
        case 3: fake_verbs::raise_event(device, IBV_EVENT_DEVICE_FATAL); break;
        default: fake_verbs::fail_sometimes(device, 0, 0); break;
      }
      if (random.one_in(2)) fake_verbs::hold(false);
    });
    fake_verbs::hold(false);
    ASSERT_EQ(wrong, "") << "seed " << seed;
  }
}

TEST_F(RdmaFailoverTest, ARankThatComputesWhileItsPeerFailsGetsAllOfIt) {
  Mesh mesh(rdma_case(), {.shape = kLargeSlots, .channels = 5});
  SendLink& link = mesh.side(0, 1).send(1);
  std::fill_n(link.span(5000), 5000, std::byte{7});
  link.commit(9, 5000);
  fake_verbs::set_port(0, false);
  fake_verbs::set_port(1, false);
  const RecvLink& reader = mesh.side(1, 0).recv(1);
  EXPECT_TRUE(run_until(mesh, [&] { return flag::bytes(reader.word()) == 5000; }));
}

// Regression: a call waited for the peer to answer a lane's way back to its rail, and the peer made no call.
TEST_F(RdmaFailoverTest, AWayBackHoldsNoCallWhileThePeerComputes) {
  constexpr int kTurns = 300;  // the socket is looked at once in 256 vain turns
  Mesh mesh(rdma_case(), {.shape = kLargeSlots, .channels = 5});
  const std::string before = route(mesh, 0);
  fake_verbs::set_port(1, false);
  ASSERT_TRUE(run_until(mesh, [&] { return !detour(mesh, 0).empty() && !detour(mesh, 1).empty(); }));
  fake_verbs::set_port(1, true);
  const Connection& connection = mesh.side(0, 1).connection();
  EXPECT_TRUE(run_until(mesh, [&] {
    for (int turn = 0; turn < kTurns; ++turn) mesh.transport(0).progress();
    EXPECT_TRUE(connection.drained()) << route(mesh, 0);
    return route(mesh, 0) == before;
  }));
  ASSERT_EQ(run(mesh, 4, 100, [] {}), "");
}

// Regression: of a rail's two registrations the first stayed when the second failed, and the next attempt
// used the missing one.
TEST_F(RdmaFailoverTest, WithoutLockedMemoryTheTrafficGoesOverTcpUntilThereIsSome) {
  fake_verbs::set_memory_limit(150 * 1024);  // one registration of a rail, not two
  TransportCase free_choice = rdma_case();
  free_choice.config.transport = "";  // a user who asks for RDMA gets no TCP
  Mesh mesh(free_choice, {.shape = kLargeSlots, .channels = 5});
  ASSERT_EQ(run(mesh, 8, 100, [] {}), "");
  EXPECT_EQ(route(mesh, 0).find("TCP"), 0u) << route(mesh, 0);
  EXPECT_NE(route(mesh, 0).find("the limit of locked memory is reached"), std::string::npos)
      << route(mesh, 0);
  fake_verbs::set_memory_limit(UINT64_MAX);
  for (uint32_t device = 0; device < kDevices; ++device) fake_verbs::set_port(device, true);
  EXPECT_TRUE(run_until(mesh, [&] { return route(mesh, 0).find("instead") == std::string::npos; }))
      << route(mesh, 0);
  ASSERT_EQ(run(mesh, 9, 100, [] {}), "");
}

// A far port carries nothing, until it is the only one.
TEST_F(RdmaFailoverTest, AFarPortServesWhenTheNearOneFails) {
  const auto order_cards = [](std::span<const std::string>) {
    return std::vector<CardUse>{{.card = 1, .is_near = true, .distance = "PIX"},
                                {.card = 0, .is_near = false, .distance = "SYS"}};
  };
  Mesh mesh(rdma_case(), {.shape = kLargeSlots, .channels = 5, .order_cards = order_cards});
  const std::string before = route(mesh, 0);
  EXPECT_EQ(before, "fake1 port 1, GID 127.0.0.1 (PIX) to fake1 port 1, GID 127.0.0.1");
  ASSERT_EQ(run(mesh, 3, 100, [] {}), "");
  uint64_t turns = 0;
  ASSERT_EQ(run(mesh, 5, 300,
                [&] {
                  if (++turns == 20) fake_verbs::set_port(1, false);
                }),
            "");
  EXPECT_TRUE(run_until(mesh, [&] {
    return route(mesh, 0).starts_with("fake0 port 1, GID 127.0.0.1 (SYS)");
  })) << route(mesh, 0);
  fake_verbs::set_port(1, true);
  EXPECT_TRUE(run_until(mesh, [&] { return route(mesh, 0) == before; })) << route(mesh, 0);
  ASSERT_EQ(run(mesh, 7, 100, [] {}), "");
}

class RailsTest : public testing::Test {
 protected:
  using Ports = std::vector<rdma::PortAddress>;
  static rdma::PortAddress port(const std::string& name, uint8_t subnet = 0, bool is_near = true) {
    rdma::PortAddress address{
        .device = name, .port = 1, .is_ethernet = subnet == 0, .mtu = 5, .is_near = is_near};
    address.gid[7] = subnet;
    return address;
  }
  /// As rank 0 sees them, if the peer sees the same.
  static rdma::Rails choose(const Ports& left, const Ports& right, uint32_t peer) {
    rdma::Rails here = rdma::choose_rails(left, right, 0, peer);
    const rdma::Rails there = rdma::choose_rails(right, left, peer, 0);
    EXPECT_EQ(here.lane_count, there.lane_count);
    EXPECT_EQ(here.ports.size(), there.ports.size());
    for (size_t i = 0; i < here.ports.size(); ++i) {
      EXPECT_EQ(here.ports[i].here, there.ports[i].there);
      EXPECT_EQ(here.ports[i].there, there.ports[i].here);
    }
    return here;
  }

  const Ports two_ = {port("a0"), port("a1")};
  const Ports one_ = {port("b0")};
  const Ports fabrics_ = {port("c0", 1), port("c1", 2)};
  const Ports second_ = {port("d1", 2)};
};

TEST_F(RailsTest, BothRanksChooseTheSameRailsAndSpreadThem) {
  for (uint32_t peer = 1; peer < 4; ++peer) {
    EXPECT_EQ(choose(two_, one_, peer).lane_count, 2u);
    EXPECT_EQ(choose(two_, two_, peer).ports[0].here, peer % 2) << "pairs of ranks share the load";
    const rdma::Rails rails = choose(fabrics_, second_, peer);
    ASSERT_EQ(rails.ports.size(), 1u);
    EXPECT_EQ(rails.ports[0].here, 1u);
  }
  EXPECT_TRUE(choose(two_, fabrics_, 1).ports.empty());
  EXPECT_TRUE(choose(two_, {}, 1).ports.empty());
}

TEST_F(RailsTest, NearPortsCarryTheDataAndFarOnesStandBy) {
  const Ports left = {port("a3"), port("a0", 0, false), port("a1", 0, false)};
  const Ports right = {port("b5"), port("b6", 0, false)};
  const rdma::Rails rails = choose(left, right, 8);
  EXPECT_EQ(rails.lane_count, 1u);
  ASSERT_EQ(rails.ports.size(), 2u);
  EXPECT_EQ(rails.ports[0].here, 0u);
  EXPECT_EQ(rails.ports[0].there, 0u);
  EXPECT_EQ(rails.ports[1].here, 1u) << "other ports on both ranks";
  EXPECT_EQ(rails.ports[1].there, 1u);
  EXPECT_EQ(choose(left, one_, 8).ports.size(), 2u) << "another port on one rank is better than none";
}

TEST_F(RailsTest, PortsThatReachNoNearOneUseFarOnes) {
  const Ports left = {port("a0", 1), port("a1", 2, false)};
  const rdma::Rails rails = choose(left, second_, 1);
  EXPECT_EQ(rails.lane_count, 1u);
  ASSERT_EQ(rails.ports.size(), 1u);
  EXPECT_EQ(rails.ports[0].here, 1u);
}

}  // namespace
}  // namespace tutti::test
