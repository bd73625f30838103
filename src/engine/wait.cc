#include "engine/wait.h"

#include <sched.h>

#include <algorithm>
#include <ctime>

#include "core/clock.h"

namespace tutti {
namespace {

// Turns without a clock: a spinning turn is 256 polls (about 1-2 us), a yielding one a system call (0.4 us).
constexpr uint32_t kQuietTurns = 16;
// A spinning rank gives its core away about every 10 us of waiting: its peer may be waiting for this very
// core when other programs keep the machine busy. 8 bytes between 2 ranks beside a compiler: see
// docs/performance.md.
constexpr uint32_t kTurnsPerYield = 8;
// How long a wait stays awake. Longer than the skew of ranks that compute alike, shorter than anyone
// would notice in the process's CPU time.
constexpr uint64_t kAwakeNs = 2'000'000;
constexpr uint64_t kLongestSleepNs = 2'000'000;
constexpr uint64_t kShortestSleepNs = 20'000;

void sleep_ns(uint64_t ns) {
  const timespec time{0, static_cast<long>(ns)};
  nanosleep(&time, nullptr);  // an early return (EINTR) only means an early poll
}

}  // namespace

uint64_t Waiter::pause() {
  ++turns_;
  const bool yields = mode_ == WaitMode::kYield || turns_ % kTurnsPerYield == 0;
  if (turns_ < kQuietTurns) {
    if (yields) sched_yield();
    return 0;
  }
  const uint64_t now = now_ns();
  if (turns_ == kQuietTurns) began_ns_ = now;
  const uint64_t waited = now - began_ns_ + 1;
  if (waited > kAwakeNs) {
    const uint64_t ns = std::clamp(waited / 16, kShortestSleepNs, kLongestSleepNs);
    if (sleeper_ != nullptr) {
      sleeper_->sleep(ns);
    } else {
      sleep_ns(ns);
    }
  } else if (yields) {
    sched_yield();
  }
  return waited;
}

}  // namespace tutti
