// Time: one monotonic clock, in nanoseconds, and deadlines on it.
#pragma once

#include <ctime>

#include <cstdint>

namespace tutti {

inline uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

/// The deadline `timeout_ms` from now, saturating.
inline uint64_t deadline_after_ms(uint64_t timeout_ms) {
  constexpr uint64_t kMaxMs = UINT64_MAX / 4'000'000;
  return now_ns() + (timeout_ms < kMaxMs ? timeout_ms : kMaxMs) * 1'000'000u;
}

}  // namespace tutti
