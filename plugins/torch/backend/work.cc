#include "work.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include <system_error>
#include <thread>

namespace tutti_torch {

namespace {

constexpr const char* kCallbacks = "a callback of a future";

uint64_t next_key() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

void settle(c10::ivalue::Future& future, const Tensors& outputs, const std::exception_ptr& error) {
  if (error) {
    future.setError(error);
  } else {
    future.markCompleted(c10::IValue(outputs));
  }
}

/// Runs a function of the program. The operation has ended, so nobody is left to catch an exception.
void run_guarded(const char* what, const std::function<void()>& function) {
  try {
    function();
  } catch (const std::exception& error) {
    LOG(ERROR) << "tutti: " << what << " raised an exception, which is ignored: " << error.what();
  }
}

template <class Error>
std::exception_ptr failure(const std::string& message) {
  return std::make_exception_ptr(Error(c10::SourceLocation{"tutti", "tutti.torch", 0}, "tutti: " + message));
}

}  // namespace

void Observers::add_hook(int64_t id, c10d::CompletionHook hook) {
  const std::scoped_lock lock(hooks_mutex_);
  hooks_[id] = std::move(hook);
  any_ = true;
}

void Observers::remove_hook(int64_t id) {
  const std::scoped_lock lock(hooks_mutex_);
  hooks_.erase(id);
  any_ = !hooks_.empty() || info_hook_ != nullptr;
}

void Observers::set_info_hook(InfoHook hook) {
  const std::scoped_lock lock(hooks_mutex_);
  info_hook_ = std::move(hook);
  any_ = true;
}

void Observers::call_hooks(const c10d::CompletionHookArgs& args,
                           const std::function<std::shared_ptr<c10d::WorkInfo>()>& info) {
  if (!any_) return;
  InfoHook info_hook;
  {
    // A hook that has been removed is not running any more, so hooks are called under the lock. They are
    // short.
    const std::scoped_lock lock(hooks_mutex_);
    for (const auto& one : hooks_) run_guarded("a completion hook", [&] { one.second(args); });
    info_hook = info_hook_;
  }
  if (info_hook) run_guarded("a completion hook", [&] { info_hook(info()); });
}

void Observers::run_apart(std::function<void()> task) {
  std::unique_lock lock(tasks_mutex_);
  tasks_.push_back(std::move(task));
  if (tasks_.size() <= idle_threads_) {
    changed_.notify_one();
    return;
  }
  try {
    std::thread([self = shared_from_this()] { self->run_tasks(); }).detach();
  } catch (const std::system_error& error) {
    const auto here = std::move(tasks_.back());
    tasks_.pop_back();
    lock.unlock();
    LOG(ERROR) << "tutti: no thread for a future's callbacks (" << error.what()
               << "): they run in a thread of tutti, and must not wait for other operations";
    run_guarded(kCallbacks, here);
  }
}

void Observers::run_tasks() {
  std::unique_lock lock(tasks_mutex_);
  for (;;) {
    ++idle_threads_;
    changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    --idle_threads_;
    if (tasks_.empty()) return;
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    run_guarded(kCallbacks, task);
    lock.lock();
  }
}

void Observers::stop() {
  const std::scoped_lock lock(tasks_mutex_);
  stopping_ = true;
  changed_.notify_all();
}

Work::Work(int rank, Description what, uint64_t sequence, std::shared_ptr<Observers> observers)
    : c10d::Work(rank, what.type, what.title, what.inputs),
      outputs_(std::move(what.outputs)),
      kept_(std::move(what.inputs)),
      sequence_(sequence),
      key_(next_key()),
      timeout_(what.timeout),
      observers_(std::move(observers)) {}

c10::TypePtr Work::tensors_type() {
  return c10::ListType::create(c10::TensorType::get());
}

void Work::complete(const std::exception_ptr& error) {
  std::exception_ptr failure = error;
  const auto copy_out = take_finish();
  if (!failure && copy_out) {
    try {
      copy_out();
    } catch (...) {
      failure = std::current_exception();
    }
  }
  c10::intrusive_ptr<c10::ivalue::Future> future;
  decltype(then_) then;
  Tensors kept;
  if (!failure) {
    observers_->call_hooks({.completionKey = key_, .duration_ms = std::nullopt}, [&] {
      const auto now = std::chrono::steady_clock::now();
      return std::make_shared<c10d::WorkInfo>(opType_, sequence_, started_, now, now - started_);
    });
  }
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
    failure_ = failure;
    future = future_;
    then = std::move(then_);
    kept = std::move(kept_);
  }
  if (future) {
    observers_->run_apart([future, outputs = outputs_, failure] { settle(*future, outputs, failure); });
  }
  finish(failure);
  for (const auto& one : then) one(failure);
}

void Work::when_complete(std::function<void(const std::exception_ptr&)> then) {
  {
    const std::scoped_lock lock(mutex_);
    if (!is_over_) {
      then_.push_back(std::move(then));
      return;
    }
  }
  then(failure_);
}

bool Work::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!completed_) {
    const auto done = [&] { return completed_; };
    if (timeout == kNoTimeout) {
      cv_.wait(lock, done);
    } else if (!cv_.wait_for(lock, timeout, done)) {
      lock.unlock();
      std::rethrow_exception(error_of(TUTTI_TIMEOUT, "the operation is not complete; it goes on", timeout));
    }
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

Tensors Work::result() {
  TORCH_CHECK(isCompleted(), "tutti: the work is not complete; call wait() before result()");
  return outputs_;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  const std::scoped_lock lock(mutex_);
  if (!future_) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(tensors_type());
    // Nobody has the future yet, so it has no callbacks.
    if (is_over_) settle(*future_, outputs_, failure_);
  }
  return future_;
}

void join(const c10::intrusive_ptr<Work>& joined, const std::vector<c10::intrusive_ptr<Work>>& works) {
  struct Count {
    std::mutex mutex;
    size_t open;
    std::exception_ptr error;
  };
  const auto count = std::make_shared<Count>();
  count->open = works.size();
  if (works.empty()) joined->complete(nullptr);
  for (const auto& work : works) {
    work->when_complete([count, joined](const std::exception_ptr& error) {
      std::unique_lock lock(count->mutex);
      if (error && !count->error) count->error = error;
      const bool is_last = --count->open == 0;
      const auto first = count->error;
      lock.unlock();
      if (is_last) joined->complete(first);
    });
  }
}

std::exception_ptr error_of(tutti_result_t result, const char* text, std::chrono::milliseconds timeout) {
  if (result == TUTTI_SUCCESS) return nullptr;
  switch (result) {
    case TUTTI_INVALID_ARGUMENT:
    case TUTTI_INVALID_USAGE:
    case TUTTI_UNSUPPORTED: return failure<c10::Error>(text);
    case TUTTI_TIMEOUT:
      return failure<c10::DistBackendError>(c10::str("Timed out waiting ", timeout.count(), "ms: ", text));
    default: return failure<c10::DistBackendError>(c10::str(text, " (", tutti_error_string(result), ")"));
  }
}

void throw_on(tutti_result_t result, std::chrono::milliseconds timeout) {
  if (result != TUTTI_SUCCESS) std::rethrow_exception(error_of(result, tutti_last_error(), timeout));
}

}  // namespace tutti_torch
