// Host streams and the progress thread: operations that return at once.
//
// A stream is an order: each operation takes a ticket at the call and runs when all earlier tickets are done;
// one that will not run any more need not wait for that.
// A communicator's progress thread takes its own queue in issue order and waits for each ticket's turn, so
// the operations of a communicator stay in issue order across streams, and those of a stream across
// communicators.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/result.h"

namespace tutti {

class HostStream {
 public:
  uint64_t take_handle();
  /// True when it is the ticket's turn; false after a short while otherwise.
  bool wait_turn(uint64_t ticket);
  /// In any order; the turn of a later ticket comes when all up to it are complete.
  void complete(uint64_t ticket, const Status& status);
  /// Blocks until all tickets taken so far are complete. The first failure since the last call.
  Status synchronize();
  /// kInProgress, or what synchronize would return.
  Status query();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t issued_ = 0;
  uint64_t completed_ = 0;    ///< the first ticket that is not
  std::deque<bool> is_done_;  ///< of the tickets from completed_ on
  Status failure_;
};

/// Runs the queued operations of one communicator.
class ProgressThread {
 public:
  struct Task {
    std::function<Status()> run;
    /// Asked while the task waits for its turn: then it runs at once, and does nothing.
    std::function<bool()> cancelled;
    /// Where it waits for its turn, all of which wait for it; none: `run` waits itself.
    std::vector<std::shared_ptr<HostStream>> streams;
    std::vector<uint64_t> tickets = {};  ///< of `streams`; `push` takes them
  };

  /// Errors: kSystemError (no more threads).
  static Result<std::unique_ptr<ProgressThread>> start();
  ~ProgressThread();
  /// Errors: kOutOfMemory; then it is as if it had not been called.
  Status push(Task task);
  /// Blocks until the queue is empty and nothing runs.
  void wait_idle();
  /// The first failure of a task so far; ok when asked again.
  Status take_failure();
  /// Tasks queued or running. Any thread.
  uint32_t pending() const { return pending_.load(std::memory_order_acquire); }

 private:
  void loop();
  static void wait_turns(const Task& task);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  std::atomic<uint32_t> pending_{0};
  bool stopping_ = false;
  Status failure_;
  std::thread thread_;
};

}  // namespace tutti
