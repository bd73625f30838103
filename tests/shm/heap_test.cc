// The symmetric heap's bookkeeping: alignment, reuse, merging of holes, refusals.
#include "transports/shm/heap.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>

namespace tutti {
namespace {

constexpr size_t kHeapBytes = 16u << 20;
constexpr size_t kPage = 4096;

std::byte* take(SymmetricHeap& heap, size_t bytes) {
  auto memory = heap.allocate(bytes);
  return memory ? static_cast<std::byte*>(*memory) : nullptr;
}

class HeapTest : public testing::Test {
 protected:
  void SetUp() override {
    auto heap = SymmetricHeap::create(kHeapBytes);
    ASSERT_TRUE(heap) << heap.status().text();
    heap_.reset(*heap);
  }
  std::unique_ptr<SymmetricHeap> heap_;
};

// Goal: without a setting, the processes of a large host can map all their heaps.
TEST(HeapSizeTest, TheDefaultLeavesRoomForTheHeapsOfAllRanks) {
  constexpr size_t kGiB = size_t{1} << 30;
  EXPECT_EQ(SymmetricHeap::default_bytes(24 * kGiB, SIZE_MAX, 2), 24 * kGiB);
  EXPECT_EQ(SymmetricHeap::default_bytes(512 * kGiB, SIZE_MAX, 64), 512 * kGiB);
  // 192 ranks on 192 cores with 2 TiB: 33 TiB of 128.
  EXPECT_LT(192 * SymmetricHeap::default_bytes(2048 * kGiB, SIZE_MAX, 192), 64 * 1024 * kGiB);
  EXPECT_GT(SymmetricHeap::default_bytes(2048 * kGiB, SIZE_MAX, 192), 128 * kGiB);
  EXPECT_EQ(SymmetricHeap::default_bytes(24 * kGiB, kGiB, 2), kGiB / 64) << "ulimit -v";
}

TEST_F(HeapTest, AllocationsAreAlignedApartAndInside) {
  std::map<std::byte*, size_t> taken;
  for (const size_t bytes : {size_t{1}, kPage, kPage + 1, size_t{3} << 20, size_t{100}}) {
    std::byte* memory = take(*heap_, bytes);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % kPage, 0u);
    EXPECT_TRUE(heap_->contains(memory, bytes));
    for (const auto& [other, other_bytes] : taken) {
      EXPECT_TRUE(memory + bytes <= other || other + other_bytes <= memory);
    }
    taken[memory] = bytes;
  }
}

TEST_F(HeapTest, FreedMemoryIsZeroWhenItComesBack) {
  std::byte* memory = take(*heap_, 3 * kPage);
  std::memset(memory, 0x7f, 3 * kPage);
  EXPECT_TRUE(heap_->free(memory).is_ok());
  std::byte* again = take(*heap_, 3 * kPage);
  EXPECT_EQ(again, memory);
  for (size_t i = 0; i < 3 * kPage; ++i) ASSERT_EQ(again[i], std::byte{0});
}

TEST_F(HeapTest, LockedMemoryIsZeroWhenItComesBack) {
  std::byte* memory = take(*heap_, 3 * kPage);
  std::memset(memory, 0x7f, 3 * kPage);
  if (mlock(memory, 3 * kPage) != 0) GTEST_SKIP() << "memory cannot be locked here";
  EXPECT_TRUE(heap_->free(memory).is_ok());
  for (size_t i = 0; i < 3 * kPage; ++i) ASSERT_EQ(memory[i], std::byte{0});
}

TEST_F(HeapTest, AnAllocationGrowsIntoTheHoleBehindIt) {
  std::byte* const first = take(*heap_, kPage);
  std::byte* const second = take(*heap_, 2 * kPage);
  std::byte* const third = take(*heap_, kPage);
  EXPECT_FALSE(heap_->grow(first, kPage + 1)) << "another one lies there";
  EXPECT_TRUE(heap_->free(second).is_ok());
  EXPECT_FALSE(heap_->grow(first, 3 * kPage + 1));
  EXPECT_TRUE(heap_->grow(first, kPage + 1));
  EXPECT_EQ(heap_->find(first, 2 * kPage)->bytes, 2 * kPage);
  EXPECT_EQ(take(*heap_, kPage), first + 2 * kPage) << "what is left of the hole";
  EXPECT_FALSE(heap_->grow(first + kPage, kPage)) << "no allocation";
  EXPECT_TRUE(heap_->grow(first, kPage)) << "it is longer already, with another one behind it";
  EXPECT_FALSE(heap_->grow(third, SIZE_MAX));
}

TEST(HeapSizeTest, AHeapThatCannotBeIsRefused) {
  EXPECT_FALSE(SymmetricHeap::create(SIZE_MAX));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{1u << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto heap = SymmetricHeap::create(kHeapBytes);
  const auto shortest = SymmetricHeap::create_default();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(heap);
  EXPECT_FALSE(shortest);
  EXPECT_NE(heap.status().text().find("ulimit -f"), std::string_view::npos) << heap.status().text();
}

// Goal: holes merge with both neighbours, so that the whole heap can be had again.
TEST_F(HeapTest, HolesMerge) {
  std::vector<std::byte*> pieces;
  while (std::byte* piece = take(*heap_, 1u << 20)) pieces.push_back(piece);
  ASSERT_EQ(pieces.size(), kHeapBytes >> 20);
  for (size_t i = 0; i < pieces.size(); i += 2) EXPECT_TRUE(heap_->free(pieces[i]).is_ok());
  EXPECT_EQ(take(*heap_, 2u << 20), nullptr);
  for (size_t i = 1; i < pieces.size(); i += 2) EXPECT_TRUE(heap_->free(pieces[i]).is_ok());
  EXPECT_NE(take(*heap_, kHeapBytes), nullptr);
}

TEST_F(HeapTest, RefusalsSayWhatIsFree) {
  auto much = heap_->allocate(kHeapBytes + 1);
  ASSERT_FALSE(much);
  EXPECT_EQ(much.status().code(), Code::kOutOfMemory);
  EXPECT_NE(much.status().text().find(std::to_string(kHeapBytes)), std::string::npos);
  EXPECT_FALSE(heap_->allocate(SIZE_MAX));
}

TEST_F(HeapTest, OnlyStartsOfLiveAllocationsAreFreed) {
  std::byte* memory = take(*heap_, 2 * kPage);
  EXPECT_EQ(heap_->free(memory + kPage).code(), Code::kInvalidArgument);
  int local = 0;
  EXPECT_EQ(heap_->free(&local).code(), Code::kInvalidArgument);
  EXPECT_TRUE(heap_->free(memory).is_ok());
  EXPECT_EQ(heap_->free(memory).code(), Code::kInvalidArgument);
}

TEST_F(HeapTest, ContainsJudgesBothEnds) {
  std::byte* end = heap_->base() + heap_->bytes();
  EXPECT_TRUE(heap_->contains(end - 1, 1));
  EXPECT_FALSE(heap_->contains(end - 1, 2));
  EXPECT_FALSE(heap_->contains(end, 1));
  EXPECT_FALSE(heap_->contains(heap_->base() - 1, 1));
  EXPECT_FALSE(heap_->contains(nullptr, 1));
}

TEST_F(HeapTest, FindsTheLiveAllocationThatHoldsAllTheBytes) {
  EXPECT_TRUE(heap_->is_empty());
  std::byte* first = take(*heap_, kPage);
  std::byte* second = take(*heap_, 2 * kPage);
  ASSERT_EQ(second, first + kPage);
  const auto found = heap_->find(second + 1, 2 * kPage - 1);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->address, second);
  EXPECT_EQ(found->bytes, 2 * kPage);
  EXPECT_FALSE(heap_->find(second + 1, 2 * kPage)) << "one byte beyond its end";
  EXPECT_FALSE(heap_->find(first, 2 * kPage)) << "in two allocations";
  EXPECT_FALSE(heap_->find(second + 2 * kPage, 1)) << "free";
  EXPECT_FALSE(heap_->find(&first, 1));
  const uint64_t frees = heap_->free_count();
  EXPECT_TRUE(heap_->free(second).is_ok());
  EXPECT_NE(heap_->free_count(), frees);
  EXPECT_FALSE(heap_->find(second, 1));
  ASSERT_EQ(take(*heap_, 2 * kPage), second);
  EXPECT_NE(heap_->find(second, 1)->number, found->number) << "another one at the same place";
  EXPECT_FALSE(heap_->is_empty());
}

// Goal: a peer that maps the heap's descriptor sees the same bytes at the same distance from its base.
TEST_F(HeapTest, AMappingElsewhereShowsTheSameBytes) {
  std::byte* memory = take(*heap_, kPage);
  const FileDescriptor duplicate(dup(heap_->fd()));
  auto peer = map_memory(duplicate, heap_->bytes());
  ASSERT_TRUE(peer);
  memory[17] = std::byte{99};
  EXPECT_EQ(peer->base()[memory - heap_->base() + 17], std::byte{99});
}

}  // namespace
}  // namespace tutti
