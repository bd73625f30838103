#include "api/stream.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "core/thread.h"

namespace tutti {
namespace {

// How often a waiting task checks whether it has been cancelled.
constexpr std::chrono::milliseconds kTurnCheck{20};

/// sched_attr of linux/sched/types.h, version 0. That header and sched.h cannot be included together
/// everywhere.
struct Scheduling {
  uint32_t bytes = sizeof(Scheduling);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0;  // a time slice, where the policy has time slices
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};
// The shortest time slice that Linux grants.
constexpr uint64_t kTimeSliceNs = 100'000;
// Without this setting a thread's sleep ends up to 50 us late.
constexpr unsigned long kTimerSlackNs = 1'000;

/// Asks for short time slices for the calling thread; its share of the cores stays the same. A progress
/// thread yields its core at every wait. Beside computing threads it gets the core back only after one of
/// their slices, which costs each message milliseconds (docs/decisions/0002-timed-sleeps.md). Linux 6.12 and
/// later grant the request. Also asks for precise timers, because the thread sleeps tens of microseconds
/// between polls.
void ask_for_prompt_turns() {
  ::prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  Scheduling scheduling;
  if (::syscall(SYS_sched_getattr, 0, &scheduling, sizeof(scheduling), 0) != 0) return;
  if (scheduling.policy != SCHED_OTHER && scheduling.policy != SCHED_BATCH) return;
  scheduling.runtime_ns = kTimeSliceNs;
  (void)::syscall(SYS_sched_setattr, 0, &scheduling, 0);
}

/// Takes one ticket from each stream. Two tasks must have the same order on all streams that they share:
/// otherwise each would wait for the other.
void take_tickets(const std::vector<std::shared_ptr<HostStream>>& streams, std::vector<uint64_t>& tickets) {
  static std::mutex one_task_at_a_time;
  std::unique_lock lock(one_task_at_a_time, std::defer_lock);
  if (streams.size() > 1) lock.lock();
  tickets.reserve(streams.size());
  for (const auto& stream : streams) tickets.push_back(stream->take_handle());
}

}  // namespace

uint64_t HostStream::take_handle() {
  const std::scoped_lock lock(mutex_);
  results_.emplace_back();
  return issued_++;
}

bool HostStream::wait_turn(uint64_t ticket) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kTurnCheck, [&] { return completed_ == ticket; });
}

void HostStream::complete(uint64_t ticket, const Status& status) {
  std::list<Notice> due;
  {
    const std::scoped_lock lock(mutex_);
    results_[ticket - completed_] = status;
    if (failure_.is_ok()) failure_ = status;
    while (!results_.empty() && results_.front()) {
      last_ = std::move(*results_.front());
      results_.pop_front();
      ++completed_;
      while (!notices_.empty() && notices_.front().target <= completed_) {
        notices_.front().result = last_;
        due.splice(due.end(), notices_, notices_.begin());
      }
    }
    if (!due.empty()) ++notices_running_;
    changed_.notify_all();
  }
  if (!due.empty()) call(due);
}

void HostStream::notify(std::function<void(const Status&)> done) {
  std::list<Notice> due;
  {
    const std::scoped_lock lock(mutex_);
    if (completed_ < issued_) {
      notices_.push_back({.target = issued_, .done = std::move(done), .result = {}});
      return;
    }
    due.push_back({.target = issued_, .done = std::move(done), .result = last_});
    ++notices_running_;
  }
  call(due);
}

void HostStream::call(const std::list<Notice>& due) {
  for (const Notice& notice : due) {
    // The thread goes on, whatever a user's function throws.
    static_cast<void>(contained([&]() -> Status {
      notice.done(notice.result);
      return Status::ok();
    }));
  }
  const std::scoped_lock lock(mutex_);
  --notices_running_;
  changed_.notify_all();
}

Status HostStream::synchronize() {
  std::unique_lock lock(mutex_);
  const uint64_t target = issued_;
  changed_.wait(lock, [&] { return is_complete(target); });
  return std::exchange(failure_, Status::ok());
}

Status HostStream::query() {
  const std::scoped_lock lock(mutex_);
  if (!is_complete(issued_)) return {Code::kInProgress, "the stream has unfinished operations"};
  return std::exchange(failure_, Status::ok());
}

ProgressThread::~ProgressThread() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

Result<std::unique_ptr<ProgressThread>> ProgressThread::start() {
  auto made = std::make_unique<ProgressThread>();
  TUTTI_TRY(
      start_thread(made->thread_, "a communicator's progress thread", [raw = made.get()] { raw->loop(); }));
  return made;
}

Status ProgressThread::push(Task task) {
  const std::scoped_lock lock(mutex_);
  const Status queued = contained([&]() -> Status {
    queue_.push_back(std::move(task));
    return Status::ok();
  });
  TUTTI_TRY(queued);
  Task& last = queue_.back();
  const Status taken = contained([&]() -> Status {
    take_tickets(last.streams, last.tickets);
    return Status::ok();
  });
  if (!taken) {
    for (size_t i = 0; i < last.tickets.size(); ++i) last.streams[i]->complete(last.tickets[i], {});
    queue_.pop_back();
    return taken;
  }
  pending_.fetch_add(1, std::memory_order_release);
  changed_.notify_all();
  return Status::ok();
}

void ProgressThread::wait_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pending_.load() == 0; });
}

Status ProgressThread::take_failure() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(failure_, Status::ok());
}

void ProgressThread::loop() {
  ask_for_prompt_turns();
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    wait_turns(task);
    const Status status = contained(task.run);
    {
      // Becomes idle before it completes the tickets: a thread that has synchronized may use the communicator
      // at once.
      const std::scoped_lock lock(mutex_);
      if (failure_.is_ok()) failure_ = status;
      pending_.fetch_sub(1, std::memory_order_release);
      changed_.notify_all();
    }
    for (size_t i = 0; i < task.streams.size(); ++i) task.streams[i]->complete(task.tickets[i], status);
  }
}

/// Waits for the task's turn on all its streams, or until the task is cancelled.
void ProgressThread::wait_turns(const Task& task) {
  for (size_t i = 0; i < task.streams.size(); ++i) {
    while (!task.streams[i]->wait_turn(task.tickets[i])) {
      if (task.cancelled()) return;
    }
  }
}

}  // namespace tutti
