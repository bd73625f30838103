#include "engine/wait.h"

#include <sched.h>

#include <algorithm>
#include <ctime>

#include "core/clock.h"

namespace tutti {
namespace {

// Turns without a clock. Spinning, a turn is many polls (about 1 us); yielding, one system call (0.4 us).
constexpr uint32_t kQuietTurns = 16;
// A spinning rank yields every 6 to 10 us: on a busy machine its peer may wait for this core. Figures: 8
// bytes between 2 ranks beside a compiler, docs/performance.md.
constexpr uint32_t kTurnsPerYield = 8;
// How long a wait stays awake: longer than the skew of ranks that compute alike, too short to show in the
// process's CPU time.
constexpr uint64_t kAwakeNs = 2'000'000;
constexpr uint64_t kShortestSleepNs = 20'000;
// From this many ranks a core on, sleeps grow. 14 ranks that sleep 5 ms wake about as often as 8 that sleep 3
// ms, which took 1 to 10 % of a core.
constexpr uint64_t kRanksPerCore = 14;
constexpr uint64_t kLongestSleepOfManyNs = 250'000'000;
// Sleeps are far shorter. A longer gap between two looks at the clock means that the process was stopped.
constexpr uint64_t kStoppedNs = 1'000'000'000;
// kBeside: a yield this long gave the core to a computing thread (time slices of 3 ms), not to a peer.
constexpr uint64_t kComputedNs = 500'000;
// How long the waiter remembers the computing thread: a tenth of a training step. Finding out costs one time
// slice.
constexpr uint64_t kWantedNs = 20'000'000;
// A sleep and its two context switches cost a thread about 5 us of its core.
constexpr uint64_t kShortestSleepBesideNs = 30'000;

/// Until this time a computing thread is assumed to want the calling thread's core.
thread_local uint64_t core_wanted_until_ns = 0;

}  // namespace

uint64_t Waiter::longest_sleep_ns(uint32_t ranks, uint32_t cores) {
  const uint64_t wanted = kLongestSleepNs * ranks / (kRanksPerCore * std::max(cores, 1u));
  return std::clamp(wanted, kLongestSleepNs, kLongestSleepOfManyNs);
}

void Waiter::sleep(uint64_t ns) {
  if (sleeper_ != nullptr) {
    sleeper_->sleep(ns);
    return;
  }
  const timespec time{0, static_cast<long>(ns)};
  nanosleep(&time, nullptr);  // EINTR only means an early poll
}

uint64_t Waiter::waited_until(uint64_t now, bool is_first) {
  if (is_first) began_ns_ = looked_ns_ = now;
  if (now - looked_ns_ > kStoppedNs) began_ns_ += now - looked_ns_ - longest_sleep_ns_;
  looked_ns_ = now;
  return now - began_ns_ + 1;
}

uint64_t Waiter::pause_beside() {
  const uint64_t now = now_ns();
  const uint64_t waited = waited_until(now, turns_ == 1);
  if (waited > kAwakeNs || now < core_wanted_until_ns) {
    sleep(std::clamp(waited / 16, kShortestSleepBesideNs, longest_sleep_ns_));
    return waited;
  }
  sched_yield();
  const uint64_t back = now_ns();
  if (back - now > kComputedNs) core_wanted_until_ns = back + kWantedNs;
  return waited;
}

uint64_t Waiter::pause() {
  ++turns_;
  if (mode_ == WaitMode::kBeside) return pause_beside();
  const bool yields = mode_ == WaitMode::kYield || turns_ % kTurnsPerYield == 0;
  if (turns_ < kQuietTurns) {
    if (yields) sched_yield();
    return 0;
  }
  const uint64_t now = now_ns();
  const uint64_t waited = waited_until(now, turns_ == kQuietTurns);
  if (waited > kAwakeNs) {
    sleep(std::clamp(waited / 16, kShortestSleepNs, longest_sleep_ns_));
  } else if (yields) {
    sched_yield();
  }
  return waited;
}

}  // namespace tutti
