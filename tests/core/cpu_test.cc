// Counting usable cores: affinity masks of ranks together, quotas.
#include "core/cpu.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

namespace {

/// As on a system with room for more CPUs: smaller sets are refused.
size_t least_set_bytes = 0;

}  // namespace

// In place of the C library's.
extern "C" int sched_getaffinity(pid_t thread, size_t bytes, cpu_set_t* set) noexcept {
  if (bytes < least_set_bytes) {
    errno = EINVAL;
    return -1;
  }
  const long filled = syscall(SYS_sched_getaffinity, thread, bytes, set);
  if (filled < 0) return -1;
  std::memset(reinterpret_cast<char*>(set) + filled, 0, bytes - static_cast<size_t>(filled));
  return 0;
}

namespace tutti::test {
namespace {

TEST(CpuTest, AQuotaIsRoundedUpToCores) {
  EXPECT_EQ(quota_cores("max 100000"), 0u);
  EXPECT_EQ(quota_cores("150000 100000"), 2u);
  EXPECT_EQ(quota_cores("100000 100000"), 1u);
  EXPECT_EQ(quota_cores("1 100000"), 1u);
  for (const char* broken : {"", "100000", "100000 0", "x 100000", "100000 x"}) {
    EXPECT_EQ(quota_cores(broken), 0u) << broken;
  }
}

TEST(CpuTest, CoresAreThoseOfAllRanksTogetherUpToTheQuota) {
  CpuSet first;
  CpuSet second;
  first.set(0);
  second.set(7);
  EXPECT_EQ(core_count(first, 0), 1u);
  EXPECT_EQ(core_count(first | second, 0), 2u) << "each rank bound to a core of its own";
  EXPECT_EQ(core_count(first | first, 0), 1u) << "both bound to the same core";
  EXPECT_EQ(core_count(first | second, 1), 1u);
  EXPECT_EQ(core_count({}, 0), 1u);
}

TEST(CpuTest, ABoundThreadMayUseItsCpuAlone) {
  const CpuSet all = usable_cpus();
  ASSERT_TRUE(all.any());
  size_t cpu = 0;
  while (!all[cpu]) ++cpu;
  CpuSet seen;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    seen = usable_cpus();
  }).join();
  EXPECT_EQ(seen.count(), 1u);
  EXPECT_TRUE(seen[cpu]);
}

// Goal: all CPUs are known on systems with room for more than 1,024. Method: such a system refuses small
// sets.
TEST(CpuTest, ASystemMayWantLargerSets) {
  const CpuSet all = usable_cpus();
  least_set_bytes = 512;
  const CpuSet same = usable_cpus();
  least_set_bytes = 0;
  EXPECT_TRUE(all.any());
  EXPECT_EQ(same, all);
}

}  // namespace
}  // namespace tutti::test
