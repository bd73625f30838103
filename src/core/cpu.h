// Which cores this process may use. `root` stands before /proc and /sys; tests have trees of their own.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti {

/// CPUs by number. CPUs above 1023 are left out.
using CpuSet = std::bitset<1024>;

/// The affinity mask of the calling thread.
CpuSet usable_cpus();

/// The first of the CPUs that share a core, by which a graph knows the core; the CPU itself if the system
/// does not tell.
size_t first_sibling(size_t cpu, const std::string& root = "");

/// How far the first CPUs of the cores are below these, if the least of these is not a core's first one: a
/// launcher may bind a rank to a core's second thread. 0: it is, or there are none.
uint32_t sibling_distance(const CpuSet& cpus, const std::string& root = "");

/// These CPUs and the first ones of their cores, which are that far below.
inline CpuSet with_first_siblings(const CpuSet& cpus, uint32_t distance) {
  return cpus | cpus >> distance;
}

/// The CPUs that the process's cgroup may use ("0-15"); empty: the system does not tell.
std::string cgroup_cpus(const std::string& root = "");

/// The least quota of the process's cgroup and those around it in cores, rounded up; 0: no limit.
uint32_t cpu_quota(const std::string& root = "");

/// Cores that threads can keep busy on these CPUs with this quota, at least 1.
uint32_t core_count(const CpuSet& cpus, uint32_t quota);

/// The quota of a cpu.max line ("max 100000", "150000 100000") in cores, rounded up; 0: no limit or
/// unreadable.
uint32_t quota_cores(std::string_view cpu_max);

}  // namespace tutti
