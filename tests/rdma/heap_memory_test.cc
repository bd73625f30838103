// Goal: long messages out of the symmetric heap and into it go without a copy, though nobody registers it.
// Method: two ranks of this process over the fake devices, which count writes and registered bytes.
#include "transports/rdma/heap_memory.h"

#include <infiniband/verbs.h>

#include "tests/rdma/rendezvous.h"

namespace tutti::test {
namespace {

constexpr size_t kHeapBytes = 16u << 20;
constexpr size_t kBufferBytes = 40'960;  // kSlices * kSliceBytes, in whole pages

class RdmaHeapTest : public RendezvousTest {
 protected:
  RdmaHeapTest() {
    auto heap = SymmetricHeap::create(kHeapBytes);
    EXPECT_TRUE(heap.is_ok()) << heap.status().text();
    heap_.reset(*heap);
  }
  ~RdmaHeapTest() override { mesh_.reset(); }  // before the heap

  /// `bytes`: of the allocation, of which the test uses the beginning.
  std::span<std::byte> allocate(size_t bytes = kSlices * kSliceBytes) {
    auto memory = heap_->allocate(bytes);
    EXPECT_TRUE(memory.is_ok()) << memory.status().text();
    return {static_cast<std::byte*>(*memory), kSlices * kSliceBytes};
  }
  void free(std::span<std::byte> memory) { EXPECT_TRUE(heap_->free(memory.data()).is_ok()); }
  void begin_in_heap(uint64_t pinned_bytes = 1u << 30) {
    begin({.source = allocate(), .target = allocate(), .heap = heap_.get(), .pinned_bytes = pinned_bytes});
  }
  /// Sends the source into the target. Returns how many slices came without a copy.
  uint64_t exchange() {
    offer();
    send(source_.data(), kSlices);
    const uint64_t placed = take();
    reader().offer(kChannel) = {};
    settle();
    return placed;
  }
  static uint64_t registered() { return fake_verbs::seen().registered_bytes; }

  std::unique_ptr<SymmetricHeap> heap_;
};

TEST_F(RdmaHeapTest, OneWriteMovesAllOfAnAllocationIntoAnother) {
  begin_in_heap();
  warm_up();
  const uint64_t before = registered();
  const uint64_t writes = fake_verbs::seen().writes;
  EXPECT_EQ(exchange(), kSlices);
  EXPECT_EQ(fake_verbs::seen().writes, writes + 1);
  EXPECT_TRUE(target_is_source());
  // Both ends, with the one device that the channel lies on. Later messages find them registered.
  EXPECT_EQ(registered(), before + 2 * kBufferBytes);
  EXPECT_EQ(exchange(), kSlices);
  EXPECT_EQ(registered(), before + 2 * kBufferBytes);
}

// The device keeps the pages of a registration. Without a look at the heap, it would read freed pages.
TEST_F(RdmaHeapTest, WhatLiesWhereFreedMemoryLayIsRegisteredAnew) {
  begin_in_heap();
  warm_up();
  const uint64_t before = registered();
  EXPECT_EQ(exchange(), kSlices);
  const std::byte* const old_source = source_.data();
  free(source_);
  free(target_);
  for (uint32_t rank = 0; rank < 2; ++rank) mesh_->transport(rank).progress();
  EXPECT_EQ(registered(), before) << "released in the next turn";
  source_ = allocate();
  target_ = allocate();
  ASSERT_EQ(source_.data(), old_source);
  fill_source();
  EXPECT_EQ(exchange(), kSlices);
  EXPECT_TRUE(target_is_source());
  EXPECT_EQ(registered(), before + 2 * kBufferBytes);
}

TEST_F(RdmaHeapTest, FreedMemoryIsNeverTakenForTheMemoryThatFollowsIt) {
  begin_in_heap();
  warm_up();
  EXPECT_EQ(exchange(), kSlices);
  // No turn between, so that the ranks find out only when they look for the new allocation.
  free(source_);
  source_ = allocate();
  fill_source();
  sender().send(kChannel).commit_reference(9, kSliceBytes, source_.data());
  const uint64_t before = registered();
  ASSERT_TRUE(run_until([&] { return reader().recv(kChannel).has_arrived(); }));
  const RecvLink& link = reader().recv(kChannel);
  EXPECT_TRUE(std::equal(source_.data(), source_.data() + kSliceBytes, link.span(link.word())));
  EXPECT_EQ(registered(), before) << "one went, one came";
}

TEST_F(RdmaHeapTest, AnAllocationBeyondHalfOfTheBudgetGoesThroughSlots) {
  constexpr uint64_t kBudgetBytes = 1u << 20;
  begin({.source = allocate(kBudgetBytes / 2 + 1),
         .target = allocate(kBudgetBytes / 2 + 1),
         .heap = heap_.get(),
         .pinned_bytes = kBudgetBytes});
  warm_up();
  const uint64_t ring_bytes = kShape.slots * kShape.slot_bytes;
  const uint64_t before = registered();
  EXPECT_EQ(exchange(), 0u);
  EXPECT_EQ(registered(), before + ring_bytes) << "the slots that the source is copied into";
}

TEST_F(RdmaHeapTest, FreedMemoryGoesBackToTheBudget) {
  const uint64_t ring_bytes = kShape.slots * kShape.slot_bytes;
  begin_in_heap(4 * ring_bytes);
  warm_up();
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(exchange(), kSlices) << "round " << round;
    free(source_);
    free(target_);
    source_ = allocate();
    target_ = allocate();
    fill_source();
  }
}

TEST_F(RdmaHeapTest, ALimitOfLockedMemoryCostsTheWritesAndIsNotAskedAgain) {
  begin_in_heap();
  warm_up();
  fake_verbs::set_memory_limit(registered() + kBufferBytes - 1);
  const fake_verbs::Seen before = fake_verbs::seen();
  for (int round = 0; round < 3; ++round) {
    exchange();
    EXPECT_TRUE(target_is_source());
  }
  EXPECT_EQ(fake_verbs::seen().writes, before.writes);
  EXPECT_EQ(fake_verbs::seen().refused_registrations, before.refused_registrations + 3)
      << "the source, the target, and the slots of the sender";
}

TEST_F(RdmaHeapTest, EachCommunicatorHasRegistrationsOfItsOwn) {
  begin_in_heap();
  warm_up();
  const uint64_t before = registered();
  EXPECT_EQ(exchange(), kSlices);
  std::unique_ptr<Mesh> first = std::move(mesh_);
  mesh_ = std::make_unique<Mesh>(case_, MeshOptions{.shape = kShape, .channels = 4, .heap = heap_.get()});
  warm_up();
  EXPECT_EQ(exchange(), kSlices);
  // The memory goes while both live. Each notices in its own turn.
  free(source_);
  free(target_);
  for (uint32_t rank = 0; rank < 2; ++rank) first->transport(rank).progress();
  mesh_.reset();
  EXPECT_EQ(registered(), before);
  mesh_ = std::move(first);
  source_ = allocate();
  target_ = allocate();
  fill_source();
  EXPECT_EQ(exchange(), kSlices);
}

// A rail that fails takes its keys along. The other device registers the memory when it needs it.
TEST_F(RdmaHeapTest, AfterARailHasFailedTheRestGoesStraightOverAnother) {
  begin_in_heap();
  warm_up();
  EXPECT_EQ(exchange(), kSlices);
  const uint64_t before = registered();
  fake_verbs::set_port(0, false);
  settle();
  warm_up();
  EXPECT_EQ(exchange(), kSlices);
  EXPECT_TRUE(target_is_source());
  EXPECT_GE(registered(), before + 2 * kBufferBytes);
}

}  // namespace
}  // namespace tutti::test
