#include "core/cpu.h"

#include <fcntl.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <span>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "core/result.h"

namespace tutti {
namespace {

/// The first 16 KiB; empty if the file cannot be read. Streams would swallow a failing allocation.
std::string read_small(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 16 << 10> bytes;
  const auto count = read_all(file.get(), std::as_writable_bytes(std::span(bytes)));
  return std::string(bytes.data(), count.value_or(0));
}

/// Takes the next line off `text`.
std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

std::string first_line(const std::string& path) {
  const std::string text = read_small(path);
  return text.substr(0, text.find('\n'));
}

struct Cgroup {
  bool is_v1 = false;
  std::vector<std::string> folders;  ///< its own, then those of the groups around it
};

/// The process's cgroup for `controller`. A container may see its cgroup's files at the place of the root,
/// and yet the path outside; so folders may be missing.
Cgroup find_cgroup(const std::string& root, const std::string& controller) {
  Cgroup cgroup;
  std::string path;
  const std::string all = read_small(root + "/proc/self/cgroup");
  for (std::string_view rest = all; !rest.empty();) {
    const std::string line(take_line(rest));  // "4:cpu,cpuacct:/job", for version 2 "0::/job"
    const size_t names = line.find(':') + 1;
    const size_t end = line.find(':', names);
    if (names == 0 || end == std::string::npos) continue;
    cgroup.is_v1 =
        ("," + line.substr(names, end - names) + ",").find("," + controller + ",") != std::string::npos;
    if (cgroup.is_v1 || end == names) path = line.substr(end + 1);
    if (cgroup.is_v1) break;
  }
  if (!path.starts_with('/') || path.find("..") != std::string::npos) path.clear();
  const std::string base = root + "/sys/fs/cgroup" + (cgroup.is_v1 ? "/" + controller : "");
  for (; path.size() > 1; path.resize(path.rfind('/'))) cgroup.folders.push_back(base + path);
  cgroup.folders.push_back(base);
  return cgroup;
}

}  // namespace

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

size_t first_sibling(size_t cpu, const std::string& root) {
  const std::string siblings =
      first_line(root + format("/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list", cpu));
  size_t first = cpu;
  std::from_chars(siblings.data(), siblings.data() + siblings.size(), first);
  return first;
}

uint32_t sibling_distance(const CpuSet& cpus, const std::string& root) {
  size_t least = 0;
  while (least < cpus.size() && !cpus[least]) ++least;
  if (least == cpus.size()) return 0;
  return static_cast<uint32_t>(least - std::min(least, first_sibling(least, root)));
}

std::string cgroup_cpus(const std::string& root) {
  const Cgroup cgroup = find_cgroup(root, "cpuset");
  for (const std::string& folder : cgroup.folders) {
    std::string cpus =
        first_line(folder + (cgroup.is_v1 ? "/cpuset.effective_cpus" : "/cpuset.cpus.effective"));
    if (!cpus.empty()) return cpus;
  }
  return {};
}

uint32_t cpu_quota(const std::string& root) {
  const Cgroup cgroup = find_cgroup(root, "cpu");
  uint32_t least = 0;
  for (const std::string& folder : cgroup.folders) {
    const uint32_t cores = quota_cores(cgroup.is_v1 ? first_line(folder + "/cpu.cfs_quota_us") + " " +
                                                          first_line(folder + "/cpu.cfs_period_us")
                                                    : first_line(folder + "/cpu.max"));
    if (cores != 0) least = least == 0 ? cores : std::min(least, cores);
  }
  return least;
}

uint32_t core_count(const CpuSet& cpus, uint32_t quota) {
  const auto cores = std::max(1u, static_cast<uint32_t>(cpus.count()));
  return quota == 0 ? cores : std::min(cores, quota);
}

}  // namespace tutti
