// Goal: the verifier refuses every damaged plan that can go wrong.
// Method: plans that are right are damaged at random; a mutant that a concrete execution sees go wrong
// (result, order, deadlock; plan/concrete_run.h) must be refused. A mutant that is refused but never seen to
// go wrong is counted, not judged: a race need not show in the schedules tried.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <random>
#include <string>

#include "algorithms/algorithm.h"
#include "plan/text.h"
#include "plan/verify.h"
#include "tests/plan/concrete_run.h"
#include "tests/plan/mutations.h"
#include "tests/plan/sample_plans.h"
#include "tests/support/placements.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

constexpr uint32_t kSeed = 7;

struct Tally {
  uint32_t mutants = 0;
  uint32_t refused = 0;
  uint32_t seen_wrong = 0;
};
using Tallies = std::map<std::string_view, Tally>;

/// Damages `original` in every way, `times` times each.
void damage(const NamedPlans& original, uint32_t times, Tallies& tallies) {
  std::mt19937 random(kSeed);
  for (const Mutation& mutation : mutations()) {
    for (uint32_t i = 0; i < times; ++i) {
      PlanSet mutant = original.plans;
      if (!mutation.apply(mutant, random) || mutant == original.plans) continue;
      const Status status = verify_plans(mutant, {.in_place = original.in_place});
      // Those that pass are tried harder.
      const std::string wrong = run_many_ways(mutant, original.in_place, status.is_ok() ? 16 : 2, kSeed);
      Tally& tally = tallies[mutation.name];
      ++tally.mutants;
      tally.refused += status.is_ok() ? 0 : 1;
      tally.seen_wrong += wrong.empty() ? 0 : 1;
      ASSERT_FALSE(status.is_ok() && !wrong.empty()) << original.name << ", " << mutation.name << " (seed "
                                                     << kSeed << "): " << wrong << ", yet it was accepted:\n"
                                                     << print_plans(mutant);
    }
  }
}

void record(const Tallies& tallies) {
  Tally all;
  for (const auto& [name, tally] : tallies) {
    all.mutants += tally.mutants;
    all.refused += tally.refused;
    all.seen_wrong += tally.seen_wrong;
    ::testing::Test::RecordProperty(
        std::string(name), format("%u mutants, %u refused, %u seen to go wrong", tally.mutants, tally.refused,
                                  tally.seen_wrong));
  }
  std::printf("%u mutants: %u refused, %u seen to go wrong, all of them refused\n", all.mutants, all.refused,
              all.seen_wrong);
}

// The judge must be right itself: it finds nothing wrong with right plans.
TEST(MutationTest, RightPlansRunRight) {
  for (const NamedPlans& sample : all_samples()) {
    EXPECT_EQ(run_many_ways(sample.plans, sample.in_place, 4, kSeed), "") << sample.name;
  }
}

// And it sees what depends on the schedule: in place, a block sent by reference is overwritten too early.
TEST(MutationTest, TheJudgeSeesRaces) {
  EXPECT_EQ(run_many_ways(pairwise_all_to_all(4), true, 16, kSeed), "wrong result");
  PlanSet plans = ring_all_reduce(4);
  for (Plan& plan : plans) plan.slots_needed = 1;
  EXPECT_EQ(run_many_ways(plans, true, 16, kSeed), "deadlock");
}

TEST(MutationTest, NoHarmfulMutantOfASampleIsAccepted) {
  Tallies tallies;
  for (const NamedPlans& sample : all_samples()) {
    damage(sample, runs_of_scope(8, 200), tallies);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(tallies.size(), mutations().size()) << "a mutation that never applies tests nothing";
  record(tallies);
}

/// One host; for algorithms that look at them, several. Under a sanitizer without the largest, which takes as
/// long as the others together.
std::vector<Placement> placements_for(const Algorithm& algorithm) {
  std::vector<Placement> placements = {place_contiguous({2}), place_contiguous({3}), place_contiguous({5}),
                                       place_contiguous({8})};
  if (is_hierarchical(algorithm)) {
    placements = {place_contiguous({1, 1}), place_contiguous({2, 1}), place_contiguous({1, 2, 1}),
                  place_cyclic(2, 2)};
  }
  if (sanitized() && !full_run()) placements.pop_back();
  return placements;
}

class AlgorithmMutationTest : public ::testing::TestWithParam<Collective> {};

TEST_P(AlgorithmMutationTest, NoHarmfulMutantIsAccepted) {
  Tallies tallies;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != GetParam()) continue;
    for (const Placement& placement : placements_for(algorithm)) {
      for (const bool in_place : {false, true}) {
        const uint32_t rank_count = placement.rank_count();
        // Hierarchical plans of long messages have several lanes, which are alike: one placement has them.
        const bool is_long = !is_hierarchical(algorithm) || rank_count == 2;
        Request request{
            .collective = GetParam(), .rank_count = rank_count, .block_bytes = is_long ? 1u << 20 : 1u << 10};
        request.in_place = in_place;
        request.root = rank_count - 1;
        Facts facts = placement.facts();
        facts.can_publish = placement.host_count == 1 && rank_count % 2 == 1;
        facts.can_multicast = placement.host_count == 1;
        if (!algorithm.supports(request, facts)) continue;
        NamedPlans plans;
        plans.name = std::string(algorithm.name) + " of " + placement.name;
        plans.in_place = in_place;
        for (uint32_t rank = 0; rank < rank_count; ++rank)
          plans.plans.push_back(algorithm.make(request, facts, rank));
        EXPECT_EQ(run_many_ways(plans.plans, in_place, 2, kSeed), "") << plans.name;
        damage(plans, runs_of_scope(2, 100), tallies);
        if (HasFatalFailure()) return;
      }
    }
  }
  record(tallies);
}

INSTANTIATE_TEST_SUITE_P(Collectives, AlgorithmMutationTest,
                         ::testing::Values(Collective::kAllReduce, Collective::kReduce,
                                           Collective::kBroadcast, Collective::kAllGather,
                                           Collective::kReduceScatter, Collective::kAllToAll,
                                           Collective::kGather, Collective::kScatter, Collective::kBarrier),
                         [](const auto& tested) { return std::string(collective_name(tested.param)); });

}  // namespace
}  // namespace tutti::test
