// Counting usable cores: affinity masks of ranks together, quotas.
#include "core/cpu.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/support/scratch.h"

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

/// A tree in place of /proc and /sys.
class CgroupTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }

  const Scratch folder_;
  const std::string root_ = folder_.path().string();
};

// Goal: two jobs of one machine are told apart. What the root's file says is true of neither.
TEST_F(CgroupTest, TheCpusAreThoseOfTheProcessesOwnCgroup) {
  EXPECT_EQ(cgroup_cpus(root_), "");
  write("/sys/fs/cgroup/cpuset.cpus.effective", "0-63");
  EXPECT_EQ(cgroup_cpus(root_), "0-63");
  write("/sys/fs/cgroup/slurm/job_7/cpuset.cpus.effective", "16-31");
  write("/proc/self/cgroup", "0::/slurm/job_7/step_0");
  EXPECT_EQ(cgroup_cpus(root_), "16-31") << "the step has no cpuset of its own";
  write("/proc/self/cgroup", "0::/docker/of/the/outside");
  EXPECT_EQ(cgroup_cpus(root_), "0-63") << "a container sees its cgroup as the root";
  write("/proc/self/cgroup", "0::/../../elsewhere");
  EXPECT_EQ(cgroup_cpus(root_), "0-63");
}

TEST_F(CgroupTest, TheFirstVersionOfCgroupsIsReadToo) {
  write("/proc/self/cgroup", "4:cpuset:/slurm/job_8\n3:cpu,cpuacct:/slurm/job_8\n0::/init");
  write("/sys/fs/cgroup/cpuset/slurm/job_8/cpuset.effective_cpus", "32-47");
  EXPECT_EQ(cgroup_cpus(root_), "32-47");
  EXPECT_EQ(cpu_quota(root_), 0u);
  write("/sys/fs/cgroup/cpu/slurm/job_8/cpu.cfs_period_us", "100000");
  write("/sys/fs/cgroup/cpu/slurm/job_8/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(cpu_quota(root_), 0u);
  write("/sys/fs/cgroup/cpu/slurm/job_8/cpu.cfs_quota_us", "250000");
  EXPECT_EQ(cpu_quota(root_), 3u);
}

// Goal: the core of a rank that is bound to a second thread is known.
TEST_F(CgroupTest, TheFirstThreadOfACoreIsFound) {
  const std::string folder = "/sys/devices/system/cpu/cpu70/topology/thread_siblings_list";
  CpuSet cpus;
  cpus.set(70);
  cpus.set(71);
  EXPECT_EQ(sibling_distance(cpus, root_), 0u) << "the system does not tell";
  write(folder, "6,70");
  EXPECT_EQ(first_sibling(70, root_), 6u);
  EXPECT_EQ(sibling_distance(cpus, root_), 64u);
  EXPECT_TRUE(with_first_siblings(cpus, 64)[7]);
  cpus.set(6);
  EXPECT_EQ(sibling_distance(cpus, root_), 0u) << "the core is known by this one";
  EXPECT_EQ(sibling_distance({}, root_), 0u);
}

TEST_F(CgroupTest, TheLeastQuotaOfAllCgroupsAroundTheProcessCounts) {
  write("/proc/self/cgroup", "0::/pod/container");
  write("/sys/fs/cgroup/pod/container/cpu.max", "max 100000");
  EXPECT_EQ(cpu_quota(root_), 0u);
  write("/sys/fs/cgroup/pod/cpu.max", "400000 100000");
  EXPECT_EQ(cpu_quota(root_), 4u);
  write("/sys/fs/cgroup/pod/container/cpu.max", "800000 100000");
  EXPECT_EQ(cpu_quota(root_), 4u);
  write("/sys/fs/cgroup/pod/container/cpu.max", "200000 100000");
  EXPECT_EQ(cpu_quota(root_), 2u);
}

}  // namespace
}  // namespace tutti::test
