// One operation's own completion, with a future that carries the tensors.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/Hooks.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "tensors.h"

namespace tutti_torch {

/// What the works of a backend call when they are complete: hooks, which torch's flight recorder registers,
/// and the callbacks of futures. What these raise is logged: the operation itself has ended well.
class Observers : public std::enable_shared_from_this<Observers> {
 public:
  using InfoHook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

  void add_hook(int64_t id, c10d::CompletionHook hook);
  void remove_hook(int64_t id);
  void set_info_hook(InfoHook hook);
  void call_hooks(const c10d::CompletionHookArgs& args,
                  const std::function<std::shared_ptr<c10d::WorkInfo>()>& info);
  /// Runs the task in a thread of its own kind: callbacks of futures may wait for other operations, which the
  /// threads of tutti must complete meanwhile. There are as many threads as callbacks that wait at once.
  /// Runs the task here if no thread can start.
  void run_apart(std::function<void()> task);
  /// Ends the threads once their tasks are done.
  void stop();

 private:
  void run_tasks();

  std::mutex hooks_mutex_;
  std::atomic<bool> any_{false};
  std::map<int64_t, c10d::CompletionHook> hooks_;
  InfoHook info_hook_;
  std::mutex tasks_mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  size_t idle_threads_ = 0;
  bool stopping_ = false;
};

/// What a call is, for its work.
struct Description {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = nullptr;   ///< as other backends name it for the profiler
  Tensors inputs = {};           ///< live until the work is complete
  Tensors outputs = {};          ///< the result
  at::Device device = at::kCPU;  ///< of a call without tensors
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  bool is_async = true;
};

class Work : public c10d::Work {
 public:
  Work(int rank, Description what, uint64_t sequence, std::shared_ptr<Observers> observers);

  /// Any thread, once. `error` null: success.
  void complete(const std::exception_ptr& error);
  /// Calls `then` when the work is complete: now, or in the thread that completes it.
  void when_complete(std::function<void(const std::exception_ptr&)> then);
  /// Runs in `complete` before anybody sees the result: copies it to where it belongs.
  void before_completion(std::function<void()> finish) { finish_ = std::move(finish); }
  /// Keeps memory until the work is complete.
  void keep(const at::Tensor& tensor) {
    if (tensor.defined()) kept_.push_back(tensor);
  }
  template <class Use>
  void each_kept(const Use& use) const {
    for (const Tensors* tensors : {&kept_, &outputs_}) std::for_each(tensors->begin(), tensors->end(), use);
  }
  void set_source(int rank) { source_ = rank; }
  const Tensors& outputs() const { return outputs_; }

  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  Tensors result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  int sourceRank() const override { return source_; }
  uint64_t getSequencenumber() const override { return sequence_; }
  std::chrono::milliseconds getTimeout() const override { return timeout_; }
  uint64_t getCompletionKey() const override { return key_; }

 protected:
  /// What before_completion was given, if it has not run.
  std::function<void()> take_finish() { return std::exchange(finish_, nullptr); }
  static c10::TypePtr tensors_type();

 private:
  Tensors outputs_;
  Tensors kept_;
  std::function<void()> finish_;
  std::vector<std::function<void(const std::exception_ptr&)>> then_;
  bool is_over_ = false;  ///< from here on a new future is complete at once
  std::exception_ptr failure_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  ///< made on demand
  uint64_t sequence_;
  uint64_t key_;  ///< never used twice in a process
  std::chrono::milliseconds timeout_;
  std::atomic<int> source_{-1};
  std::shared_ptr<Observers> observers_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

/// Completes `joined` when all works are complete, with the first error among them.
void join(const c10::intrusive_ptr<Work>& joined, const std::vector<c10::intrusive_ptr<Work>>& works);

/// The error of a call after abort() or shutdown().
constexpr const char* kGroupHasEnded = "tutti: the process group was aborted or destroyed; make a new one";

/// The exception for a result of tutti. `timeout` is the call's.
std::exception_ptr error_of(tutti_result_t result, const char* text, std::chrono::milliseconds timeout);
void throw_on(tutti_result_t result, std::chrono::milliseconds timeout = c10d::kUnsetTimeout);

}  // namespace tutti_torch
