#include "bootstrap/stop.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace tutti {

bool BootstrapStop::arm(int fd) {
  const std::scoped_lock lock(mutex_);
  if (stopped_) return false;
  fd_ = fd;
  return true;
}

void BootstrapStop::disarm() {
  const std::scoped_lock lock(mutex_);
  fd_ = -1;
}

bool BootstrapStop::is_stopped() {
  const std::scoped_lock lock(mutex_);
  return stopped_;
}

void BootstrapStop::stop() {
  const std::scoped_lock lock(mutex_);
  stopped_ = true;
  if (fd_ >= 0) shutdown(fd_, SHUT_RDWR);
}

Status stopped_status() {
  return {Code::kAborted, "the set-up was ended by abort or destroy"};
}

Result<std::unique_ptr<StopWatch>> StopWatch::start(EventLoop& loop, BootstrapStop* stop) {
  std::unique_ptr<StopWatch> watch(new StopWatch(loop));
  if (stop == nullptr) return watch;
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return system_error("socketpair", errno);
  }
  watch->near_ = FileDescriptor(ends[0]);
  watch->far_ = FileDescriptor(ends[1]);
  StopWatch* raw = watch.get();
  TUTTI_TRY(loop.watch(ends[0], EPOLLIN, [raw](uint32_t) {
    raw->stopped_ = true;
    raw->loop_.forget(raw->near_.get());
  }));
  watch->stop_ = stop;
  if (!stop->arm(ends[1])) return stopped_status();
  return watch;
}

StopWatch::~StopWatch() {
  if (stop_ != nullptr) stop_->disarm();
  if (near_.is_open()) loop_.forget(near_.get());
}

}  // namespace tutti
