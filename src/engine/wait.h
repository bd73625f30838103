// Waiter: what a rank does between two polls of a link that is not ready.
//
// - kSpin polls as long as waits usually last, yields now and then to a peer, and sleeps in long waits.
// - kYield yields at once: for hosts with more ranks than cores.
// - kBeside is for progress threads beside computing callers. It yields too, but takes short sleeps while a
//   thread computes on its core: yielding would delay the message by a time slice, staying awake would cost
//   half of the core.
//
// Sleeps are timed and grow with the wait, so a writer never looks for sleepers
// (docs/decisions/0002-timed-sleeps.md).
#pragma once

#include <cstdint>

#include "core/config.h"
#include "core/relax.h"

namespace tutti {

/// Replaces the timed sleep of ranks that an event may wake.
class Sleeper {
 public:
  virtual ~Sleeper() = default;
  virtual void sleep(uint64_t ns) = 0;
};

class Waiter {
 public:
  static constexpr uint64_t kLongestSleepNs = 5'000'000;

  /// `sleeper`: null, or outlives the waiter. `longest_sleep_ns`: from longest_sleep_ns(), or the default.
  explicit Waiter(WaitMode mode, Sleeper* sleeper = nullptr, uint64_t longest_sleep_ns = kLongestSleepNs)
      : mode_(mode), sleeper_(sleeper), longest_sleep_ns_(longest_sleep_ns) {}

  /// With many ranks a core, sleeps grow longer, so that all waiting ranks together take a small share of the
  /// cores. A rank still notices a message within 1/16 of the time it has waited.
  static uint64_t longest_sleep_ns(uint32_t ranks, uint32_t cores);

  /// Polls of an operation before it calls `pause`.
  uint32_t polls() const { return mode_ == WaitMode::kSpin ? spin_polls() : 1; }
  /// The same where a poll also asks the network's connections, which takes longer.
  uint32_t network_polls() const { return mode_ == WaitMode::kSpin ? kSpinNetworkPolls : 1; }

  /// The next wait starts from zero.
  void moved() { turns_ = 0; }

  /// Spins, yields or sleeps. Returns the nanoseconds waited so far; 0: too short to read a clock. Time in
  /// which the process was stopped does not count, since a batch system stops its peers too.
  uint64_t pause();

 private:
  /// About 1 us.
  static uint32_t spin_polls() { return kHasShortPause ? 80 : 256; }
  static constexpr uint32_t kSpinNetworkPolls = 4;

  uint64_t pause_beside();
  void sleep(uint64_t ns);
  uint64_t waited_until(uint64_t now, bool is_first);

  WaitMode mode_;
  Sleeper* sleeper_;
  uint64_t longest_sleep_ns_;
  uint32_t turns_ = 0;
  uint64_t began_ns_ = 0;
  uint64_t looked_ns_ = 0;  ///< last look at the clock
};

}  // namespace tutti
