// BootstrapStop: lets another thread end a waiting bootstrap. StopWatch ties it to the event loop that waits.
#pragma once

#include <memory>
#include <mutex>

#include "core/result.h"
#include "net/event_loop.h"

namespace tutti {

class BootstrapStop {
 public:
  /// `stop` will wake this loop. False if it has been called already.
  bool arm(EventLoop& loop);
  void disarm();
  bool is_stopped();
  /// The current bootstrap, or a later one, fails soon. Any thread.
  void stop();

 private:
  std::mutex mutex_;
  EventLoop* loop_ = nullptr;
  bool stopped_ = false;
};

Status stopped_status();

/// While it lives, stop() wakes the loop.
class StopWatch {
 public:
  /// `stop` may be null. Errors: kAborted if it was called already.
  static Result<std::unique_ptr<StopWatch>> start(EventLoop& loop, BootstrapStop* stop);
  ~StopWatch();
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

  bool is_stopped() const { return stop_ != nullptr && stop_->is_stopped(); }

 private:
  explicit StopWatch(BootstrapStop* stop) : stop_(stop) {}

  BootstrapStop* stop_;
};

}  // namespace tutti
