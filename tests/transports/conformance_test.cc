// Goal: every transport keeps the contract of transport.h and connection.h. Method: two ranks of this process
// are joined by each transport of transport_cases(). A new transport in the registry is tested without a word
// here.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>

#include "core/clock.h"
#include "tests/support/scope.h"
#include "tests/transports/mesh.h"
#include "transports/registry.h"

namespace tutti::test {
namespace {

constexpr RingShape kShape{.slots = 8, .slot_bytes = 1024};

class ConformanceTest : public testing::TestWithParam<size_t> {
 protected:
  const TransportCase& under_test() const { return transport_cases()[GetParam()]; }
  const TransportTraits& traits() const { return *under_test().entry->traits; }

  /// Gives both ranks turns until `is_done`; false: a minute has passed.
  static bool run_until(Mesh& mesh, const std::function<bool()>& is_done) {
    const uint64_t deadline_ns = deadline_after_ms(60'000);
    while (!is_done()) {
      if (now_ns() > deadline_ns) return false;
      for (uint32_t rank = 0; rank < 2; ++rank) mesh.transport(rank).progress();
    }
    return true;
  }
  static bool arrived(const RecvLink& link) {
    return (link.word() & flag::kNumberMask) == ((link.next + 1) & flag::kNumberMask);
  }
  static void commit(TrafficSide& side, uint32_t channel, size_t bytes) {
    SendLink& link = side.send(channel);
    const Bytes payload = message_bytes(1, 0, channel, link.next, bytes);
    std::copy(payload.begin(), payload.end(), link.span(bytes));
    link.commit(9, bytes);
  }
  /// Takes the next message, which must be there, and checks it.
  static void take(TrafficSide& side, uint32_t channel, size_t bytes) {
    RecvLink& link = side.recv(channel);
    ASSERT_TRUE(arrived(link)) << "channel " << channel << ", message " << link.next;
    const uint64_t word = link.word();
    ASSERT_EQ(flag::bytes(word), bytes);
    EXPECT_EQ(flag::signature(word), 9);
    const Bytes expected = message_bytes(1, 0, channel, link.next, bytes);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), link.span(word)));
    link.release(word);
  }
};

TEST_P(ConformanceTest, EveryMessageArrivesOnceInOrderAndWhole) {
  for (uint64_t seed = 1; seed <= runs_of_scope(3, 50); ++seed) {
    for (const uint32_t channels : {1u, 5u, 21u}) {
      Mesh mesh(under_test(), {.shape = kShape, .channels = channels});
      Traffic traffic(mesh.side(0, 1), mesh.side(1, 0), seed, channels > 5 ? 60 : 300);
      ASSERT_EQ(run_traffic(mesh, traffic, seed), "") << channels << " channels, seed " << seed;
      EXPECT_EQ(traffic.direct_count() > 0, traits().fills_posted_receives);
    }
  }
}

TEST_P(ConformanceTest, RingsOfAnyShapeAreNeverOverrun) {
  for (const RingShape& shape :
       {RingShape{.slots = 4, .slot_bytes = 256}, RingShape{.slots = 64, .slot_bytes = 128},
        RingShape{.slots = 4, .slot_bytes = 65536}}) {
    Mesh mesh(under_test(), {.shape = shape});
    Traffic traffic(mesh.side(0, 1), mesh.side(1, 0), 21, 200, true);
    ASSERT_EQ(run_traffic(mesh, traffic, 21), "") << shape.slots << " slots of " << shape.slot_bytes;
  }
}

TEST_P(ConformanceTest, ASenderWaitsForAReaderThatDoesNotRead) {
  constexpr uint64_t kMostMessages = 64 * 1024;
  Mesh mesh(under_test(), {.shape = kShape});
  TrafficSide& sender = mesh.side(0, 1);
  uint64_t sent = 0;
  for (int vain = 0; vain < 1000 && sent < kMostMessages;) {
    if (sender.send(0).can_write()) {
      commit(sender, 0, kShape.slot_bytes);
      ++sent;
      vain = 0;
    } else {
      ++vain;
    }
    for (uint32_t rank = 0; rank < 2; ++rank) mesh.transport(rank).progress();
  }
  EXPECT_LT(sent, kMostMessages) << "memory without a bound";
  for (uint64_t read = 0; read < sent; ++read) {
    ASSERT_TRUE(run_until(mesh, [&] { return arrived(mesh.side(1, 0).recv(0)); })) << "message " << read;
    ASSERT_NO_FATAL_FAILURE(take(mesh.side(1, 0), 0, kShape.slot_bytes));
  }
}

TEST_P(ConformanceTest, NothingIsDroppedAtClose) {
  constexpr size_t kSizes[] = {0, 1, kInlineBytes, kInlineBytes + 1, 777, 1024};
  Mesh mesh(under_test(), {.shape = kShape});
  TrafficSide& sender = mesh.side(0, 1);
  TrafficSide& reader = mesh.side(1, 0);
  for (uint32_t channel = 0; channel < kLinkChannels; ++channel) {
    for (const size_t size : kSizes) commit(sender, channel, size);
  }
  ASSERT_TRUE(run_until(mesh, [&] { return sender.connection().drained(); }));
  sender.connection().finish();
  ASSERT_TRUE(run_until(mesh, [&] { return sender.connection().unconfirmed_bytes() == 0; }));
  mesh.destroy(0);
  const uint64_t deadline_ns = deadline_after_ms(60'000);
  while (traits().watches_peer && reader.connection().state() == PeerState::kOpen && now_ns() < deadline_ns)
    mesh.transport(1).progress();
  for (uint32_t channel = 0; channel < kLinkChannels; ++channel) {
    for (const size_t size : kSizes) ASSERT_NO_FATAL_FAILURE(take(reader, channel, size));
  }
  if (!traits().watches_peer) return;
  EXPECT_EQ(reader.connection().state(), PeerState::kEnded);
  EXPECT_EQ(reader.connection().status().code(), Code::kPeerLost);
  EXPECT_NE(reader.connection().status().text().find("rank 0"), std::string::npos);
}

TEST_P(ConformanceTest, ALostPeerIsNoticed) {
  if (!traits().watches_peer) GTEST_SKIP() << "the owner of the connection watches the peer's process";
  Mesh mesh(under_test(), {.shape = kShape});
  mesh.destroy(1);
  const Connection& left = mesh.side(0, 1).connection();
  const uint64_t deadline_ns = deadline_after_ms(60'000);
  for (uint32_t i = 0; left.state() == PeerState::kOpen && now_ns() < deadline_ns; ++i) {
    if (mesh.side(0, 1).send(0).can_write()) commit(mesh.side(0, 1), 0, 100);
    mesh.transport(0).progress();
  }
  EXPECT_NE(left.state(), PeerState::kOpen);
  EXPECT_EQ(left.status().code(), Code::kPeerLost);
  EXPECT_NE(left.status().text().find("rank 1"), std::string::npos) << left.status().text();
}

TEST_P(ConformanceTest, ATornConnectionIsSeenByBothSides) {
  Mesh mesh(under_test(), {.shape = kShape});
  commit(mesh.side(0, 1), 0, 1000);
  if (!mesh.cut()) GTEST_SKIP() << "there is no socket to cut; a lost peer has its own test";
  const auto left = [&](uint32_t rank) {
    return mesh.side(rank, 1 - rank).connection().state() != PeerState::kOpen;
  };
  EXPECT_TRUE(run_until(mesh, [&] { return left(0) && left(1); }));
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const Status& status = mesh.side(rank, 1 - rank).connection().status();
    EXPECT_EQ(status.code(), Code::kPeerLost);
    EXPECT_NE(status.text().find(format("rank %u", 1 - rank)), std::string::npos) << status.text();
  }
}

// The connection may have promised the memory to the network before.
TEST_P(ConformanceTest, AWithdrawnReceiveIsNotWritten) {
  Mesh mesh(under_test(), {.shape = kShape});
  TrafficSide& sender = mesh.side(0, 1);
  TrafficSide& reader = mesh.side(1, 0);
  Bytes target(1000);
  reader.offer(0) = {
      .first = 0, .address = target.data(), .bytes = target.size(), .slice_bytes = target.size()};
  mesh.transport(1).progress();
  reader.offer(0) = {};
  reader.connection().withdraw();
  commit(sender, 0, target.size());
  ASSERT_TRUE(run_until(mesh, [&] { return arrived(reader.recv(0)); }));
  take(reader, 0, target.size());
  EXPECT_EQ(target, Bytes(1000));
}

TEST_P(ConformanceTest, UnconfirmedBytesReachZero) {
  Mesh mesh(under_test(), {.shape = kShape});
  const Connection& connection = mesh.side(0, 1).connection();
  EXPECT_EQ(connection.unconfirmed_bytes(), 0u);
  for (int i = 0; i < 8; ++i) commit(mesh.side(0, 1), 1, 1024);
  std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) EXPECT_LT(connection.unconfirmed_bytes(), 1u << 24);
  });
  EXPECT_TRUE(run_until(mesh, [&] { return connection.drained() && connection.unconfirmed_bytes() == 0; }));
  // Confirmed by the peer's host: the peer itself may still have to read them.
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(run_until(mesh, [&] { return arrived(mesh.side(1, 0).recv(1)); })) << "message " << i;
    ASSERT_NO_FATAL_FAILURE(take(mesh.side(1, 0), 1, 1024));
  }
}

TEST_P(ConformanceTest, AdvanceFullyBringsWhatHasReachedThisHost) {
  Mesh mesh(under_test(), {.shape = kShape});
  // Many vain turns: a transport may look at a silent peer seldom.
  for (int i = 0; i < 1000; ++i) mesh.transport(1).progress();
  commit(mesh.side(0, 1), 2, 700);
  while (!mesh.side(0, 1).connection().drained()) mesh.transport(0).progress();
  const uint64_t deadline_ns = deadline_after_ms(10'000);  // the network between them may take a while
  while (!arrived(mesh.side(1, 0).recv(2)) && now_ns() < deadline_ns)
    mesh.side(1, 0).connection().advance_fully();
  take(mesh.side(1, 0), 2, 700);
}

// Goal: no message comes between the last progress() and the poll unseen. Method: a sender in another thread
// with seeded pauses, a reader that polls for a second at most; a poll that ends by time is a lost wake-up.
TEST_P(ConformanceTest, AWaitIsNeverLeftAsleep) {
  constexpr uint32_t kRounds = 400;
  Mesh mesh(under_test(), {.shape = kShape});
  std::jthread sender([&] {
    SimRandom random(7);
    TrafficSide& side = mesh.side(0, 1);
    for (uint32_t round = 0; round < kRounds;) {
      for (uint64_t pause = random.below(60); pause > 0; --pause) std::this_thread::yield();
      if (side.send(0).can_write()) {
        commit(side, 0, 100);
        ++round;
      }
      mesh.transport(0).progress();
    }
    while (!side.connection().drained()) mesh.transport(0).progress();
  });
  TrafficSide& reader = mesh.side(1, 0);
  uint32_t lost = 0;
  std::vector<pollfd> polls;
  for (uint32_t round = 0; round < kRounds && lost == 0;) {
    bool moved = mesh.transport(1).progress();
    for (; arrived(reader.recv(0)); ++round) {
      take(reader, 0, 100);
      moved = true;
    }
    if (moved) continue;
    polls.clear();
    if (mesh.transport(1).arm_wait(polls) || arrived(reader.recv(0))) continue;
    const int timeout_ms = traits().wakes_waits ? 5000 : 1;
    if (poll(polls.data(), polls.size(), timeout_ms) == 0 && traits().wakes_waits) ++lost;
  }
  EXPECT_EQ(lost, 0u);
  sender.join();
}

TEST_P(ConformanceTest, AllRanksOfAMeshTalkAtOnce) {
  constexpr uint32_t kRanks = 4;
  Mesh mesh(under_test(), {.rank_count = kRanks, .shape = kShape});
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    for (uint32_t peer = 0; peer < kRanks; ++peer) {
      if (peer != rank) commit(mesh.side(rank, peer), 0, 10 + rank);
    }
  }
  const uint64_t deadline_ns = deadline_after_ms(60'000);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    for (uint32_t peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      while (!arrived(mesh.side(rank, peer).recv(0)) && now_ns() < deadline_ns) {
        for (uint32_t turn = 0; turn < kRanks; ++turn) mesh.transport(turn).progress();
      }
      ASSERT_NO_FATAL_FAILURE(take(mesh.side(rank, peer), 0, 10 + peer));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, ConformanceTest, testing::Range<size_t>(0, transport_cases().size()),
                         [](const auto& one) { return transport_cases()[one.param].name; });

// A host that vanished while nothing was sent was noticed by the kernel only over TCP: the sockets beside
// RDMA and UCX were not probed.
TEST(SocketsTest, EverySocketOfATransportIsProbedAsTheHeartbeatSays) {
  for (const TransportCase& one : transport_cases()) {
    if (!std::ranges::any_of(transports(), [&](const auto& entry) { return &entry == one.entry; })) continue;
    for (const uint64_t heartbeat_ms : {60'000u, 0u}) {
      TransportCase changed = one;
      changed.over_loopback = true;
      changed.config.heartbeat_ms = heartbeat_ms;
      const Mesh mesh(changed, {});
      for (const FileDescriptor& wire : mesh.wires()) {
        int is_on = -1;
        socklen_t bytes = sizeof(is_on);
        ASSERT_EQ(::getsockopt(wire.get(), SOL_SOCKET, SO_KEEPALIVE, &is_on, &bytes), 0);
        EXPECT_EQ(is_on, heartbeat_ms > 0 ? 1 : 0) << one.name;
      }
    }
  }
}

}  // namespace
}  // namespace tutti::test
