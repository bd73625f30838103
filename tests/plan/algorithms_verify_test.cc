// Goal: every algorithm is proved for every rank count up to 64 and every kind of root, in place and not,
// with and without publication, and its association is what it says. Method: all of the registry; one test a
// collective, so that they can run side by side.
#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "plan/verify.h"
#include "tests/support/placements.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

constexpr uint32_t kMaxRanks = 64;

struct Case {
  Request request;
  Facts facts;
};

std::vector<Plan> make_plans(const Algorithm& algorithm, const Case& c) {
  std::vector<Plan> plans;
  for (uint32_t rank = 0; rank < c.request.rank_count; ++rank) {
    plans.push_back(algorithm.make(c.request, c.facts, rank));
  }
  return plans;
}

std::string name(const Algorithm& algorithm, const Case& c) {
  return std::string(collective_name(algorithm.collective)) + " " + std::string(algorithm.name) +
         format(" of %u ranks, root %u, %llu bytes%s%s%s%s, %u slots", c.request.rank_count, c.request.root,
                static_cast<unsigned long long>(c.request.block_bytes),
                c.request.in_place ? ", in place" : "", c.request.reproducible ? ", reproducible" : "",
                c.request.variable_counts ? ", variable counts" : "", c.facts.can_publish ? ", publish" : "",
                c.facts.slots);
}

/// What varies besides ranks and root. The full run takes the whole product; otherwise each rank count takes
/// some, so that every pair of values occurs at many rank counts.
std::vector<Case> variants(uint32_t rank_count) {
  std::vector<Case> cases;
  for (uint32_t bits = 0; bits < 64; ++bits) {
    Case c;
    c.request.rank_count = rank_count;
    c.request.in_place = (bits & 1) != 0;
    c.facts.can_publish = (bits & 2) != 0;
    c.facts.can_multicast = true;
    c.request.reproducible = (bits & 4) != 0;
    c.request.variable_counts = (bits & 8) != 0;
    c.request.block_bytes = (bits & 16) != 0 ? 64 : 64 << 20;
    c.facts.slots = (bits & 32) != 0 ? 2 : 8;
    if (full_run() || rank_count <= 8 || bits % 7 == rank_count % 7) cases.push_back(c);
  }
  return cases;
}

/// Hierarchical algorithms are not chosen on one host, and have many steps there: some large counts will do,
/// but in the full run. placements_verify_test.cc proves them on several.
bool is_skipped(const Algorithm& algorithm, uint32_t rank_count) {
  return !full_run() && is_hierarchical(algorithm) && rank_count > 17 && rank_count != kMaxRanks;
}

/// All up to kMaxRanks; under a sanitizer, where all would take many minutes and show nothing more of the
/// verifier's code, the small ones and those around powers of two.
std::vector<uint32_t> rank_counts() {
  std::vector<uint32_t> counts;
  for (uint32_t count = 1; count <= kMaxRanks; ++count) {
    const bool near_power =
        std::has_single_bit(count - 1) || std::has_single_bit(count) || std::has_single_bit(count + 1);
    if (full_run() || !sanitized() || count <= 7 || near_power) counts.push_back(count);
  }
  return counts;
}

class AlgorithmsVerifyTest : public ::testing::TestWithParam<Collective> {};

TEST_P(AlgorithmsVerifyTest, EveryAlgorithmIsProvedForEveryRankCount) {
  size_t proved = 0;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != GetParam()) continue;
    std::set<uint32_t> roots = {0};
    for (const uint32_t rank_count : rank_counts()) {
      if (is_skipped(algorithm, rank_count)) continue;
      if (has_root(GetParam())) roots = {0, rank_count / 2, rank_count - 1};
      for (Case& c : variants(rank_count)) {
        c.request.collective = GetParam();
        for (const uint32_t root : roots) {
          c.request.root = root;
          if (!algorithm.supports(c.request, c.facts)) continue;
          const auto plans = make_plans(algorithm, c);
          const Status status = verify_plans(
              plans, {.in_place = c.request.in_place, .variable_counts = c.request.variable_counts});
          ASSERT_TRUE(status.is_ok()) << name(algorithm, c) << ": " << status.text();
          EXPECT_LE(plans[0].slots_needed, c.facts.slots) << name(algorithm, c);
          if (c.request.reproducible && reduces(GetParam()) && rank_count > 1) {
            EXPECT_EQ(plans[0].association, PlanAssociation::kCanonical) << name(algorithm, c);
          }
          ++proved;
        }
      }
    }
  }
  EXPECT_GT(proved, 0u);
  RecordProperty("proved", std::to_string(proved));
}

std::string test_name(const ::testing::TestParamInfo<Collective>& info) {
  return std::string(collective_name(info.param));
}

INSTANTIATE_TEST_SUITE_P(Collectives, AlgorithmsVerifyTest,
                         ::testing::Values(Collective::kAllReduce, Collective::kReduce,
                                           Collective::kBroadcast, Collective::kAllGather,
                                           Collective::kReduceScatter, Collective::kAllToAll,
                                           Collective::kGather, Collective::kScatter, Collective::kBarrier),
                         test_name);

}  // namespace
}  // namespace tutti::test
