// The library's version, which ranks compare at bootstrap. Equals tutti.h's version (src/api checks this by
// static_assert).
#pragma once

#include <cstdint>

namespace tutti {

/// major * 10000 + minor * 100 + patch
inline constexpr uint32_t kVersionCode = 100;

}  // namespace tutti
