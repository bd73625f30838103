#include "bootstrap/stop.h"

namespace tutti {

bool BootstrapStop::arm(EventLoop& loop) {
  const std::scoped_lock lock(mutex_);
  if (stopped_) return false;
  loop_ = &loop;
  return true;
}

void BootstrapStop::disarm() {
  const std::scoped_lock lock(mutex_);
  loop_ = nullptr;
}

bool BootstrapStop::is_stopped() {
  const std::scoped_lock lock(mutex_);
  return stopped_;
}

void BootstrapStop::stop() {
  const std::scoped_lock lock(mutex_);
  stopped_ = true;
  if (loop_ != nullptr) loop_->wake();
}

Status stopped_status() {
  return {Code::kAborted, "the set-up was ended by abort or destroy"};
}

Result<std::unique_ptr<StopWatch>> StopWatch::start(EventLoop& loop, BootstrapStop* stop) {
  std::unique_ptr<StopWatch> watch(new StopWatch(stop));
  if (stop != nullptr && !stop->arm(loop)) return stopped_status();
  return watch;
}

StopWatch::~StopWatch() {
  if (stop_ != nullptr) stop_->disarm();
}

}  // namespace tutti
