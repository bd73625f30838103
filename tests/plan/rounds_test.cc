// Slices and rounds: what a message is cut into, as a function of its length and of the links' slots.
#include "plan/rounds.h"

#include <gtest/gtest.h>

#include "core/limits.h"

namespace tutti::test {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = kKiB * kKiB;
constexpr SliceLimits kWide{.wide_slots = 32};

TEST(RoundsTest, SlicesAreHalfOfAPieceUpToASlot) {
  EXPECT_EQ(slice_bytes_for(8 * kKiB, {}), 16 * kKiB);
  EXPECT_EQ(slice_bytes_for(16 * kKiB, {}), 8 * kKiB);
  EXPECT_EQ(slice_bytes_for(32 * kKiB, {}), 16 * kKiB);
  EXPECT_EQ(slice_bytes_for(128 * kMiB, {}), 16 * kKiB);
}

TEST(RoundsTest, SlicesAreAQuarterOfAPieceOnDevices) {
  constexpr SliceLimits kDevice{.most = 64 * kKiB, .wanted = SliceLimits::kWantedOnDevices};
  EXPECT_EQ(slice_bytes_for(32 * kKiB, kDevice), 8 * kKiB);
  EXPECT_EQ(slice_bytes_for(33 * kKiB, kDevice), 16 * kKiB) << "three, since they are multiples of 8 KiB";
  EXPECT_EQ(slice_bytes_for(128 * kKiB, kDevice), 32 * kKiB);
}

TEST(RoundsTest, LongPiecesHaveSlicesOfAWideSlot) {
  EXPECT_EQ(slice_bytes_for(kLeastWidePiece - 1, kWide), 16 * kKiB);
  EXPECT_EQ(slice_bytes_for(kLeastWidePiece, kWide), kWideSlotBytes);
  EXPECT_EQ(slice_bytes_for(128 * kMiB, kWide), kWideSlotBytes);
}

TEST(RoundsTest, ARoundFillsHalfOfTheSlotsThatHoldItsSlices) {
  const Rounds narrow = Rounds::of(512 * kKiB, 128, 1, kWide);
  EXPECT_EQ(narrow.slots, 128u);
  EXPECT_EQ(narrow.round_bytes, 64 * 16 * kKiB);
  const Rounds wide = Rounds::of(8 * kMiB, 128, 1, kWide);
  EXPECT_EQ(wide.slots, 32u);
  EXPECT_EQ(wide.slice_bytes, kWideSlotBytes);
  EXPECT_EQ(wide.round_bytes, 16 * kWideSlotBytes);
  EXPECT_EQ(wide.count, 8u);
}

// Goal: a plan that needs many slices under way gets the slots that are many.
TEST(RoundsTest, APlanThatNeedsManySlotsHasNoWideSlices) {
  const Rounds wide = Rounds::of(8 * kMiB, 128, 4, kWide);
  EXPECT_EQ(wide.slots, 32u);
  EXPECT_EQ(wide.round_bytes, 4 * wide.slice_bytes) << "enough to overlap";
  const Rounds narrow = Rounds::of(8 * kMiB, 128, 5, kWide);
  EXPECT_EQ(narrow.slots, 128u);
  EXPECT_EQ(narrow.slice_bytes, 16 * kKiB);
}

}  // namespace
}  // namespace tutti::test
