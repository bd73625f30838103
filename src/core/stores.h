// Stores: the ways in which a copy may write a buffer. Which is the fastest depends on the processor and on
// where the buffer's lines are, so links and calls find it by trials.
#pragma once

#include <cstdint>

namespace tutti {

enum class Stores : uint8_t {
  kOrdinary = 0,   ///< the lines stay in the core's caches
  kStreaming = 1,  ///< past the caches, into memory
  kString = 2,     ///< the processor's string move: it need not read the lines that it overwrites
};
inline constexpr uint32_t kStoresCount = 3;

}  // namespace tutti
