// ControlThread: the one thread of a process that sleeps in epoll and answers what must be answered while the
// application computes: ranks that want to join, peers that die. Never on the data path.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/file_descriptor.h"
#include "core/result.h"

namespace tutti {

class ControlThread {
 public:
  /// Runs on the control thread with the epoll events that came; must not block.
  using Handler = std::function<void(uint32_t events)>;

  static Result<std::unique_ptr<ControlThread>> start();
  ~ControlThread();

  /// Calls `handler` whenever one of `events` (EPOLLIN ...) or a hang-up comes on `fd`. Any thread.
  Status watch(int fd, uint32_t events, Handler handler);
  /// After it returns the handler is not running and will not run. Any thread; on the control thread
  /// itself it may be called from within a handler. Call it before `fd` is closed.
  void forget(int fd);
  /// For a listener whose connections cannot be taken, because descriptors have run out: it would be ready
  /// for ever, so nothing of `fd` is looked at for some milliseconds. From within a handler.
  void pause(int fd);
  /// While the result lives no handler runs. Any thread; on the control thread itself, too.
  std::unique_lock<std::recursive_mutex> hold() { return std::unique_lock(running_); }

 private:
  ControlThread() = default;
  struct Watch {
    uint32_t events;
    std::shared_ptr<Handler> handler;
  };

  void loop();
  void change(int fd, uint32_t events);
  int patience_ms();
  void resume();

  FileDescriptor epoll_;
  FileDescriptor wake_;
  std::thread thread_;
  std::recursive_mutex running_;  ///< held while a handler runs
  // Guarded by running_.
  std::map<int, Watch> watches_;
  std::vector<int> paused_;
  uint64_t resume_ns_ = 0;  ///< when all of them go on
};

}  // namespace tutti
