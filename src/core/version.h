// Version of the library as ranks compare it when they meet; equals tutti.h's (src/api checks that by
// static_assert).
#pragma once

#include <cstdint>

namespace tutti {

/// major * 10000 + minor * 100 + patch
inline constexpr uint32_t kVersionCode = 100;

}  // namespace tutti
