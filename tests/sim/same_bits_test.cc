// Goal: in reproducible mode the bits of a sum depend on nothing but its operands.
// Method: floats whose sums round differently in every order; all algorithms that serve reproducible mode,
// all placements and carriages, small and large messages, over many histories. Expectation: the bits of the
// canonical tree over ranks, rounded to the element type at every node, computed with the scalar reference
// (tests/sim/reference.cc); so they are equal across algorithms as well.
#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "tests/sim/reference.h"
#include "tests/sim/specs.h"
#include "tests/support/scope.h"

namespace tutti::test {
namespace {

class SameBitsTest : public testing::TestWithParam<DataType> {};

TEST_P(SameBitsTest, EveryAlgorithmGivesTheBitsOfTheCanonicalTree) {
  const uint64_t element_bytes = type_bytes(GetParam());
  std::set<std::string_view> served;
  for (const Algorithm* algorithm : all_algorithms()) {
    if (!reduces(algorithm->collective)) continue;
    for (const uint32_t ranks : kRankCounts) {
      for (uint64_t repeat = 0; repeat < runs_of_scope(6, 60); ++repeat) {
        RunSpec spec = make_spec(
            *algorithm, {.rank_count = ranks, .seed = run_seed(base_seed() + repeat, *algorithm, ranks, 9)});
        spec.request.reproducible = true;
        spec.request.type = GetParam();
        spec.request.op = ReduceOp::kSum;
        const uint64_t slot_elements = spec.sim.slot_bytes / element_bytes;
        const uint64_t elements[] = {1, 37, slot_elements * 3 + 1};
        spec.request.block_bytes = elements[repeat % 3] * element_bytes;
        if (!supported(spec)) continue;
        if (ranks > 4) served.insert(algorithm->name);
        ASSERT_EQ(run_to_the_end(spec), "") << replay_command();
      }
    }
  }
  EXPECT_GE(served.size(), 3u) << "there is little to compare";
}

TEST_P(SameBitsTest, TheOrderWouldMatterOtherwise) {
  // The operands are worth the test above: some rotating order gives other bits.
  std::vector<std::vector<std::byte>> operands(5, std::vector<std::byte>(256 * type_bytes(GetParam())));
  for (size_t rank = 0; rank < operands.size(); ++rank) make_operands(GetParam(), rank, operands[rank]);
  const auto straight = reduce_all(GetParam(), ReduceOp::kSum, operands);
  std::swap(operands[0], operands[4]);
  EXPECT_NE(straight, reduce_all(GetParam(), ReduceOp::kSum, operands));
}

INSTANTIATE_TEST_SUITE_P(All, SameBitsTest,
                         testing::Values(DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16),
                         [](const auto& tested) { return std::string(type_name(tested.param)); });

}  // namespace
}  // namespace tutti::test
