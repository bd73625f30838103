// Goal: a long message goes straight from a registered buffer, and straight into a registered posted receive.
// Nobody writes to a receive that was withdrawn. Method: two ranks of this process over the fake devices.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "core/clock.h"
#include "tests/rdma/provider/control.h"
#include "tests/transports/mesh.h"

namespace tutti::test {
namespace {

constexpr RingShape kShape{.slots = 8, .slot_bytes = 16384};
constexpr uint64_t kSliceBytes = 10'000;  // slots that are not full are not adjacent
constexpr uint64_t kSlices = 4;
constexpr uint32_t kChannel = 1;

class RdmaRendezvousTest : public testing::Test {
 protected:
  RdmaRendezvousTest() : source_(kSlices * kSliceBytes), target_(kSlices * kSliceBytes) {
    fake_verbs::reset(1);
    for (const TransportCase& one : transport_cases()) {
      if (one.name == "rdma")
        mesh_ = std::make_unique<Mesh>(one, MeshOptions{.shape = kShape, .channels = 4});
    }
    for (size_t i = 0; i < source_.size(); ++i) source_[i] = static_cast<std::byte>(i * 7 + i / 999);
  }
  ~RdmaRendezvousTest() override {
    mesh_.reset();
    const fake_verbs::Seen seen = fake_verbs::seen();
    EXPECT_EQ(seen.misuse, "");
    EXPECT_EQ(seen.registered_bytes, 0u);
    EXPECT_EQ(seen.open_objects, 0u);
  }

  TrafficSide& sender() { return mesh_->side(0, 1); }
  TrafficSide& reader() { return mesh_->side(1, 0); }
  Result<MemoryHandle> register_buffer(uint32_t rank, Bytes& buffer) {
    return mesh_->transport(rank).register_memory(buffer.data(), buffer.size(), MemoryUse::kBuffer);
  }
  bool run_until(const std::function<bool()>& is_done) {
    const uint64_t deadline_ns = deadline_after_ms(60'000);
    while (!is_done() && now_ns() < deadline_ns) {
      for (uint32_t rank = 0; rank < 2; ++rank) mesh_->transport(rank).progress();
    }
    return is_done();
  }
  /// Gives turns until nothing moves.
  void settle() {
    uint32_t idle = 0;
    run_until([&] {
      idle = sender().connection().drained() && reader().connection().drained() ? idle + 1 : 0;
      return idle > 1000;
    });
  }
  /// The first long message of a channel asks for the slots of the peer. After it they are known.
  void warm_up() {
    Bytes zero(kSliceBytes);
    send(zero.data(), 1);
    ASSERT_TRUE(run_until([&] { return reader().recv(kChannel).has_arrived(); }));
    reader().recv(kChannel).release(reader().recv(kChannel).word());
    settle();
  }
  void offer() {
    reader().offer(kChannel) = {.first = reader().recv(kChannel).next,
                                .address = target_.data(),
                                .bytes = target_.size(),
                                .slice_bytes = kSliceBytes};
    settle();
  }
  void send(const std::byte* from, uint64_t slices) {
    for (uint64_t i = 0; i < slices; ++i)
      sender().send(kChannel).commit_reference(9, kSliceBytes, from + i * kSliceBytes, Carriage::kReference);
  }
  /// Takes all slices. Returns how many came into the target; all contents are compared.
  uint64_t take() {
    uint64_t placed = 0;
    RecvLink& link = reader().recv(kChannel);
    for (uint64_t i = 0; i < kSlices; ++i) {
      EXPECT_TRUE(run_until([&] { return link.has_arrived(); }));
      const std::byte* const span = link.span(link.word());
      EXPECT_TRUE(std::equal(span, span + kSliceBytes, source_.data() + i * kSliceBytes)) << "slice " << i;
      placed += span == target_.data() + i * kSliceBytes ? 1 : 0;
      link.release(link.word());
    }
    EXPECT_TRUE(run_until([&] { return sender().send(kChannel).references_returned(); }));
    return placed;
  }

  std::unique_ptr<Mesh> mesh_;
  Bytes source_;
  Bytes target_;
};

TEST_F(RdmaRendezvousTest, OneWriteMovesAllOfARegisteredBufferIntoARegisteredReceive) {
  ASSERT_TRUE(register_buffer(0, source_).is_ok());
  ASSERT_TRUE(register_buffer(1, target_).is_ok());
  warm_up();
  offer();
  const uint64_t writes = fake_verbs::seen().writes;
  send(source_.data(), kSlices);
  EXPECT_EQ(take(), kSlices);
  EXPECT_EQ(fake_verbs::seen().writes, writes + 1);
  EXPECT_EQ(target_, source_);
}

// A receive that is posted late: what was sent before it is in slots, and nothing comes twice.
TEST_F(RdmaRendezvousTest, AReceiveThatIsPostedLateGetsTheRestInPlace) {
  ASSERT_TRUE(register_buffer(0, source_).is_ok());
  ASSERT_TRUE(register_buffer(1, target_).is_ok());
  warm_up();
  send(source_.data(), 2);
  settle();
  offer();
  send(source_.data() + 2 * kSliceBytes, kSlices - 2);
  EXPECT_EQ(take(), kSlices - 2);
}

TEST_F(RdmaRendezvousTest, OneRegisteredEndIsEnoughToSaveItsCopy) {
  for (const bool sender_registers : {true, false}) {
    const auto handle = register_buffer(sender_registers ? 0 : 1, sender_registers ? source_ : target_);
    ASSERT_TRUE(handle.is_ok());
    warm_up();
    offer();
    send(source_.data(), kSlices);
    EXPECT_EQ(take(), sender_registers ? 0 : kSlices);
    reader().offer(kChannel) = {};
    mesh_->transport(sender_registers ? 0 : 1).deregister_memory(*handle);
  }
}

// References to memory of the symmetric heap come without any registration.
TEST_F(RdmaRendezvousTest, WhatTheDeviceMayNotReadIsCopiedAndWritten) {
  warm_up();
  const uint64_t writes = fake_verbs::seen().writes;
  send(source_.data(), kSlices);
  EXPECT_EQ(take(), 0u);
  EXPECT_EQ(fake_verbs::seen().writes, writes + kSlices);
}

TEST_F(RdmaRendezvousTest, AWithdrawnReceiveIsNeverWrittenThoughThePeerMay) {
  ASSERT_TRUE(register_buffer(0, source_).is_ok());
  ASSERT_TRUE(register_buffer(1, target_).is_ok());
  warm_up();
  offer();
  fake_verbs::hold(true);  // the write is on its way
  send(source_.data(), kSlices);
  for (int turn = 0; turn < 100; ++turn) mesh_->transport(0).progress();
  reader().offer(kChannel) = {};
  reader().connection().withdraw();
  EXPECT_EQ(reader().connection().state(), PeerState::kTorn);
  fake_verbs::hold(false);
  mesh_->destroy(1);
  const uint64_t deadline_ns = deadline_after_ms(60'000);
  while (sender().connection().state() == PeerState::kOpen && now_ns() < deadline_ns)
    mesh_->transport(0).progress();
  EXPECT_EQ(sender().connection().state(), PeerState::kTorn);
  EXPECT_EQ(target_, Bytes(target_.size()));
}

// A receive that has come in whole is the reader's alone: a later error of another call costs no connection.
TEST_F(RdmaRendezvousTest, WithdrawLeavesAConnectionThatOwesNothing) {
  ASSERT_TRUE(register_buffer(1, target_).is_ok());
  warm_up();
  offer();
  send(source_.data(), kSlices);
  EXPECT_EQ(take(), kSlices);
  reader().offer(kChannel) = {};
  reader().connection().withdraw();
  EXPECT_EQ(reader().connection().state(), PeerState::kOpen);
}

TEST_F(RdmaRendezvousTest, ALimitOfLockedMemoryRefusesTheBufferAndNothingElse) {
  warm_up();
  fake_verbs::set_memory_limit(fake_verbs::seen().registered_bytes + source_.size());  // one of two devices
  const uint64_t registered = fake_verbs::seen().registered_bytes;
  const auto refused = register_buffer(0, source_);
  EXPECT_EQ(refused.status().code(), Code::kOutOfMemory);
  EXPECT_EQ(fake_verbs::seen().registered_bytes, registered);
  send(source_.data(), kSlices);
  EXPECT_EQ(take(), 0u);
}

// A rail that fails takes its keys along. The buffers are registered with the other device too.
TEST_F(RdmaRendezvousTest, AfterARailHasFailedTheRestGoesStraightOverAnother) {
  ASSERT_TRUE(register_buffer(0, source_).is_ok());
  ASSERT_TRUE(register_buffer(1, target_).is_ok());
  warm_up();
  offer();
  for (uint32_t device = 0; device < 2; ++device) fake_verbs::fail_sometimes(device, 1, IBV_WC_RETRY_EXC_ERR);
  send(source_.data(), 2);
  for (int turn = 0; turn < 100; ++turn) mesh_->transport(0).progress();
  for (uint32_t device = 0; device < 2; ++device) fake_verbs::fail_sometimes(device, 0, 0);
  settle();
  send(source_.data() + 2 * kSliceBytes, kSlices - 2);
  EXPECT_EQ(take(), kSlices);
  EXPECT_EQ(target_, source_);
}

}  // namespace
}  // namespace tutti::test
