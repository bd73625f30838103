// kAnyRank: in the place of a peer on a status page, where a rank waits for a message of whatever rank.
#pragma once

#include <cstdint>

namespace tutti {

inline constexpr uint32_t kAnyRank = UINT32_MAX - 1;

}  // namespace tutti
