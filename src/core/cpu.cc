#include "core/cpu.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <string>

namespace tutti {

uint32_t quota_cores(std::string_view cpu_max) {
  uint64_t quota = 0;
  uint64_t period = 0;
  const char* end = cpu_max.data() + cpu_max.size();
  const auto [space, error] = std::from_chars(cpu_max.data(), end, quota);
  if (error != std::errc() || space == end || *space != ' ') return 0;
  if (std::from_chars(space + 1, end, period).ec != std::errc() || period == 0) return 0;
  return static_cast<uint32_t>(std::min<uint64_t>((quota + period - 1) / period, UINT32_MAX));
}

CpuSet usable_cpus() {
  std::array<cpu_set_t, 64> sets{};  // room for more CPUs than Linux knows
  CpuSet cpus;
  // The system refuses a set that is smaller than its own, which may have more CPUs than the machine.
  for (size_t count = 1; count <= sets.size(); count *= 2) {
    if (sched_getaffinity(0, count * sizeof(cpu_set_t), sets.data()) == 0) {
      for (size_t cpu = 0; cpu < cpus.size(); ++cpu) cpus[cpu] = CPU_ISSET(cpu, sets.data());
      return cpus;
    }
    if (errno != EINVAL) return cpus;
  }
  return cpus;
}

uint32_t cpu_quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string line;
  return std::getline(file, line) ? quota_cores(line) : 0;
}

uint32_t core_count(const CpuSet& cpus, uint32_t quota) {
  const auto cores = std::max(1u, static_cast<uint32_t>(cpus.count()));
  return quota == 0 ? cores : std::min(cores, quota);
}

}  // namespace tutti
