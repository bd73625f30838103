// Goal: keys keep the numbers that they got when they came first.
#include "topology/key_numbers.h"

#include <gtest/gtest.h>

namespace tutti::topology {
namespace {

TEST(KeyNumbersTest, KeysAreNumberedInTheOrderInWhichTheyCome) {
  KeyNumbers numbers;
  const auto key = [](uint32_t i) { return i % 2 == 0 ? uint64_t{i} << 36 : ~uint64_t{i}; };
  for (uint32_t i = 0; i < 10'000; ++i) ASSERT_EQ(numbers.number(key(i)), std::pair(i, true));
  for (uint32_t i = 0; i < 10'000; ++i) ASSERT_EQ(numbers.number(key(i)), std::pair(i, false));
}

}  // namespace
}  // namespace tutti::topology
