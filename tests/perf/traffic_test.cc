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

std::string refusal(const std::string& text) {
  return std::string(TrafficMatrix::parse(text, 1.0).status().text());
}

// Goal: a matrix is read as in nccl-tests: bytes, scaled, then rounded down to 16.
TEST(TrafficTest, AMatrixSaysWhoSendsWhatToWhom) {
  const auto matrix = TrafficMatrix::parse("100 200\t150\n\n 50 100 75\n300 150 1.6e2", 2.0);
  ASSERT_TRUE(matrix.is_ok()) << matrix.status().text();
  EXPECT_EQ(matrix->dimension(), 3);
  EXPECT_EQ(matrix->bytes(0, 1), 400u);
  EXPECT_EQ(matrix->bytes(1, 2), 144u);
  EXPECT_EQ(matrix->sent(0, 2), 192u + 400u);
  EXPECT_EQ(matrix->received(0, 3), 192u + 96u + 592u);
  EXPECT_EQ(matrix->largest_total(3), 592u + 288u + 320u);
}

TEST(TrafficTest, AWrongMatrixIsNamedByRowAndColumn) {
  EXPECT_THAT(refusal("1 2\n3 x"), testing::HasSubstr("row 2, column 2 is \"x\""));
  EXPECT_THAT(refusal("1 -2\n3 4"), testing::HasSubstr("row 1, column 2 is \"-2\""));
  EXPECT_THAT(refusal("1 2\n3"), testing::HasSubstr("row 2 has 1 numbers, the first row 2"));
  EXPECT_THAT(refusal("1 2"), testing::HasSubstr("1 rows of 2 numbers"));
  EXPECT_THAT(refusal(""), testing::HasSubstr("no square"));
  EXPECT_THAT(std::string(TrafficMatrix::read("/no/such/file", 1.0).status().text()),
              testing::HasSubstr("/no/such/file"));
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
