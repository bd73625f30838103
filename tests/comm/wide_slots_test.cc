// Wide slots: chunks from 1 MiB on travel in them where each rank has a core.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "comm/host_executor.h"
#include "core/limits.h"
#include "tests/support/rank_pages.h"
#include "tests/support/sums.h"

namespace tutti::test {
namespace {

constexpr uint32_t kRanks = 3;
constexpr SegmentShape kShape{.rank_count = kRanks,
                              .published = 2,
                              .channels = kLinkChannels,
                              .slots = 64,
                              .slot_bytes = 4096,
                              .has_wide_slots = true};
constexpr uint64_t kShort = 100;
// Each rank's chunk has 1 MiB, and a whole message three.
constexpr uint64_t kLong = kRanks * kLeastWidePiece / sizeof(int32_t);

/// One call after the other on all ranks, which the test polls in turns.
class WideSlotsTest : public testing::TestWithParam<const char*> {
 protected:
  WideSlotsTest() {
    heap_.reset(*SymmetricHeap::create(1 << 20));
    config_.reference_bytes = UINT64_MAX;
  }
  void make_ranks(uint32_t cores) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      ranks_[rank] = std::make_unique<HostExecutor>(HostExecutorOptions{
          .peers = pages_.of(rank), .config = config_, .heap = *heap_, .shape = kShape, .cores = cores});
    }
  }
  void sum(uint64_t count) {
    std::vector<Sum> numbers;
    std::vector<std::unique_ptr<BoundCall>> bound;
    for (uint32_t i = 0; i < kRanks; ++i) {
      numbers.emplace_back(count, static_cast<int>(i));
      bound.push_back(bind_sum(*ranks_[i], sum_of(count), kRanks, false, GetParam()));
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
  /// Whether any rank's ring holds a slice longer than a slot.
  bool has_wide_slices() {
    for (uint32_t writer = 0; writer < kRanks; ++writer) {
      const Segment& segment = *pages_.of(0).memory()[writer].segment;
      for (uint32_t i = 0; i < kShape.published; ++i) {
        if (holds_wide(segment.publish_ring(i), kShape.publish_ring())) return true;
      }
      for (uint32_t channel = 0; channel < kShape.channels; ++channel) {
        for (uint32_t reader = 0; reader < kRanks; ++reader) {
          if (holds_wide(segment.peer_ring(channel, reader), kShape.peer_ring())) return true;
        }
      }
    }
    return false;
  }

 private:
  static bool holds_wide(std::byte* ring, const RingShape& shape) {
    const RecvLink link = RecvLink::at(ring, shape, 0);
    for (uint64_t ahead = 0; ahead < shape.slots; ++ahead) {
      if (flag::bytes(link.word(ahead)) > shape.slot_bytes) return true;
    }
    return false;
  }

  Config config_;
  std::unique_ptr<SymmetricHeap> heap_;
  RankPages pages_{kShape};
  std::array<std::unique_ptr<HostExecutor>, kRanks> ranks_;
};

// Goal: short and long calls in turn have right results and do not block each other, wherever in the ring the
// long ones begin. An exchange of long messages behind short ones hung.
TEST_P(WideSlotsTest, ShortAndLongCallsInTurnAreRight) {
  make_ranks(kRanks);
  for (int turn = 0; turn < 6; ++turn) {
    for (int i = 0; i < 5; ++i) sum(kShort);
    sum(kLong / 8);
    sum(kLong + (turn % 3));
  }
  EXPECT_TRUE(has_wide_slices());
}

TEST_P(WideSlotsTest, RanksThatShareCoresHaveNone) {
  make_ranks(kRanks - 1);
  sum(kLong);
  EXPECT_FALSE(has_wide_slices());
}

INSTANTIATE_TEST_SUITE_P(Algorithms, WideSlotsTest,
                         testing::Values("direct_one_shot", "direct_two_shot", "ring", "tree"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace tutti::test
