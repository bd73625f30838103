// Waiter: what a rank does between two looks at a link that is not ready.
//
// A policy, not a loop written in place. Spin polls as long as waits usually are, gives the core away now and
// then in case a peer needs it, and falls back to sleeping between polls when a wait is long. Yield gives the
// core away at once: for hosts with more ranks than cores. Beside is for progress threads beside computing
// callers: it yields too, but where yielding shows that a thread computes on this core, it sleeps at once, in
// short sleeps: a yield would cost the message a slice of the computing thread, staying awake would take
// half of its core.
// Sleeps are timed and grow with the time already waited, so no writer ever has to look for sleepers
// (docs/decisions/0002-timed-sleeps.md).
#pragma once

#include <cstdint>

#include "core/config.h"

namespace tutti {

/// Sleeps in place of the clock, for ranks that something else than time may wake.
class Sleeper {
 public:
  virtual ~Sleeper() = default;
  virtual void sleep(uint64_t ns) = 0;
};

class Waiter {
 public:
  /// `sleeper`: null, or outlives the waiter.
  explicit Waiter(WaitMode mode, Sleeper* sleeper = nullptr) : mode_(mode), sleeper_(sleeper) {}

  /// Polls that an operation may make before it comes back here.
  uint32_t polls() const { return mode_ == WaitMode::kSpin ? kSpinPolls : 1; }

  /// Called when something moved: the next wait begins anew.
  void moved() { turns_ = 0; }

  /// Called when nothing moved: spins, yields or sleeps a little. Returns the nanoseconds waited so far,
  /// or 0 while the wait is too short to have read a clock. Time in which the process was stopped does not
  /// count: its peers, stopped with it by a batch system, could not come either.
  uint64_t pause();

 private:
  static constexpr uint32_t kSpinPolls = 256;

  uint64_t pause_beside();
  void sleep(uint64_t ns);
  uint64_t waited_until(uint64_t now, bool is_first);

  WaitMode mode_;
  Sleeper* sleeper_;
  uint32_t turns_ = 0;
  uint64_t began_ns_ = 0;
  uint64_t looked_ns_ = 0;  ///< at the clock, last
};

}  // namespace tutti
