#include "bootstrap/stop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>

namespace tutti {

bool BootstrapStop::arm(int event_fd) {
  const std::scoped_lock lock(mutex_);
  if (stopped_) return false;
  event_fd_ = event_fd;
  return true;
}

void BootstrapStop::disarm() {
  const std::scoped_lock lock(mutex_);
  event_fd_ = -1;
}

bool BootstrapStop::is_stopped() {
  const std::scoped_lock lock(mutex_);
  return stopped_;
}

void BootstrapStop::stop() {
  const std::scoped_lock lock(mutex_);
  stopped_ = true;
  if (event_fd_ >= 0) eventfd_write(event_fd_, 1);
}

Status stopped_status() {
  return {Code::kAborted, "the set-up was ended by abort or destroy"};
}

Result<std::unique_ptr<StopWatch>> StopWatch::start(EventLoop& loop, BootstrapStop* stop) {
  std::unique_ptr<StopWatch> watch(new StopWatch(loop));
  if (stop == nullptr) return watch;
  watch->event_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!watch->event_.is_open()) return system_error("eventfd", errno);
  StopWatch* raw = watch.get();
  TUTTI_TRY(loop.watch(watch->event_.get(), EPOLLIN, [raw](uint32_t) {
    raw->stopped_ = true;
    raw->loop_.forget(raw->event_.get());
  }));
  watch->stop_ = stop;
  if (!stop->arm(watch->event_.get())) return stopped_status();
  return watch;
}

StopWatch::~StopWatch() {
  if (stop_ != nullptr) stop_->disarm();
  if (event_.is_open()) loop_.forget(event_.get());
}

}  // namespace tutti
