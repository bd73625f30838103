// Proofs with 1, 2, 3 and 5 slots a link: exchanges of many chunks are then cut into windows, and
// algorithms that need two slots must refuse one. (tests/plan proves every algorithm with the usual slots,
// for 1..64 ranks.)
#include <gtest/gtest.h>

#include "algorithms/algorithm.h"
#include "plan/verify.h"
#include "tests/algorithms/make_plans.h"

namespace tutti {
namespace {

class FewSlotsTest : public testing::TestWithParam<const Algorithm*> {};

// Goal: no plan needs more slots than there are, and it makes progress with those that it states.
TEST_P(FewSlotsTest, PlansFitTheSlotsOfALinkAndAreProved) {
  const Algorithm& algorithm = *GetParam();
  size_t proved = 0;
  for (const uint32_t ranks : {2u, 3u, 4u, 5u, 6u, 7u, 8u, 12u, 13u, 16u, 19u, 33u}) {
    for (const uint32_t slots : {1u, 2u, 3u, 5u}) {
      for (const bool can_publish : {false, true}) {
        const Facts facts{.can_publish = can_publish, .can_multicast = true, .slots = slots};
        const Request request{.collective = algorithm.collective, .rank_count = ranks, .root = ranks / 2};
        if (!algorithm.supports(request, facts)) continue;
        const std::vector<Plan> plans = make_plans(algorithm, request, facts);
        EXPECT_LE(plans[0].slots_needed, slots) << describe(algorithm, request);
        const Status status = verify_plans(plans, {.in_place = false});
        ASSERT_TRUE(status.is_ok()) << describe(algorithm, request) << ": " << status.text();
        ++proved;
      }
    }
  }
  EXPECT_GT(proved, 0u);
}

std::vector<const Algorithm*> all_algorithms() {
  std::vector<const Algorithm*> found;
  for (const Algorithm& algorithm : algorithms()) found.push_back(&algorithm);
  return found;
}

INSTANTIATE_TEST_SUITE_P(Algorithms, FewSlotsTest, testing::ValuesIn(all_algorithms()), [](const auto& row) {
  return std::string(collective_name(row.param->collective)) + "_" + std::string(row.param->name);
});

}  // namespace
}  // namespace tutti
