// How many cores this process may use.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti {

/// min(affinity mask, cgroup v2 quota rounded up), at least 1.
uint32_t usable_cores();

/// The quota of a cpu.max line ("max 100000", "150000 100000") in cores, rounded up; 0: no limit or
/// unreadable.
uint32_t quota_cores(std::string_view cpu_max);

}  // namespace tutti
