// Goal: large jobs are priced in little work, and the short cuts give the price of the whole walk: folded
// hosts, lower bounds, and the race of candidates.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "algorithms/algorithm.h"
#include "plan/price.h"
#include "tests/support/placements.h"

namespace tutti {
namespace {

/// An algorithm with a request, on hosts of equal size.
struct Case {
  const Algorithm& algorithm;
  test::Placement placement;
  uint64_t block_bytes = 0;

  Request request() const {
    return {
        .collective = algorithm.collective, .rank_count = placement.rank_count(), .block_bytes = block_bytes};
  }
  bool is_served() const { return algorithm.supports(request(), placement.facts()); }
  Costs costs() const { return {.cores = 4, .host_of = placement.host_of}; }
  /// Borrows this.
  PlanMaker maker() const {
    return {.rank_count = placement.rank_count(),
            .plan_of = [this](uint32_t rank) { return algorithm.make(request(), placement.facts(), rank); }};
  }
  Result<Price> whole() const {
    std::vector<Plan> plans;
    for (uint32_t rank = 0; rank < placement.rank_count(); ++rank) plans.push_back(maker().plan_of(rank));
    return price_plans(plans, block_bytes, costs());
  }
};

test::Placement equal_hosts(uint32_t hosts, uint32_t ranks_per_host) {
  return test::place_contiguous(std::vector<uint32_t>(hosts, ranks_per_host));
}

/// Calls body(case) for every algorithm on hosts of equal sizes. The blocks can be cut without a rest, so all
/// chunks are of one size.
template <class Body>
void for_each_case(const Body& body) {
  for (const auto& [hosts, ranks_per_host] :
       {std::pair{4u, 1u}, {4u, 4u}, {5u, 3u}, {6u, 2u}, {8u, 8u}, {12u, 1u}}) {
    for (const Algorithm& algorithm : algorithms()) {
      const uint64_t block_bytes = uint64_t{hosts} * ranks_per_host * 4096;
      const Case one{algorithm, equal_hosts(hosts, ranks_per_host), block_bytes};
      if (one.is_served()) body(one);
    }
  }
}

std::string name(const Case& one) {
  return std::string(collective_name(one.algorithm.collective)) + " by " + std::string(one.algorithm.name) +
         ", " + one.placement.name;
}

TEST(PriceScaleTest, OneHostOfManyEqualOnesStandsForAll) {
  for_each_case([](const Case& one) {
    const auto whole = one.whole();
    const auto short_cut = price_plans(one.maker(), one.block_bytes, one.costs());
    ASSERT_TRUE(whole && short_cut) << name(one);
    EXPECT_FALSE(short_cut->is_lower_bound) << name(one);
    EXPECT_NEAR(short_cut->microseconds, whole->microseconds, whole->microseconds * 1e-9) << name(one);
    EXPECT_EQ(short_cut->link_bytes, whole->link_bytes) << name(one);
    EXPECT_EQ(short_cut->network_bytes, whole->network_bytes) << name(one);
    EXPECT_EQ(short_cut->memory_bytes, whole->memory_bytes) << name(one);
    EXPECT_EQ(short_cut->critical_steps, whole->critical_steps) << name(one);
  });
}

TEST(PriceScaleTest, ABoundIsBelowThePrice) {
  for_each_case([](const Case& one) {
    const auto whole = one.whole();
    ASSERT_TRUE(whole) << name(one);
    for (const double part : {0.0, 0.5, 0.99}) {
      const auto bound = price_plans(one.maker(), one.block_bytes, one.costs(),
                                     {.microseconds = whole->microseconds * part});
      ASSERT_TRUE(bound) << name(one);
      EXPECT_LE(bound->microseconds, whole->microseconds * (1 + 1e-9)) << name(one);
      EXPECT_GE(bound->microseconds, whole->microseconds * part) << name(one);
    }
    const auto unwalked =
        price_plans(one.maker(), one.block_bytes, one.costs(), {.microseconds = 1e18, .steps = 0});
    ASSERT_TRUE(unwalked) << name(one);
    EXPECT_LE(unwalked->microseconds, whole->microseconds * (1 + 1e-9)) << name(one);
  });
}

/// The prices of the algorithms that serve an all_reduce, as price_candidates gives them.
struct Race {
  Race(uint32_t hosts, uint32_t ranks_per_host, uint64_t bytes) {
    for (const Algorithm& algorithm : algorithms()) {
      if (algorithm.collective != Collective::kAllReduce) continue;
      const Case one{algorithm, equal_hosts(hosts, ranks_per_host), bytes};
      if (one.is_served()) cases.push_back(one);
    }
    std::vector<PlanMaker> makers;
    for (const Case& one : cases) makers.push_back(one.maker());
    auto result = price_candidates(makers, bytes, cases.front().costs());
    EXPECT_TRUE(result) << result.status().text();
    if (result) prices = std::move(*result);
  }
  const Price& best() const { return *std::ranges::min_element(prices, {}, &Price::microseconds); }

  std::vector<Case> cases;
  std::vector<Price> prices;
};

TEST(PriceScaleTest, TheFastestCandidateIsFound) {
  for (const uint64_t bytes : {uint64_t{64}, uint64_t{65536}, uint64_t{1} << 24}) {
    const Race race(8, 4, bytes);
    double least_us = 1e18;
    for (const Case& one : race.cases) {
      const auto price = price_plans(one.maker(), bytes, one.costs());
      ASSERT_TRUE(price) << name(one);
      least_us = std::min(least_us, price->microseconds);
    }
    EXPECT_FALSE(race.best().is_lower_bound) << bytes << " bytes";
    EXPECT_NEAR(race.best().microseconds, least_us, least_us * 1e-9) << bytes << " bytes";
  }
}

// A price used to take time with the square of the ranks and worse: 28 s for 256 ranks, and 1,024 were
// refused. This test ends within its time only where the work is near linear.
TEST(PriceScaleTest, ThousandsOfRanksArePriced) {
  for (const uint32_t hosts : {32u, 512u}) {
    const Race race(hosts, 8, uint64_t{1} << 20);
    ASSERT_GT(race.prices.size(), 5u);
    EXPECT_FALSE(race.best().is_lower_bound) << hosts << " hosts";
    EXPECT_GT(race.best().microseconds, 1000) << "a host sends 2 MiB at 1,250 bytes a microsecond";
  }
}

TEST(PriceScaleTest, PlansThatAreTooLargeToVerifyHaveAPrice) {
  const Algorithm* ring = find_algorithm(Collective::kAllReduce, "ring");
  ASSERT_NE(ring, nullptr);
  const Case one{*ring, equal_hosts(1024, 16), uint64_t{1} << 26};
  const auto price = price_plans(one.maker(), one.block_bytes, one.costs());
  ASSERT_TRUE(price) << price.status().text();
  EXPECT_FALSE(price->is_lower_bound);
}

}  // namespace
}  // namespace tutti
