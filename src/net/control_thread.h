// ControlThread: the one thread of a process that sleeps and answers what must be answered while the
// application computes: ranks that want to join, peers that die. Never on the data path. An EventLoop
// (event_loop.h), with a lock around it.
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
  /// Runs on the control thread with the epoll events that came; must not block.
  using Handler = EventLoop::Handler;

  static Result<std::unique_ptr<ControlThread>> start();
  ~ControlThread();

  /// Calls `handler` whenever one of `events` (EPOLLIN ...) or a hang-up comes on `fd`. Any thread.
  Status watch(int fd, uint32_t events, Handler handler);
  /// After it returns the handler is not running and will not run. Any thread; on the control thread
  /// itself it may be called from within a handler. Call it before `fd` is closed.
  void forget(int fd);
  /// For a listener whose connections cannot be taken, because descriptors have run out: it would be ready
  /// for ever, so nothing of `fd` is looked at for some milliseconds. From within its handler.
  void pause(int fd);
  /// While the result lives no handler runs. Any thread; on the control thread itself, too.
  std::unique_lock<std::recursive_mutex> hold() { return std::unique_lock(running_); }
  /// The loop that runs the handlers. To be used from a handler, or while the result of hold() lives.
  EventLoop& loop() { return *loop_; }

 private:
  ControlThread() = default;
  void run();

  FileDescriptor wake_;
  std::thread thread_;
  std::recursive_mutex running_;  ///< held while a handler runs
  // Guarded by running_.
  std::unique_ptr<EventLoop> loop_;
  std::map<int, EventLoop::Timer> paused_;  ///< listeners, and when they go on
};

/// From the handler of a listener that `control` watches: takes all connections that are waiting, or, where
/// descriptors have run out, leaves them alone for a moment.
void accept_waiting(ControlThread& control, const FileDescriptor& listener,
                    const std::function<void(FileDescriptor)>& take);

}  // namespace tutti
