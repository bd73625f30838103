// Tests of Levels: which levels are used, and who is whose counterpart.
#include "algorithms/levels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/placements.h"

namespace tutti::generators {
namespace {

using test::Placement;
using ::testing::ElementsAre;

std::vector<uint32_t> sizes_of(const Levels& levels) {
  std::vector<uint32_t> sizes;
  for (uint32_t level = 0; level < levels.count(); ++level) sizes.push_back(levels.size(level));
  return sizes;
}

Levels levels_of(const Placement& placement) {
  return {Request{.rank_count = placement.rank_count()}, placement.facts()};
}

TEST(LevelsTest, GroupsLieInsideGroups) {
  const Levels levels = levels_of(test::place_levels({2, 3, 4}, false));
  EXPECT_THAT(sizes_of(levels), ElementsAre(2, 3, 4));
  EXPECT_EQ(levels.stride(2), 6u);
  EXPECT_EQ(levels.rank_at(13), 13u);
  EXPECT_EQ(levels.digit(13, 0), 1u);
  EXPECT_EQ(levels.digit(13, 1), 0u);
  EXPECT_EQ(levels.digit(13, 2), 2u);
}

// Ranks that are dealt out to hosts and their groups have places by these, not by their numbers.
TEST(LevelsTest, PlacesFollowTheGroups) {
  const Levels levels = levels_of(test::place_levels({2, 2, 2}, true));
  std::vector<uint32_t> ranks;
  for (uint32_t place = 0; place < 8; ++place) {
    ranks.push_back(levels.rank_at(place));
    EXPECT_EQ(levels.place_of(ranks.back()), place);
  }
  EXPECT_THAT(ranks, ElementsAre(0, 4, 2, 6, 1, 5, 3, 7));
  EXPECT_FALSE(levels.is_canonical());
}

TEST(LevelsTest, WithoutLevelsHostsAreOneAndWithoutHostsAllRanks) {
  EXPECT_THAT(sizes_of(levels_of(test::place_contiguous({2, 2, 2}))), ElementsAre(2, 3));
  EXPECT_THAT(sizes_of(Levels({.rank_count = 5}, {})), ElementsAre(5));
}

TEST(LevelsTest, IrregularLevelsAreLeftOut) {
  Placement placement = test::place("irregular hosts", {0, 0, 1, 1, 1, 1});
  placement.levels = {{0, 0, 1, 1, 2, 2}, placement.host_of};
  EXPECT_THAT(sizes_of(levels_of(placement)), ElementsAre(2, 3));
  placement.levels = {{0, 1, 1, 0, 2, 2}, {0, 0, 0, 1, 1, 1}};
  EXPECT_THAT(sizes_of(levels_of(placement)), ElementsAre(3, 2)) << "pairs across the larger groups";
  placement.levels = {{0, 1, 2}};
  EXPECT_THAT(sizes_of(levels_of(placement)), ElementsAre(6)) << "levels of other ranks";
}

TEST(LevelsTest, AreCanonicalIfAllButTheLargestArePowersOfTwo) {
  EXPECT_TRUE(levels_of(test::place_levels({2, 4, 3}, false)).is_canonical());
  EXPECT_FALSE(levels_of(test::place_levels({3, 4, 2}, false)).is_canonical());
  EXPECT_FALSE(levels_of(test::place_levels({2, 3, 2}, false)).is_canonical());
}

}  // namespace
}  // namespace tutti::generators
