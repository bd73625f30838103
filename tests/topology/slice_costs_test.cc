// Goal: what a slice costs follows from the measured points.
#include "topology/slice_costs.h"

#include <gtest/gtest.h>

namespace tutti::topology {
namespace {

SliceCosts costs_of(SliceWork work, std::vector<SlicePoint> points) {
  SliceCosts costs;
  costs.curves[static_cast<size_t>(work)] = std::move(points);
  return costs;
}

TEST(SliceCostsTest, StraightLinesJoinTheMeasuredSizes) {
  const SliceCosts costs = costs_of(SliceWork::kSend, {{8, {100}}, {1008, {200}}, {2008, {600}}});
  EXPECT_DOUBLE_EQ(costs.us(SliceWork::kSend, 1), 0.1);
  EXPECT_DOUBLE_EQ(costs.us(SliceWork::kSend, 508), 0.15);
  EXPECT_DOUBLE_EQ(costs.us(SliceWork::kSend, 1008), 0.2);
  EXPECT_DOUBLE_EQ(costs.us(SliceWork::kSend, 3008), 1.0);
  EXPECT_DOUBLE_EQ(costs.us(SliceWork::kReceive, 8), 0);
}

// Method: reading costs 100 ns beyond a copy in the cache, writing 200 ns, both at once 150 ns.
TEST(SliceCostsTest, WorksThatOverlapCostAPartOfTheirSum) {
  SliceCosts costs = costs_of(SliceWork::kCopy, {{8, {50}}});
  costs.curves[static_cast<size_t>(SliceWork::kRead)] = {{8, {150}}};
  costs.curves[static_cast<size_t>(SliceWork::kWrite)] = {{8, {250}}};
  costs.curves[static_cast<size_t>(SliceWork::kCopyMemory)] = {{8, {200}}};
  EXPECT_DOUBLE_EQ(costs.beyond_copy_us(SliceWork::kRead, 8), 0.1);
  EXPECT_DOUBLE_EQ(costs.part_of(SliceWork::kCopyMemory, SliceWork::kRead, SliceWork::kWrite, 8), 0.5);
  // A probe that says more than the sum was disturbed.
  costs.curves[static_cast<size_t>(SliceWork::kCopyMemory)] = {{8, {900}}};
  EXPECT_DOUBLE_EQ(costs.part_of(SliceWork::kCopyMemory, SliceWork::kRead, SliceWork::kWrite, 8), 1);
}

TEST(SliceCostsTest, CostsAreKnownIfEveryCurveIs) {
  SliceCosts costs;
  costs.turn_ns.value = costs.call_ns.value = 1;
  for (auto& curve : costs.curves) curve = {{8, {1}}};
  EXPECT_TRUE(costs.are_known());
  costs.curves[3].clear();
  EXPECT_FALSE(costs.are_known());
}

// Goal: measurements from before there were curves of sockets still price ranks that share memory.
TEST(SliceCostsTest, CurvesOfSocketsMayBeMissing) {
  SliceCosts costs;
  costs.turn_ns.value = costs.call_ns.value = 1;
  for (auto& curve : costs.curves) curve = {{8, {1}}};
  EXPECT_TRUE(costs.know_sockets());
  costs.curves[static_cast<size_t>(SliceWork::kSocketPass)].clear();
  EXPECT_FALSE(costs.know_sockets());
  EXPECT_TRUE(costs.are_known());
}

}  // namespace
}  // namespace tutti::topology
