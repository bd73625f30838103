// Wide slots: chunks from 1 MiB on travel in them where each rank has a core.
#include <string>

#include "core/limits.h"
#include "tests/support/summing_ranks.h"

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

class WideSlotsTest : public testing::TestWithParam<const char*> {
 protected:
  void sum(uint64_t count) { ranks_.sum(count, GetParam()); }
  /// Whether any rank's ring holds a slice longer than a slot.
  bool has_wide_slices() {
    for (uint32_t writer = 0; writer < kRanks; ++writer) {
      const Segment& segment = ranks_.segment(writer);
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

  SummingRanks ranks_{kShape};

 private:
  static bool holds_wide(std::byte* ring, const RingShape& shape) {
    const RecvLink link = RecvLink::at(ring, shape, 0);
    for (uint64_t ahead = 0; ahead < shape.slots; ++ahead) {
      if (flag::bytes(link.word(ahead)) > shape.slot_bytes) return true;
    }
    return false;
  }
};

// Goal: short and long calls in turn have right results and do not block each other, wherever in the ring the
// long ones begin. An exchange of long messages behind short ones hung.
TEST_P(WideSlotsTest, ShortAndLongCallsInTurnAreRight) {
  ranks_.make(kRanks);
  for (int turn = 0; turn < 6; ++turn) {
    for (int i = 0; i < 5; ++i) sum(kShort);
    sum(kLong / 8);
    sum(kLong + (turn % 3));
  }
  EXPECT_TRUE(has_wide_slices());
}

TEST_P(WideSlotsTest, RanksThatShareCoresHaveNone) {
  ranks_.make(kRanks - 1);
  sum(kLong);
  EXPECT_FALSE(has_wide_slices());
}

INSTANTIATE_TEST_SUITE_P(Algorithms, WideSlotsTest,
                         testing::Values("direct_one_shot", "direct_two_shot", "ring", "tree"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace tutti::test
