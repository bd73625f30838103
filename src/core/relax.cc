#include "core/relax.h"

#include <algorithm>
#include <cstdint>

#include "core/clock.h"

namespace tutti {
namespace {

#if defined(__x86_64__)

/// Of `pauses`, in the least disturbed of a few rows.
uint64_t shortest_ns(uint64_t pauses) {
  constexpr int kRows = 6;
  uint64_t shortest = UINT64_MAX;
  for (int row = 0; row < kRows; ++row) {
    const uint64_t began_ns = now_ns();
    for (uint64_t i = 0; i < pauses; ++i) __builtin_ia32_pause();
    shortest = std::min(shortest, now_ns() - began_ns);
  }
  return shortest;
}

/// Takes 1 to 5 us. After a longer pause a message would be noticed late: it takes 60 ns between near cores.
bool is_pause_short() {
  constexpr uint64_t kPauses = 16;
  constexpr uint64_t kLongestNs = 20;
  return shortest_ns(kPauses) <= kPauses * kLongestNs + shortest_ns(0);
}

#else

bool is_pause_short() {
  return false;
}

#endif

}  // namespace

const bool kHasShortPause = is_pause_short();

}  // namespace tutti
