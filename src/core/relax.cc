#include "core/relax.h"

#include <algorithm>
#include <cstdint>

#include "core/clock.h"

namespace tutti {
namespace {

/// Of a pause, in the least disturbed of a few rows. Takes 1 to 5 us.
uint64_t shortest_pause_ns() {
  constexpr uint64_t kPauses = 16;
  constexpr int kRows = 6;
  uint64_t shortest = UINT64_MAX;
  for (int row = 0; row < kRows; ++row) {
    const uint64_t began_ns = now_ns();
#if defined(__x86_64__)
    for (uint64_t i = 0; i < kPauses; ++i) __builtin_ia32_pause();
#endif
    shortest = std::min(shortest, (now_ns() - began_ns) / kPauses);
  }
  return shortest;
}

}  // namespace

// After a longer pause a message would be noticed late: it takes 60 ns between near cores.
const bool kHasShortPause = shortest_pause_ns() <= 20;

}  // namespace tutti
