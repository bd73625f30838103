// Short rings: long calls take them where ranks share cores and all send to all.
#include "tests/support/summing_ranks.h"

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
  void sum(uint64_t count) { ranks_.sum(count, "direct_two_shot"); }
  /// Whether rank 0 has sent to rank 1 in the first slot of that ring.
  bool has_used(bool short_ring) {
    const Segment& segment = ranks_.segment(0);
    std::byte* ring = short_ring ? segment.short_ring(0, 1) : segment.peer_ring(0, 1);
    return RecvLink::at(ring, kShape.short_ring(), 0).word() != 0;
  }

  SummingRanks ranks_{kShape};
};

// Goal: short and long calls in turn have right results on the rings that they take.
TEST_F(ShortRingsTest, LongCallsOfRanksThatShareCoresTakeShortRings) {
  ranks_.make(kRanks - 1);
  sum(kShort);
  EXPECT_FALSE(has_used(true));
  for (int turn = 0; turn < 3; ++turn) {
    sum(kLong);
    sum(kShort);
  }
  EXPECT_TRUE(has_used(true));
}

TEST_F(ShortRingsTest, RanksWithCoresOfTheirOwnTakeOrdinaryRings) {
  ranks_.make(kRanks);
  sum(kLong);
  EXPECT_TRUE(has_used(false));
  EXPECT_FALSE(has_used(true));
}

}  // namespace
}  // namespace tutti::test
