// Random bytes: all of the memory is filled.
#include "core/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tutti {
namespace {

// Method: getrandom() fills at most 256 bytes at once for sure, and 32 MiB at most. Of a few bytes at the end
// all stay zero once in 2^128 runs.
TEST(RandomTest, AllBytesAreFilled) {
  for (const size_t count : {size_t{16}, size_t{300}, (size_t{32} << 20) + 16}) {
    std::vector<std::byte> bytes(count);
    ASSERT_TRUE(fill_random(bytes));
    EXPECT_TRUE(
        std::any_of(bytes.end() - 16, bytes.end(), [](std::byte one) { return one != std::byte{0}; }));
  }
}

TEST(RandomTest, TwoDrawsDiffer) {
  std::vector<std::byte> first(16);
  std::vector<std::byte> second(16);
  ASSERT_TRUE(fill_random(first));
  ASSERT_TRUE(fill_random(second));
  EXPECT_NE(first, second);
}

TEST(RandomTest, NoBytesAreNoError) {
  EXPECT_TRUE(fill_random({}));
}

}  // namespace
}  // namespace tutti
