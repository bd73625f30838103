// alltoallv's counts, and the shapes, inputs and expectations that follow from them.
#include "perf/traffic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace tutti::perf {
namespace {

TEST(TrafficTest, WithoutSpreadAllPeersGetTheSame) {
  EXPECT_THAT(traffic_by_distance(400, 4, 0.0), testing::ElementsAre(100, 100, 100, 100));
}

// Regression: the distance was the shorter way round the circle; nccl-tests counts upwards only.
TEST(TrafficTest, WithFullSpreadTrafficFollowsTheDistance) {
  EXPECT_THAT(traffic_by_distance(600, 4, 1.0), testing::ElementsAre(0, 100, 200, 300));
}

TEST(TrafficTest, OneRankKeepsItAll) {
  EXPECT_THAT(traffic_by_distance(10, 1, 1.0), testing::ElementsAre(10));
}

// Goal: buffers sized for `total` always suffice.
TEST(TrafficTest, TheSumNeverExceedsTheTotal) {
  for (int ranks = 1; ranks <= 17; ++ranks)
    for (const size_t total : {size_t{0}, size_t{1}, size_t{7}, size_t{1000003}})
      for (const double spread : {0.0, 0.3, 1.0}) {
        const std::vector<size_t> counts = traffic_by_distance(total, ranks, spread);
        EXPECT_LE(std::accumulate(counts.begin(), counts.end(), size_t{0}), total);
      }
}

}  // namespace
}  // namespace tutti::perf
