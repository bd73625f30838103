// Goal: the predicted time follows from the steps as the model says, and orders algorithms as they are known
// to be.
#include "plan/price.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/plan/sample_plans.h"

namespace tutti::test {
namespace {

Price price(const PlanSet& plans, uint64_t bytes, const Costs& costs = {}) {
  const auto result = price_plans(plans, bytes, costs);
  EXPECT_TRUE(result) << result.status().text();
  return result ? *result : Price{};
}

// One message from rank 0 to rank 1: two steps, one latency, and each byte four times in memory or on the
// link.
TEST(PriceTest, OneMessageCostsWhatTheModelSays) {
  const Costs costs{.step_overhead_us = 1,
                    .link_latency_us = 10,
                    .link_bytes_per_us = 100,
                    .memory_bytes_per_us = 1000,
                    .cores = 2,
                    .switch_us = 0};
  const Price result = price(star_gather(2, 1), 1000, costs);
  // Rank 0: 1 + 2 * 1000/1000; latency 10; rank 1: 1 + 1000/100 + 1000/1000, then 1 + 2 * 1000/1000.
  EXPECT_DOUBLE_EQ(result.microseconds, 3 + 10 + 12 + 3);
  EXPECT_EQ(result.link_bytes, 1000u);
  EXPECT_EQ(result.memory_bytes, 2000u + 2000u + 1000u);
  EXPECT_EQ(result.critical_steps, 3u);
}

/// The largest fall of the time as bytes grow, as a ratio; 1: it never falls.
double least_growth(const PlanSet& plans, const Costs& costs) {
  double least = 1;
  double last_us = 0;
  for (uint64_t bytes = 0; bytes <= uint64_t{1} << 30; bytes = bytes * 3 + 1) {
    const double us = price(plans, bytes, costs).microseconds;
    if (last_us > 0) least = std::min(least, us / last_us);
    last_us = us;
  }
  return least;
}

// Two lanes share their rank's thread as ranks share cores: see price.h on anomalies.
TEST(PriceTest, MoreBytesNeverCostLess) {
  for (const NamedPlans& sample : all_samples()) {
    const bool shares = sample.plans[0].lanes.size() > 1;
    EXPECT_GE(least_growth(sample.plans, {.cores = 8}), shares ? 0.9 : 1.0) << sample.name;
    EXPECT_GE(least_growth(sample.plans, {.cores = 2, .switch_us = 0}), 0.9) << sample.name;
  }
}

TEST(PriceTest, RingOvertakesOneShotOnLongMessages) {
  const Costs costs{.cores = 8};
  EXPECT_LT(price(one_shot_all_reduce(8), 64, costs).microseconds,
            price(ring_all_reduce(8), 64, costs).microseconds);
  EXPECT_GT(price(one_shot_all_reduce(8), 1 << 24, costs).microseconds,
            price(ring_all_reduce(8), 1 << 24, costs).microseconds);
}

// A ring moves 2(P-1)/P of the message over every link; everybody reading everything moves P-1 messages a
// rank.
TEST(PriceTest, LinkBytesAreThoseOfTheAlgorithm) {
  EXPECT_EQ(price(ring_all_reduce(4), 4000).link_bytes, 4u * 2 * 3 * 1000);
  EXPECT_EQ(price(one_shot_all_reduce(4), 4000).link_bytes, 4u * 3 * 4000);
  EXPECT_EQ(price(pairwise_all_to_all(4), 1000).link_bytes, 4u * 3 * 1000);
  EXPECT_EQ(price(collecting_all_reduce(4), 4000).link_bytes, 4u * (1000 + 3 * 1000)) << "reduced on its way";
}

TEST(PriceTest, RanksWaitForCores) {
  const PlanSet plans = pairwise_all_to_all(8);
  double last_us = 0;
  for (const uint32_t cores : {8u, 4u, 2u, 1u}) {
    const double us = price(plans, 1 << 20, {.cores = cores, .switch_us = 0}).microseconds;
    EXPECT_GT(us, last_us * 1.3) << cores << " cores";
    last_us = us;
  }
}

TEST(PriceTest, SwitchesCostOnlyWhereRanksShareCores) {
  const PlanSet plans = ring_all_reduce(4);
  const Costs dear{.cores = 4, .switch_us = 100};
  EXPECT_LT(price(plans, 8, dear).microseconds, 100);
  EXPECT_GT(price(plans, 8, {.cores = 2, .switch_us = 100}).microseconds, 100);
}

// Both ranks end a step at one moment, and one of them knows nothing yet that it could wait for: that its
// message comes is decided by the step that the other starts just then. It used to wait forever.
TEST(PriceTest, ACoreWithoutWorkWaitsForOneThatIsFreeAtTheSameTime) {
  PlanSet plans = empty_plans(Collective::kGather, 2, "tie");
  for (Plan& plan : plans) plan.scratch_chunks = 1;
  plans[0].lanes[0].steps = {step({input(0)}, {output(0)}, 0), step({link(1)}, {output(1)}, 1)};
  plans[1].lanes[0].steps = {step({input(0)}, {scratch(0)}, 1), step({scratch(0)}, {link(0)}, 1)};
  const Costs costs{.step_overhead_us = 1, .link_latency_us = 10, .cores = 2};
  EXPECT_DOUBLE_EQ(price(plans, 0, costs).microseconds, 1 + 1 + 10 + 1);
}

TEST(PriceTest, TheLongestChainIsCounted) {
  EXPECT_EQ(price(chain_broadcast(5, 0, 1), 8).critical_steps, 5u);
  EXPECT_EQ(price(chain_broadcast(5, 0, 3), 8).critical_steps, 7u);
  EXPECT_EQ(price(doubling_all_reduce(8), 8).critical_steps, 6u);
}

// The same message between hosts: the network's bandwidth and latency come to what its ends cost.
TEST(PriceTest, AMessageBetweenHostsAlsoPassesTheNetwork) {
  const std::vector<uint32_t> host_of = {0, 1};
  const Costs costs{.step_overhead_us = 1,
                    .link_latency_us = 10,
                    .link_bytes_per_us = 100,
                    .memory_bytes_per_us = 1000,
                    .switch_us = 0,
                    .network_overhead_us = 4,
                    .network_latency_us = 50,
                    .network_bytes_per_us = 10,
                    .host_of = host_of};
  const Price result = price(star_gather(2, 1), 1000, costs);
  EXPECT_DOUBLE_EQ(result.microseconds, (3 + 4) + 100 + 50 + (12 + 4) + 3);
  EXPECT_EQ(result.link_bytes, 1000u);
  EXPECT_EQ(result.network_bytes, 1000u);
}

// Three hosts send to one: their messages come in one after the other. One host's three ranks send to as many
// others: theirs leave one after the other.
TEST(PriceTest, AHostsMessagesShareItsNetwork) {
  const Costs costs{.step_overhead_us = 0,
                    .link_latency_us = 0,
                    .link_bytes_per_us = 1e9,
                    .memory_bytes_per_us = 1e9,
                    .cores = 4,
                    .switch_us = 0,
                    .network_overhead_us = 0,
                    .network_latency_us = 5,
                    .network_bytes_per_us = 10};
  const auto us = [&](const PlanSet& plans, const std::vector<uint32_t>& host_of) {
    Costs placed = costs;
    placed.host_of = host_of;
    return price(plans, 1000, placed).microseconds;
  };
  EXPECT_NEAR(us(star_gather(4, 0), {0, 1, 2, 3}), 3 * 100 + 5, 1);
  EXPECT_NEAR(us(star_scatter(4, 0), {0, 1, 2, 3}), 3 * 100 + 5, 1);
  EXPECT_NEAR(us(star_gather(4, 0), {0, 1, 1, 1}), 3 * 100 + 5, 1);
  EXPECT_NEAR(us(star_gather(4, 0), {0, 0, 0, 1}), 100 + 5, 1);
  EXPECT_NEAR(us(star_gather(4, 0), {0, 0, 0, 0}), 0, 1);
}

TEST(PriceTest, EveryHostHasItsOwnCores) {
  const std::vector<uint32_t> host_of = {0, 0, 1, 1};
  Costs costs{.cores = 2, .switch_us = 100, .network_latency_us = 1};
  EXPECT_GT(price(ring_all_reduce(4), 8, costs).microseconds, 100);
  costs.host_of = host_of;
  EXPECT_LT(price(ring_all_reduce(4), 8, costs).microseconds, 100);
}

TEST(PriceTest, WrongPlansAndCostsAreRefused) {
  PlanSet plans = ring_all_reduce(3);
  EXPECT_FALSE(price_plans(plans, 8, {.link_bytes_per_us = 0}));
  EXPECT_FALSE(price_plans(plans, 8, {.cores = 0}));
  EXPECT_FALSE(price_plans(plans, 8, {.network_bytes_per_us = 0}));
  for (const std::vector<uint32_t>& host_of : {std::vector<uint32_t>{0, 1}, {0, 1, 3}}) {
    EXPECT_FALSE(price_plans(plans, 8, {.host_of = host_of}));
  }
  plans[0].lanes[0].steps.pop_back();
  EXPECT_EQ(price_plans(plans, 8).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tutti::test
