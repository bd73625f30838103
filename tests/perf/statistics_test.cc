// Statistics of iterations, bandwidth, iteration counts, and the name of an algorithm in an explanation.
#include "perf/statistics.h"

#include <gtest/gtest.h>

#include <vector>

#include "perf/measure.h"

namespace tutti::perf {
namespace {

TEST(StatisticsTest, PercentilesOfAHundredSamples) {
  std::vector<double> samples;
  for (int i = 100; i >= 1; --i) samples.push_back(i);
  const IterationStatistics statistics = iteration_statistics(samples);
  EXPECT_EQ(statistics.min, 1);
  EXPECT_EQ(statistics.max, 100);
  EXPECT_EQ(statistics.mean, 50.5);
  EXPECT_EQ(statistics.p50, 50);
  EXPECT_EQ(statistics.p95, 95);
  EXPECT_EQ(statistics.p99, 99);
  EXPECT_NEAR(statistics.deviation, 28.866, 0.001);
  EXPECT_NEAR(statistics.variation_percent, 57.16, 0.01);
}

TEST(StatisticsTest, OneSampleIsAllItsPercentiles) {
  const IterationStatistics statistics = iteration_statistics(std::vector<double>{4.0});
  EXPECT_EQ(statistics.p99, 4.0);
  EXPECT_EQ(statistics.p50, 4.0);
  EXPECT_EQ(statistics.variation_percent, 0.0);
}

TEST(StatisticsTest, NoSamplesGiveZeros) {
  EXPECT_EQ(iteration_statistics({}).max, 0.0);
}

TEST(StatisticsTest, BandwidthIsDecimalGigabytes) {
  EXPECT_DOUBLE_EQ(gigabytes_per_s(1e9, 1e6), 1.0);
  EXPECT_EQ(gigabytes_per_s(8, 0), 0.0);
}

TEST(StatisticsTest, IterationsFillTheTargetWithinTheirBounds) {
  EXPECT_EQ(iteration_count(10.0, 1000.0, 20, 5000), 100);
  EXPECT_EQ(iteration_count(1e6, 1000.0, 20, 5000), 20);
  EXPECT_EQ(iteration_count(0.001, 1000.0, 20, 5000), 5000);
  EXPECT_EQ(iteration_count(0.0, 1000.0, 20, 5000), 5000);
}

TEST(StatisticsTest, TheAlgorithmIsFoundInAnExplanation) {
  EXPECT_EQ(
      algorithm_name("all_reduce of 8 float32: algorithm recursive_doubling, by row 3 of the choice table"),
      "recursive_doubling");
  EXPECT_EQ(algorithm_name("all_reduce: algorithm ring"), "ring");
  EXPECT_EQ(algorithm_name("no operation yet"), "");
}

}  // namespace
}  // namespace tutti::perf
