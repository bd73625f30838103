// Meeting: two cores of a probe that begin each part together.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "core/clock.h"

namespace tutti::tool {

/// The calling thread runs on this core from now on. False: it may not.
inline bool run_on(uint32_t core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

/// Both cores arrive, or one gives up and both end.
class Meeting {
 public:
  static constexpr uint64_t kWaitNs = 1'000'000'000;  ///< a core is taken away for so long: give up

  bool wait() {
    const uint32_t turn = turn_.load();
    if (arrived_.fetch_add(1) + 1 == 2) {
      arrived_ = 0;
      turn_ = turn + 1;
      return !gave_up_;
    }
    const uint64_t end = now_ns() + kWaitNs;
    for (uint32_t spins = 1; turn_ == turn; ++spins) {
      if (spins % 4096 == 0 && now_ns() > end) gave_up_ = true;
      if (gave_up_) return false;
    }
    return !gave_up_;
  }
  void give_up() { gave_up_ = true; }
  bool gave_up() const { return gave_up_; }

 private:
  std::atomic<uint32_t> arrived_{0};
  std::atomic<uint32_t> turn_{0};
  std::atomic<bool> gave_up_{false};
};

}  // namespace tutti::tool
