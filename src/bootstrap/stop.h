// BootstrapStop: lets another thread end a bootstrap that waits. StopWatch: how an event loop hears of it.
#pragma once

#include <memory>
#include <mutex>

#include "core/file_descriptor.h"
#include "core/result.h"
#include "net/event_loop.h"

namespace tutti {

class BootstrapStop {
 public:
  /// From now on `stop` signals this eventfd. False when `stop` has been called already.
  bool arm(int event_fd);
  void disarm();
  bool is_stopped();
  /// Any thread. The bootstrap fails soon, if it has not ended. So does one that begins later.
  void stop();

 private:
  std::mutex mutex_;
  int event_fd_ = -1;
  bool stopped_ = false;
};

/// The error of a bootstrap that was stopped.
Status stopped_status();

/// While it lives, the loop wakes when `stop` is called.
class StopWatch {
 public:
  /// `stop` may be null: then nothing ever stops. Errors: kAborted when it was called already, kSystemError.
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
