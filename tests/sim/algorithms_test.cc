// Goal: every algorithm gives the right result on every rank, whatever the order in which messages arrive.
// Method: real plans, real operations and kernels over the sim transport. One seed draws the delays and
// whatever else the result must not depend on: type, root, placement, carriage by copy or by reference,
// publication, shape of the links, their first number. A rank's memory is checked and then overwritten the
// moment its operation is done, and the rank goes on to the next run while others are still in this one.
#include <gtest/gtest.h>

#include "tests/sim/specs.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

/// Seeds of each combination.
uint64_t seed_count() {
  return runs_of_scope(4, 60);
}

class SimAlgorithmTest : public testing::TestWithParam<const Algorithm*> {};

TEST_P(SimAlgorithmTest, EveryRankGetsTheRightResult) {
  const Algorithm& algorithm = *GetParam();
  size_t runs = 0;
  for (const uint32_t ranks : kRankCounts) {
    for (uint32_t size = 0; size < static_cast<uint32_t>(Size::kCount); ++size) {
      for (uint64_t repeat = 0; repeat < seed_count(); ++repeat) {
        const RunSpec spec =
            make_spec(algorithm, {.rank_count = ranks,
                                  .size = static_cast<Size>(size),
                                  .seed = run_seed(base_seed() + repeat, algorithm, ranks, size)});
        if (!supported(spec)) continue;
        ++runs;
        ASSERT_EQ(run_to_the_end(spec), "") << replay_command();
      }
    }
  }
  EXPECT_GT(runs, runs_of_scope(30, 30));
}

INSTANTIATE_TEST_SUITE_P(All, SimAlgorithmTest, testing::ValuesIn(all_algorithms()),
                         [](const auto& tested) { return test_name(*tested.param); });

}  // namespace
}  // namespace tutti::test
