// Workers: threads that help a communicator's caller with one long operation.
//
// The operation is cut into stripes: bound Operations over disjoint parts of every block, each with its own
// links. The calling thread runs the first, each worker another. A stripe belongs to one thread at a time.
// `begin` and `resume` give it to its worker, which returns it when done, or, after `recall`, when it cannot
// go on. So the stall diagnosis sees only stripes that nobody runs, and a failed call returns after all
// workers have left its buffers.
//
// A worker stays awake for a moment after an operation, because the next call often follows soon.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "engine/operation.h"
#include "engine/wait.h"

namespace tutti {

/// One thread at a time: the communicator's caller.
class Workers {
 public:
  /// The threads sleep and take no signals. Errors: kSystemError.
  static Result<std::unique_ptr<Workers>> start(uint32_t count);
  /// Waits for the threads. No run may be active.
  ~Workers();

  /// Begins a run after Operation::start: `own` for the caller, `others` for the workers, at most one each,
  /// which wait as `mode` says. All stripes outlive the run.
  void begin(Operation& own, std::span<const std::unique_ptr<Operation>> others, WaitMode mode);

  /// Advances the caller's stripe and checks the others. kDone: all are. kBlocked: also if only workers have
  /// work. kMismatch: see stuck().
  Progress advance(uint32_t polls);

  /// Takes all stripes back: blocks until every worker is done or stuck. True if a stripe has moved or ended
  /// since `begin` or the last `resume`.
  bool recall();
  /// Returns unfinished stripes to the workers.
  void resume();

  /// After kMismatch: the stripe that met it. After `recall`: the first unfinished stripe, or null. For the
  /// caller until `resume`.
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
  size_t busy_ = 0;  ///< in the current run
  Operation* own_ = nullptr;
  bool own_done_ = false;
  Operation* stuck_ = nullptr;
};

}  // namespace tutti
