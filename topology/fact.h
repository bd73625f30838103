// Fact: a number about a machine, and where the number comes from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti::topology {

/// Where a number comes from. A later one is trusted more.
enum class Origin : uint8_t { kAssumed, kFile, kHwloc, kSysfs, kNvml, kMeasured };
inline constexpr size_t kOrigins = 6;

struct Fact {
  uint64_t value = 0;
  Origin origin = Origin::kAssumed;
  uint32_t spread_percent = 0;  ///< how much measurements varied around the value

  friend bool operator==(const Fact&, const Fact&) = default;
};

}  // namespace tutti::topology
