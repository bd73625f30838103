// Host streams and the progress thread: operations that return at once.
//
// A stream is an order: each operation takes a ticket at the call, and runs when all earlier tickets are
// complete. A cancelled operation does not wait. A communicator's progress thread runs its own queue in issue
// order and waits for each ticket's turn. So operations stay in order both on a communicator and on a stream.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/result.h"

namespace tutti {

class HostStream {
 public:
  uint64_t take_handle();
  /// Waits a short while. True when it is the ticket's turn.
  bool wait_turn(uint64_t ticket);
  /// Tickets may complete in any order. A ticket's turn comes when all earlier tickets are complete.
  /// Allocates nothing: no caller could take the error.
  void complete(uint64_t ticket, const Status& status);
  /// Blocks until all tickets taken so far are complete. Returns the first failure since the last call.
  Status synchronize();
  /// Returns kInProgress, or the result that synchronize would return.
  Status query();
  /// Calls `done` once with the status of the ticket taken last, when all tickets taken so far are complete:
  /// in the thread that completes them, or at once in this thread. synchronize waits for `done`.
  void notify(std::function<void(const Status&)> done);

 private:
  struct Notice {
    uint64_t target;  ///< waits for the tickets before this one
    std::function<void(const Status&)> done;
    Status result;
  };

  void call(const std::list<Notice>& due);
  bool is_complete(uint64_t target) const { return completed_ >= target && notices_running_ == 0; }

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t issued_ = 0;
  uint64_t completed_ = 0;                     ///< the first ticket that is not complete
  std::deque<std::optional<Status>> results_;  ///< of the tickets from completed_ on
  Status last_;                                ///< of the ticket before completed_
  std::list<Notice> notices_;                  ///< a list, because `complete` takes them out without memory
  uint32_t notices_running_ = 0;
  Status failure_;
};

class ProgressThread {
 public:
  struct Task {
    std::function<Status()> run;
    /// Called while the task waits for its turn. After true the task runs at once and does nothing.
    std::function<bool()> cancelled;
    /// The streams on which the task has a turn; each of them waits for the task. Empty: `run` does its own
    /// waiting.
    std::vector<std::shared_ptr<HostStream>> streams;
    std::vector<uint64_t> tickets = {};  ///< tickets on `streams`; `push` takes them
  };

  /// Errors: kSystemError (no more threads).
  static Result<std::unique_ptr<ProgressThread>> start();
  ~ProgressThread();
  /// Errors: kOutOfMemory; then nothing has changed.
  Status push(Task task);
  /// Blocks until the queue is empty and nothing runs.
  void wait_idle();
  /// Returns the first failure of a task so far, and forgets it.
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
