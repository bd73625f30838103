// Short rings: long calls take them where ranks share cores and all send to all.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "comm/host_executor.h"
#include "tests/support/rank_pages.h"
#include "tests/support/sums.h"

namespace tutti::test {
namespace {

constexpr uint32_t kRanks = 3;
constexpr SegmentShape kShape{.rank_count = kRanks,
                              .published = 2,
                              .channels = kLinkChannels,
                              .short_channels = kPlanChannels,
                              .slots = 64,
                              .slot_bytes = 1024};
constexpr uint64_t kShort = 100;
// Several rounds of a short ring.
constexpr uint64_t kLong = 100'000;

class ShortRingsTest : public testing::Test {
 protected:
  ShortRingsTest() {
    heap_.reset(*SymmetricHeap::create(1 << 20));
    config_.reference_bytes = UINT64_MAX;
  }
  void make_ranks(uint32_t cores) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      ranks_[rank] = std::make_unique<HostExecutor>(HostExecutorOptions{
          .peers = pages_.of(rank), .config = config_, .heap = *heap_, .shape = kShape, .cores = cores});
    }
  }
  /// One call on all ranks, which the test polls in turns.
  void sum(uint64_t count) {
    std::vector<Sum> numbers;
    std::vector<std::unique_ptr<BoundCall>> bound;
    for (uint32_t i = 0; i < kRanks; ++i) {
      numbers.emplace_back(count, static_cast<int>(i));
      bound.push_back(bind_sum(*ranks_[i], sum_of(count), kRanks, false, "direct_two_shot"));
      ASSERT_TRUE(ranks_[i]->begin(*bound[i], numbers[i].call()));
    }
    std::array<bool, kRanks> done{};
    for (int turn = 0; std::count(done.begin(), done.end(), true) < kRanks; ++turn) {
      ASSERT_LT(turn, 1'000'000) << "a rank waits for ever";
      for (uint32_t i = 0; i < kRanks; ++i) done[i] = done[i] || ranks_[i]->poll() == Progress::kDone;
    }
    for (uint32_t i = 0; i < kRanks; ++i) {
      EXPECT_TRUE(ranks_[i]->finish(Progress::kDone));
      EXPECT_TRUE(numbers[i].is_right(kRanks)) << count << " numbers, rank " << i;
    }
  }
  /// Whether rank 0 has sent to rank 1 in the first slot of that ring.
  bool has_used(bool short_ring) {
    const Segment& segment = *pages_.of(0).memory()[0].segment;
    std::byte* ring = short_ring ? segment.short_ring(0, 1) : segment.peer_ring(0, 1);
    return RecvLink::at(ring, kShape.short_ring(), 0).word() != 0;
  }

  Config config_;
  std::unique_ptr<SymmetricHeap> heap_;
  RankPages pages_{kShape};
  std::array<std::unique_ptr<HostExecutor>, kRanks> ranks_;
};

// Goal: short and long calls in turn have right results on the rings that they take.
TEST_F(ShortRingsTest, LongCallsOfRanksThatShareCoresTakeShortRings) {
  make_ranks(kRanks - 1);
  sum(kShort);
  EXPECT_FALSE(has_used(true));
  for (int turn = 0; turn < 3; ++turn) {
    sum(kLong);
    sum(kShort);
  }
  EXPECT_TRUE(has_used(true));
}

TEST_F(ShortRingsTest, RanksWithCoresOfTheirOwnTakeOrdinaryRings) {
  make_ranks(kRanks);
  sum(kLong);
  EXPECT_TRUE(has_used(false));
  EXPECT_FALSE(has_used(true));
}

}  // namespace
}  // namespace tutti::test
