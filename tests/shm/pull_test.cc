// Pulling from this process itself: what the kernel's copy costs.
#include "transports/shm/pull.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

namespace tutti::test {
namespace {

// Goal: the cost is one of this machine, or unknown where the kernel refuses. Expectation: more than nothing,
// less than a millisecond.
TEST(PullTest, TheCostOfPullingIsMeasured) {
  std::array<std::byte, 1> target{};
  const std::array<std::byte, 1> source{};
  const bool is_allowed = pull(getpid(), reinterpret_cast<uint64_t>(source.data()), target.data(), 1) == 0;
  EXPECT_EQ(pull_cost().call_ns != 0, is_allowed);
  EXPECT_LT(pull_cost().call_ns, 1'000'000u);
  EXPECT_LT(pull_cost().least_ns(16384), 10'000'000u);
}

// Goal: twice the bytes take twice the copy, but one call.
TEST(PullTest, ALeastTimeHasACallAndACopy) {
  constexpr PullCost kCost = {.call_ns = 500, .ps_per_byte = 30};
  EXPECT_EQ(kCost.least_ns(0), 500u);
  EXPECT_EQ(kCost.least_ns(100'000), 3500u);
  EXPECT_EQ(PullCost{}.least_ns(100'000), 0u) << "not known";
}

}  // namespace
}  // namespace tutti::test
