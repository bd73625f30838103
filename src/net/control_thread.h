// ControlThread: the one thread of a process that answers while the application computes: ranks that want to
// join, peers that die. Never on the data path. An EventLoop (event_loop.h) with a lock. Where a handler
// finds no memory, the thread goes on, and what the handler has left is due again after a pause.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "core/file_descriptor.h"
#include "core/result.h"
#include "net/event_loop.h"

namespace tutti {

class ControlThread {
 public:
  /// Runs on the control thread. Must not block.
  using Handler = EventLoop::Handler;

  static Result<std::unique_ptr<ControlThread>> start();
  ~ControlThread();

  /// Calls `handler` for `events` (EPOLLIN ...) or a hang-up on `fd`. Any thread.
  Status watch(int fd, uint32_t events, Handler handler);
  /// Afterwards the handler does not run any more. Any thread, also from a handler. Call it before `fd` is
  /// closed.
  void forget(int fd);
  /// Ignores a listener for some milliseconds, from its handler: without descriptors it would stay ready
  /// forever.
  void pause(int fd);
  /// No handler runs while the result lives. Any thread.
  std::unique_lock<std::recursive_mutex> hold() { return std::unique_lock(running_); }
  /// Use it from a handler, or while the result of hold() lives.
  EventLoop& loop() { return *loop_; }

 private:
  ControlThread() = default;
  void run();
  /// False if memory was short.
  bool turn();

  FileDescriptor wake_;
  std::thread thread_;
  std::recursive_mutex running_;  ///< held while a handler runs
  // Guarded by running_.
  std::unique_ptr<EventLoop> loop_;
  std::map<int, EventLoop::Timer> paused_;  ///< when listeners resume
};

/// Accepts all waiting connections, in the handler of a listener. Pauses without descriptors.
void accept_waiting(ControlThread& control, const FileDescriptor& listener,
                    const std::function<void(FileDescriptor)>& take);

}  // namespace tutti
