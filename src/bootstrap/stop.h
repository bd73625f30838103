// BootstrapStop: lets another thread end a waiting bootstrap. StopWatch wakes its event loop.
#pragma once

#include <memory>
#include <mutex>

#include "core/file_descriptor.h"
#include "core/result.h"
#include "net/event_loop.h"

namespace tutti {

class BootstrapStop {
 public:
  /// `stop` will signal this eventfd. False if it has been called already.
  bool arm(int event_fd);
  void disarm();
  bool is_stopped();
  /// The current bootstrap, or a later one, fails soon. Any thread.
  void stop();

 private:
  std::mutex mutex_;
  int event_fd_ = -1;
  bool stopped_ = false;
};

Status stopped_status();

/// While it lives, stop() wakes the loop.
class StopWatch {
 public:
  /// `stop` may be null. Errors: kAborted if it was called already; kSystemError.
  static Result<std::unique_ptr<StopWatch>> start(EventLoop& loop, BootstrapStop* stop);
  ~StopWatch();
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

  bool is_stopped() const { return stopped_; }

 private:
  explicit StopWatch(EventLoop& loop) : loop_(loop) {}

  EventLoop& loop_;
  BootstrapStop* stop_ = nullptr;
  FileDescriptor event_;
  bool stopped_ = false;
};

}  // namespace tutti
