// Limits that every part of the library shares.
#pragma once

#include <cstdint>

namespace tutti {

/// Most ranks of a communicator.
inline constexpr uint32_t kMaxCommRanks = 4096;

}  // namespace tutti
