// Tests of the registry: names, what is always available, and what a plan costs to make.
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <utility>

#include "algorithms/algorithm.h"
#include "tests/algorithms/make_plans.h"

namespace tutti {
namespace {

/// Facts with which every algorithm serves something.
constexpr Facts kAllFacts = {.can_multicast = true};

constexpr std::array kCollectives = {
    Collective::kAllReduce, Collective::kReduce,        Collective::kBroadcast,
    Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll,
    Collective::kGather,    Collective::kScatter,       Collective::kBarrier};

size_t step_count(const Plan& plan) {
  size_t count = 0;
  for (const Lane& lane : plan.lanes) count += lane.steps.size();
  return count;
}

TEST(RegistryTest, NamesAreUniqueWithinACollectiveAndAreFound) {
  std::set<std::pair<Collective, std::string_view>> seen;
  for (const Algorithm& algorithm : algorithms()) {
    EXPECT_TRUE(seen.emplace(algorithm.collective, algorithm.name).second) << algorithm.name;
    EXPECT_EQ(find_algorithm(algorithm.collective, algorithm.name), &algorithm);
  }
  EXPECT_EQ(find_algorithm(Collective::kAllReduce, "no such algorithm"), nullptr);
  EXPECT_EQ(find_algorithm(Collective::kSendRecv, "ring"), nullptr);
}

// Goal: whatever is asked, some algorithm can do it: the first of each collective, with one slot a link and
// no shared memory, in reproducible mode, with variable counts.
TEST(RegistryTest, TheFirstAlgorithmOfEachCollectiveSupportsEverything) {
  for (const Collective collective : kCollectives) {
    const Algorithm* first = nullptr;
    for (const Algorithm& algorithm : algorithms()) {
      if (algorithm.collective == collective && first == nullptr) first = &algorithm;
    }
    ASSERT_NE(first, nullptr) << collective_name(collective);
    EXPECT_FALSE(first->uniform_blocks);
    for (const uint32_t ranks : {1u, 2u, 3u, 5u, 8u, 64u, 1000u}) {
      const Request request{.collective = collective,
                            .rank_count = ranks,
                            .reproducible = true,
                            .variable_counts = has_variable_form(collective)};
      EXPECT_TRUE(first->supports(request, {.can_publish = false, .slots = 1})) << ranks;
    }
  }
}

TEST(RegistryTest, AlgorithmsThatNeedEqualBlocksRefuseVariableCounts) {
  for (const Algorithm& algorithm : algorithms()) {
    Request request{.collective = algorithm.collective, .rank_count = 8, .variable_counts = true};
    EXPECT_EQ(algorithm.supports(request, kAllFacts), !algorithm.uniform_blocks) << algorithm.name;
  }
}

TEST(RegistryTest, EveryRankCountIsSupportedUpToTheRadix) {
  for (const Algorithm& algorithm : algorithms()) {
    const uint32_t least = algorithm.name == "recursive_multiplying_3"   ? 3
                           : algorithm.name == "recursive_multiplying_4" ? 4
                                                                         : 1;
    for (uint32_t ranks = least; ranks <= 64; ++ranks) {
      const Request request{.collective = algorithm.collective, .rank_count = ranks};
      EXPECT_TRUE(algorithm.supports(request, kAllFacts)) << describe(algorithm, request);
    }
  }
}

TEST(RegistryTest, InReproducibleModeOnlyCanonicalPlansAreMade) {
  for (const Algorithm& algorithm : algorithms()) {
    if (!reduces(algorithm.collective)) continue;
    for (uint32_t ranks = 2; ranks <= 40; ++ranks) {
      for (const uint32_t root : {0u, ranks - 1}) {
        Request request{.collective = algorithm.collective, .rank_count = ranks, .root = root};
        if (!algorithm.supports(request, kAllFacts)) continue;
        const bool is_canonical =
            algorithm.make(request, kAllFacts, 0).association == PlanAssociation::kCanonical;
        request.reproducible = true;
        EXPECT_EQ(algorithm.supports(request, kAllFacts), is_canonical) << describe(algorithm, request);
      }
    }
  }
}

TEST(RegistryTest, APlanSaysWhatMadeItAndForWhom) {
  for (const Algorithm& algorithm : algorithms()) {
    for (const uint32_t ranks : {1u, 6u}) {
      const Request request{.collective = algorithm.collective, .rank_count = ranks, .root = ranks - 1};
      const Plan plan = algorithm.make(request, {}, ranks / 2);
      EXPECT_EQ(plan.algorithm, algorithm.name);
      EXPECT_EQ(plan.collective, algorithm.collective);
      EXPECT_EQ(plan.rank_count, ranks);
      EXPECT_EQ(plan.rank, ranks / 2);
      EXPECT_EQ(plan.root, has_root(algorithm.collective) ? ranks - 1 : 0);
    }
  }
}

TEST(RegistryTest, OneRankCopiesInOneStep) {
  for (const Algorithm& algorithm : algorithms()) {
    const Plan plan = algorithm.make({.collective = algorithm.collective, .rank_count = 1}, {}, 0);
    ASSERT_EQ(step_count(plan), 1u) << algorithm.name;
    const Step& step = plan.lanes[0].steps[0];
    EXPECT_EQ(step.sources[0].kind, EndKind::kInput);
    EXPECT_EQ(step.sinks[0].kind, EndKind::kOutput);
    EXPECT_EQ(step.finish, reduces(algorithm.collective));
  }
}

// Goal: 16,384 ranks are no reason to be slow: a plan costs time in proportion to its own steps. Method:
// the logarithmic algorithms have few steps, and the others a few for each rank.
TEST(RegistryTest, PlansOfManyRanksHaveNoMoreStepsThanTheyNeed) {
  constexpr uint32_t kRanks = 16384;
  constexpr uint32_t kLogRanks = 14;
  const std::set<std::pair<Collective, std::string_view>> logarithmic = {
      {Collective::kAllReduce, "recursive_doubling"},
      {Collective::kAllReduce, "recursive_multiplying_3"},
      {Collective::kAllReduce, "recursive_multiplying_4"},
      {Collective::kAllReduce, "double_binary_tree"},
      {Collective::kReduce, "binomial"},
      {Collective::kReduce, "chain"},
      {Collective::kBroadcast, "binomial"},
      {Collective::kBroadcast, "chain"},
      {Collective::kBarrier, "dissemination"}};
  for (const Algorithm& algorithm : algorithms()) {
    const Request request{.collective = algorithm.collective, .rank_count = kRanks, .root = 77};
    const size_t limit =
        logarithmic.contains({algorithm.collective, algorithm.name}) ? kLogRanks + 1 : 4 * kRanks;
    for (const uint32_t rank : {0u, 77u, kRanks / 2 + 1, kRanks - 1}) {
      EXPECT_LE(step_count(algorithm.make(request, {}, rank)), limit) << describe(algorithm, request);
    }
  }
}

}  // namespace
}  // namespace tutti
