#include "core/cpu.h"

#include <sched.h>

#include <algorithm>
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

uint32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  uint32_t cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? static_cast<uint32_t>(CPU_COUNT(&set)) : 1;
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string line;
  if (std::getline(file, line)) {
    if (const uint32_t quota = quota_cores(line); quota > 0) cores = std::min(cores, quota);
  }
  return std::max(1u, cores);
}

}  // namespace tutti
