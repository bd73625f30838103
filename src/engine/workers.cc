#include "engine/workers.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "core/thread.h"
#include "transports/link.h"

namespace tutti {
namespace {

// The pause between two calls of a loop. Waking a sleeping worker takes 10 to 100 us (futex).
constexpr uint64_t kLingerNs = 100'000;

}  // namespace

/// While `state` is kWorking or kRecalled, the rest belongs to the worker, otherwise to the caller.
struct alignas(kLineBytes) Workers::Worker {
  enum State : uint32_t { kIdle, kWorking, kRecalled, kEnding };

  std::atomic<uint32_t> state{kIdle};
  Operation* operation = nullptr;
  Waiter waiter{WaitMode::kYield};
  WaitMode mode = WaitMode::kYield;
  Progress progress = Progress::kDone;
  bool moved = false;  ///< or has ended, since the worker has it
  std::thread thread;

  bool is_idle() const { return state.load(std::memory_order_acquire) == kIdle; }
  bool has_ended() const { return progress == Progress::kDone || progress == Progress::kMismatch; }
};

Workers::Workers() = default;

Result<std::unique_ptr<Workers>> Workers::start(uint32_t count) {
  std::unique_ptr<Workers> workers(new Workers);
  // Nothing may fail between the start of a thread and its place in the list, from which it is joined.
  workers->workers_.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    auto worker = std::make_unique<Worker>();
    TUTTI_TRY(start_thread(worker->thread, format("worker thread %u of %u", i + 1, count),
                           [raw = worker.get()] { work(*raw); }));
    workers->workers_.push_back(std::move(worker));
  }
  return workers;
}

Workers::~Workers() {
  for (const auto& worker : workers_) {
    worker->state.store(Worker::kEnding, std::memory_order_release);
    worker->state.notify_one();
  }
  for (const auto& worker : workers_) worker->thread.join();
}

void Workers::work(Worker& worker) {
  Waiter idle(WaitMode::kYield);
  for (;;) {
    while (worker.is_idle() && idle.pause() < kLingerNs) {
    }
    worker.state.wait(Worker::kIdle, std::memory_order_acquire);
    if (worker.state.load(std::memory_order_acquire) == Worker::kEnding) return;
    for (;;) {
      worker.progress = worker.operation->advance(worker.waiter.polls());
      worker.moved = worker.moved || worker.progress != Progress::kBlocked;
      if (worker.has_ended() || worker.state.load(std::memory_order_acquire) == Worker::kRecalled) break;
      if (worker.progress == Progress::kMoved) worker.waiter.moved();
      worker.waiter.pause();
    }
    idle = Waiter(worker.mode);
    worker.state.store(Worker::kIdle, std::memory_order_release);
  }
}

void Workers::give(Worker& worker) {
  worker.state.store(Worker::kWorking, std::memory_order_release);
  worker.state.notify_one();
}

void Workers::begin(Operation& own, std::span<const std::unique_ptr<Operation>> others, WaitMode mode) {
  own_ = &own;
  own_done_ = false;
  stuck_ = nullptr;
  busy_ = others.size();
  for (size_t i = 0; i < busy_; ++i) {
    Worker& worker = *workers_[i];
    worker.operation = others[i].get();
    worker.waiter = Waiter(mode);
    worker.mode = mode;
    worker.moved = false;
    give(worker);
  }
}

Progress Workers::advance(uint32_t polls) {
  Progress progress = Progress::kBlocked;
  if (!own_done_) {
    progress = own_->advance(polls);
    own_done_ = progress == Progress::kDone;
    if (progress == Progress::kMismatch) {
      stuck_ = own_;
      return progress;
    }
  }
  bool all_done = own_done_;
  for (const auto& worker : busy()) {
    const bool idle = worker->is_idle();
    if (idle && worker->progress == Progress::kMismatch) {
      stuck_ = worker->operation;
      return Progress::kMismatch;
    }
    all_done = all_done && idle && worker->progress == Progress::kDone;
  }
  if (all_done) return Progress::kDone;
  return progress == Progress::kDone ? Progress::kMoved : progress;
}

bool Workers::recall() {
  for (const auto& worker : busy()) {
    uint32_t working = Worker::kWorking;
    worker->state.compare_exchange_strong(working, Worker::kRecalled, std::memory_order_acq_rel);
  }
  bool moved = false;
  stuck_ = own_done_ ? nullptr : own_;
  for (const auto& worker : busy()) {
    for (Waiter waiter(WaitMode::kYield); !worker->is_idle();) waiter.pause();
    moved = moved || worker->moved;
    if (stuck_ == nullptr && worker->progress != Progress::kDone) stuck_ = worker->operation;
  }
  return moved;
}

void Workers::resume() {
  for (const auto& worker : busy()) {
    worker->moved = false;
    if (!worker->has_ended()) give(*worker);
  }
}

bool Workers::holds_references() const {
  const auto others = busy();
  return own_->holds_references() || std::any_of(others.begin(), others.end(), [](const auto& worker) {
           return worker->operation->holds_references();
         });
}

}  // namespace tutti
