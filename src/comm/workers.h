// Workers: the threads that help a communicator's caller with one long operation.
//
// Such an operation is cut into stripes: as many bound Operations over disjoint parts of every block, each
// with links of its own. The calling thread runs the first, each worker one of the others. A stripe belongs
// to one thread at a time and changes hands only here: `begin` and `resume` give it to its worker, which
// gives it back when it is done, or, once asked by `recall`, when it cannot go on. So a verdict looks at
// stripes that nobody runs meanwhile, and a call that has failed returns when no worker touches its buffers
// any more.
//
// Between operations a worker stays awake for a moment (a program that makes one call makes the next), then
// sleeps until it is woken.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "engine/operation.h"
#include "engine/wait.h"

namespace tutti {

/// All functions are for the communicator's caller, one thread at a time.
class Workers {
 public:
  /// Starts `count` threads, asleep, that take no signals. Errors: kSystemError.
  static Result<std::unique_ptr<Workers>> start(uint32_t count);
  /// Ends the threads and waits for them; no run may be going on.
  ~Workers();

  /// Begins a run of stripes on which Operation::start has been called: `own` for the caller, `others` (at
  /// most one a worker) for the workers, which wait as `mode` says. All live until the run is over.
  void begin(Operation& own, std::span<const std::unique_ptr<Operation>> others, WaitMode mode);

  /// Advances the caller's stripe and looks at the others. kDone when all are; kBlocked also while only
  /// workers have work; kMismatch: stuck() has met one.
  Progress advance(uint32_t polls);

  /// Takes all stripes back; blocks until every worker is done or cannot go on. True when a stripe has moved
  /// or ended since `begin` or the last `resume`.
  bool recall();
  /// Gives the stripes that are not done to the workers again.
  void resume();

  /// After a kMismatch of `advance` the stripe that met it; after `recall` the first that is not done, or
  /// null. The caller may use it until `resume`.
  Operation* stuck() const { return stuck_; }
  /// After `recall`: whether peers may still read the call's buffers.
  bool holds_references() const;

 private:
  struct Worker;

  Workers();
  static void work(Worker& worker);
  static void give(Worker& worker);
  std::span<const std::unique_ptr<Worker>> busy() const { return {workers_.data(), busy_}; }

  std::vector<std::unique_ptr<Worker>> workers_;
  size_t busy_ = 0;  ///< workers that take part in the run
  Operation* own_ = nullptr;
  bool own_done_ = false;
  Operation* stuck_ = nullptr;
};

}  // namespace tutti
