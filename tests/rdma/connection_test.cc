// Goal: an RDMA connection keeps its promises when the network fails it, and asks the devices for nothing
// that they may refuse. Method: two ranks of this process over the fake devices. The conformance suite
// (tests/transports) runs over the same devices.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <functional>
#include <string>

#include "core/clock.h"
#include "tests/rdma/provider/control.h"
#include "tests/support/scope.h"
#include "tests/transports/mesh.h"

namespace tutti::test {
namespace {

constexpr uint32_t kRails = 2;  // a port of each of the fake devices
constexpr RingShape kLargeSlots{.slots = 8, .slot_bytes = 16384};

const TransportCase& rdma_case() {
  for (const TransportCase& one : transport_cases()) {
    if (one.name == "rdma") return one;
  }
  ADD_FAILURE() << "the fake devices are not found";
  return transport_cases()[0];
}

bool run_until(Mesh& mesh, const std::function<bool()>& is_done) {
  const uint64_t deadline_ns = deadline_after_ms(60'000);
  while (!is_done()) {
    if (now_ns() > deadline_ns) return false;
    for (uint32_t rank = 0; rank < 2; ++rank) mesh.transport(rank).progress();
  }
  return true;
}

void commit(Mesh& mesh, uint32_t channel, size_t bytes) {
  SendLink& link = mesh.side(0, 1).send(channel);
  std::fill_n(link.span(bytes), bytes, std::byte{7});
  link.commit(9, bytes);
}

class RdmaConnectionTest : public testing::Test {
 protected:
  void SetUp() override { fake_verbs::reset(1); }
  void TearDown() override {
    const fake_verbs::Seen seen = fake_verbs::seen();
    EXPECT_EQ(seen.misuse, "");
    EXPECT_EQ(seen.open_objects, 0u) << "left open";
    EXPECT_EQ(seen.registered_bytes, 0u);
  }
};

TEST_F(RdmaConnectionTest, LargePayloadsAreWrittenAndShortOnesSentInline) {
  for (uint64_t seed = 1; seed <= runs_of_scope(3, 30); ++seed) {
    fake_verbs::reset(seed);
    Mesh mesh(rdma_case(), {.shape = kLargeSlots, .channels = 5});
    Traffic traffic(mesh.side(0, 1), mesh.side(1, 0), seed, 200);
    ASSERT_EQ(run_traffic(mesh, traffic, seed), "") << "seed " << seed;
    const fake_verbs::Seen seen = fake_verbs::seen();
    EXPECT_GT(seen.writes, 100u);
    EXPECT_GT(seen.inline_sends, 100u);
    EXPECT_EQ(seen.waits_for_receives, 0u) << "a rank sent what the peer had no receive for";
  }
}

// The budget of the rank, or the system's limit of locked memory: both leave the pieces, which are registered
// with the connection.
TEST_F(RdmaConnectionTest, WithoutMemoryForSlotsEverythingArrivesInPieces) {
  Mesh mesh(rdma_case(), {.shape = kLargeSlots, .channels = 3});
  fake_verbs::set_memory_limit(fake_verbs::seen().registered_bytes);
  Traffic traffic(mesh.side(0, 1), mesh.side(1, 0), 5, 100, true);
  ASSERT_EQ(run_traffic(mesh, traffic, 5), "");
  EXPECT_EQ(fake_verbs::seen().writes, 0u);
}

TEST_F(RdmaConnectionTest, APeerCostsLittleMemoryUntilItIsUsed) {
  Mesh mesh(rdma_case(), {.shape = {.slots = 32, .slot_bytes = 65536}});
  EXPECT_LE(fake_verbs::seen().registered_bytes, 2u * kRails * 292 * 1024);
}

// A message costs the devices one request. Nothing else travels, and receives are posted in batches.
TEST_F(RdmaConnectionTest, AShortMessageCostsOneSendInASteadyExchange) {
  constexpr uint32_t kMessages = 400;
  Mesh mesh(rdma_case(), {.shape = kLargeSlots});
  const fake_verbs::Seen before = fake_verbs::seen();
  for (uint32_t i = 0; i < kMessages; ++i) {
    const uint32_t from = i % 2;
    SendLink& link = mesh.side(from, 1 - from).send(0);
    std::fill_n(link.span(8), 8, std::byte{7});
    link.commit(9, 8);
    RecvLink& reader = mesh.side(1 - from, from).recv(0);
    ASSERT_TRUE(run_until(mesh, [&] { return reader.has_arrived(); }));
    reader.release(reader.word());
  }
  const fake_verbs::Seen after = fake_verbs::seen();
  EXPECT_EQ(after.sends - before.sends, kMessages);
  EXPECT_EQ(after.inline_sends - before.inline_sends, kMessages);
  EXPECT_EQ(after.writes, before.writes);
  EXPECT_LE(after.receive_posts - before.receive_posts, kMessages / 8);
  EXPECT_EQ(after.waits_for_receives, 0u);
}

TEST_F(RdmaConnectionTest, ASlowNetworkIsSeenInTheUnconfirmedBytes) {
  Mesh mesh(rdma_case(), {.shape = kLargeSlots});
  fake_verbs::hold(true);
  commit(mesh, 0, 5000);
  const Connection& left = mesh.side(0, 1).connection();
  ASSERT_TRUE(run_until(mesh, [&] { return left.drained(); }));
  EXPECT_GE(left.unconfirmed_bytes(), 5000u);
  fake_verbs::hold(false);
  EXPECT_TRUE(run_until(mesh, [&] { return left.unconfirmed_bytes() == 0; }));
}

// A credit that the network repeated after a loss once looked like nothing under way: its receiver, without
// room to send, and its sender, without a message, were told that they wait in a circle.
TEST_F(RdmaConnectionTest, ACreditUnderWayIsSeenInTheUnconfirmedBytes) {
  Mesh mesh(rdma_case(), {.shape = kLargeSlots});
  for (uint32_t i = 0; i < kLargeSlots.slots; ++i) commit(mesh, 0, 8);
  RecvLink& reader = mesh.side(1, 0).recv(0);
  const Connection& right = mesh.side(1, 0).connection();
  for (uint32_t i = 0; i < kLargeSlots.slots; ++i) {
    ASSERT_TRUE(run_until(mesh, [&] { return reader.has_arrived(); }));
    if (i + 1 == kLargeSlots.slots) {
      ASSERT_TRUE(run_until(mesh, [&] { return right.unconfirmed_bytes() == 0; }));
      fake_verbs::hold(true);
    }
    reader.release(reader.word());
  }
  EXPECT_TRUE(run_until(mesh, [&] { return right.unconfirmed_bytes() > 0; }));
  fake_verbs::hold(false);
  EXPECT_TRUE(run_until(mesh, [&] { return right.unconfirmed_bytes() == 0; }));
}

}  // namespace
}  // namespace tutti::test
