// Goal: collectives whose blocks differ in size, empty ones and gaps between blocks included, give the right
// result. Method: as algorithms_test.cc, with block sizes drawn from the seed. (An all-to-all of different
// counts: tests/engine/messages_test.cc and blocks_test.cc.)
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/specs.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

std::vector<const Algorithm*> with_variable_counts() {
  std::vector<const Algorithm*> all = all_algorithms();
  std::erase_if(all, [](const Algorithm* algorithm) {
    return algorithm->uniform_blocks || (algorithm->collective != Collective::kAllGather &&
                                         algorithm->collective != Collective::kReduceScatter);
  });
  return all;
}

class SimVariableCountsTest : public testing::TestWithParam<const Algorithm*> {};

TEST_P(SimVariableCountsTest, EveryRankGetsTheRightResult) {
  size_t runs = 0;
  for (const uint32_t ranks : kRankCounts) {
    for (uint64_t repeat = 0; repeat < runs_of_scope(20, 300); ++repeat) {
      RunSpec spec = make_spec(
          *GetParam(), {.rank_count = ranks, .seed = run_seed(base_seed() + repeat, *GetParam(), ranks, 5)});
      SimRandom random(spec.sim.seed);
      const uint64_t element_bytes = type_bytes(spec.request.type);
      const uint64_t most = spec.sim.slot_bytes / element_bytes * (repeat % 4 == 0 ? 20 : 2);
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        spec.block_counts.push_back(random.one_in(4) ? 0 : random.below(most));
      }
      spec.request.variable_counts = true;
      spec.request.block_bytes =
          *std::max_element(spec.block_counts.begin(), spec.block_counts.end()) * element_bytes;
      if (!supported(spec)) continue;
      ++runs;
      ASSERT_EQ(run_to_the_end(spec), "") << replay_command();
    }
  }
  EXPECT_GT(runs, runs_of_scope(50, 50));
}

INSTANTIATE_TEST_SUITE_P(All, SimVariableCountsTest, testing::ValuesIn(with_variable_counts()),
                         [](const auto& tested) { return test_name(*tested.param); });

}  // namespace
}  // namespace tutti::test
