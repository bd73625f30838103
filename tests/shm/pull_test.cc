// Pulling from this process itself: what the kernel's copy costs.
#include "transports/shm/pull.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>

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

/// Two pages of this process, the second of which other processes cannot read.
class HalfReadable {
 public:
  static constexpr size_t kPageBytes = 4096;
  HalfReadable()
      : base_(mmap(nullptr, 2 * kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(base_, MAP_FAILED);
    EXPECT_EQ(mprotect(static_cast<std::byte*>(base_) + kPageBytes, kPageBytes, PROT_NONE), 0);
  }
  ~HalfReadable() { munmap(base_, 2 * kPageBytes); }
  HalfReadable(const HalfReadable&) = delete;
  HalfReadable& operator=(const HalfReadable&) = delete;
  const void* base() const { return base_; }
  void close() { EXPECT_EQ(mprotect(base_, kPageBytes, PROT_NONE), 0); }

 private:
  void* base_;
};

// A buffer whose first byte could be read was pulled, and the call failed at the bytes that could not.
TEST(PullTest, ABufferIsPulledIfItsLastByteCanBeReadToo) {
  HalfReadable memory;
  if (!can_be_pulled(memory.base(), 1)) GTEST_SKIP() << "the kernel does not allow it";
  EXPECT_TRUE(can_be_pulled(memory.base(), HalfReadable::kPageBytes));
  EXPECT_FALSE(can_be_pulled(memory.base(), HalfReadable::kPageBytes + 1));
  memory.close();
  EXPECT_FALSE(can_be_pulled(memory.base(), 1));
  EXPECT_TRUE(can_be_pulled(nullptr, 0)) << "there is nothing to pull";
}

// An address that could be pulled from once was believed for ever, whatever was mapped there since.
TEST(PullTest, TheKernelIsAskedAgain) {
  HalfReadable memory;
  if (!can_be_pulled(memory.base(), 1)) GTEST_SKIP() << "the kernel does not allow it";
  PullableBuffer buffer;
  EXPECT_TRUE(buffer.can_be_pulled(memory.base(), HalfReadable::kPageBytes));
  EXPECT_FALSE(buffer.can_be_pulled(memory.base(), 2 * HalfReadable::kPageBytes)) << "it is longer";
  EXPECT_TRUE(buffer.can_be_pulled(memory.base(), HalfReadable::kPageBytes));
  memory.close();
  uint32_t believed = 1;
  while (believed <= PullableBuffer::kMostCalls &&
         buffer.can_be_pulled(memory.base(), HalfReadable::kPageBytes))
    ++believed;
  EXPECT_EQ(believed, PullableBuffer::kMostCalls);
}

}  // namespace
}  // namespace tutti::test
