// Tests of paired times: what chance does to them, and what it does not.
#include "tools/paired_times.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace tutti::tool {
namespace {

constexpr int kTrials = 300;
constexpr uint32_t kTurns = 3;

/// Rows as measured ones are: what all algorithms of a turn have in common spreads by 15 %, each row by 5 %.
class Moments {
 public:
  explicit Moments(uint32_t seed) : random_(seed) {}

  PairedTimes times(const std::map<std::string, double>& us, uint32_t starts, uint64_t distance = 0,
                    PairedTimes rows = {}) {
    std::normal_distribution<double> of_turn(0, 0.15), of_row(0, 0.05);
    for (uint32_t start = 0; start < starts; ++start) {
      for (uint32_t turn = 0; turn < kTurns; ++turn) {
        const double common = of_turn(random_);
        for (const auto& [name, one] : us)
          rows.add(name, {distance, start, turn}, one * std::exp(common + of_row(random_)));
      }
    }
    return rows;
  }

 private:
  std::minstd_rand random_;
};

// Goal: of two equal algorithms neither looks bad, however busy the moments are.
TEST(PairedTimesTest, EqualAlgorithmsAreNeitherLeftNorSurelyDear) {
  int left = 0, dear = 0, surely_dear = 0;
  for (uint32_t seed = 1; seed <= kTrials; ++seed) {
    const PairedTimes times = Moments(seed).times({{"own", 10}, {"equal", 10}, {"slow", 15}}, 4);
    left += times.lead("own", times.fastest())->is_surely_above(0, times.count() - 1) ? 1 : 0;
    const auto cost = times.lead_over_fastest("own");
    ASSERT_TRUE(cost.has_value());
    dear += cost->mean > std::log(1.05) ? 1 : 0;
    surely_dear += cost->is_surely_above(std::log(1.05)) ? 1 : 0;
  }
  EXPECT_LE(left, kTrials * 0.05);
  EXPECT_LE(dear, kTrials * 0.05);
  EXPECT_EQ(surely_dear, 0);
}

// Goal: an algorithm that is 8 % faster is found in five starts, and the slower one is called dear.
TEST(PairedTimesTest, EightPercentAreFound) {
  int found = 0, dear = 0;
  for (uint32_t seed = 1; seed <= kTrials; ++seed) {
    const PairedTimes times = Moments(seed).times({{"own", 10.8}, {"fast", 10}, {"slow", 15}}, 5);
    const bool is_first = times.fastest() == "fast";
    found += is_first && times.lead("own", "fast")->is_surely_above(0, times.count() - 1) ? 1 : 0;
    dear += times.lead_over_fastest("own")->mean > std::log(1.05) ? 1 : 0;
  }
  EXPECT_GE(found, kTrials * 0.85);
  EXPECT_GE(dear, kTrials * 0.85);
}

// Goal: the best of many equal ones is no reason to leave another one.
TEST(PairedTimesTest, TheBestOfTenEqualOnesIsNotBetter) {
  int left = 0, dear = 0;
  std::map<std::string, double> us;
  for (int i = 0; i < 10; ++i) us["equal" + std::to_string(i)] = 10;
  for (uint32_t seed = 1; seed <= kTrials; ++seed) {
    const PairedTimes times = Moments(seed).times(us, 4);
    left += times.lead("equal0", times.fastest())->is_surely_above(0, times.count() - 1) ? 1 : 0;
    dear += times.lead_over_fastest("equal0")->mean > std::log(1.05) ? 1 : 0;
  }
  EXPECT_LE(left, kTrials * 0.05);
  EXPECT_LE(dear, kTrials * 0.1);
}

// Goal: a row that is left out moves no other one. Method: the same moments, without one row of the fastest,
// in the slowest turn.
TEST(PairedTimesTest, ALostRowChangesNothing) {
  PairedTimes whole, lost;
  for (uint32_t start = 0; start < 4; ++start) {
    for (uint32_t turn = 0; turn < kTurns; ++turn) {
      const double moment = 1 + start + 3 * turn;
      for (const auto& [name, us] : {std::pair("own", 10.9), {"fast", 10.0}, {"slow", 15.0}}) {
        whole.add(name, {0, start, turn}, us * moment);
        if (start == 3 && turn == 2 && us == 10.0) continue;
        lost.add(name, {0, start, turn}, us * moment);
      }
    }
  }
  EXPECT_EQ(lost.fastest(), "fast");
  EXPECT_NEAR(lost.lead("own", "fast")->mean, whole.lead("own", "fast")->mean, 1e-9);
  EXPECT_NEAR(lost.lead_over_fastest("own")->mean, std::log(1.09), 1e-9);
}

// Goal: each distance of the cores counts once. Method: near cores have four starts, far ones one, where the
// other algorithm is the faster one by more.
TEST(PairedTimesTest, EachDistanceCountsOnce) {
  Moments moments(7);
  PairedTimes times = moments.times({{"near", 10}, {"far", 13}}, 4, 57);
  times = moments.times({{"near", 90}, {"far", 45}}, 1, 250, std::move(times));
  EXPECT_EQ(times.fastest(), "far");
  EXPECT_NEAR(times.lead("near", "far")->mean, (std::log(10 / 13.0) + std::log(2)) / 2, 0.1);
}

TEST(PairedTimesTest, WithoutRowsInCommonNothingIsSaid) {
  PairedTimes times;
  EXPECT_EQ(times.fastest(), "");
  times.add("one", {0, 1, 0}, 10);
  times.add("other", {0, 2, 0}, 10);
  EXPECT_EQ(times.fastest(), "");
  EXPECT_FALSE(times.lead("one", "other").has_value());
  EXPECT_FALSE(times.lead("one", "third").has_value());
  EXPECT_FALSE(times.lead_over_fastest("one").has_value()) << "one start";
}

}  // namespace
}  // namespace tutti::tool
