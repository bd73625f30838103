// Goal: a long message goes straight from a registered buffer, and straight into a registered posted receive.
// Nobody writes to a receive that was withdrawn. Method: two ranks of this process over the fake devices.
#include <infiniband/verbs.h>

#include "tests/rdma/rendezvous.h"

namespace tutti::test {
namespace {

class RdmaRendezvousTest : public RendezvousTest {
 protected:
  RdmaRendezvousTest() : source_memory_(kSlices * kSliceBytes), target_memory_(kSlices * kSliceBytes) {
    begin({.source = source_memory_, .target = target_memory_});
  }

 private:
  Bytes source_memory_;
  Bytes target_memory_;
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
  EXPECT_TRUE(target_is_source());
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
  EXPECT_TRUE(target_is_untouched());
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
  EXPECT_TRUE(target_is_source());
}

}  // namespace
}  // namespace tutti::test
