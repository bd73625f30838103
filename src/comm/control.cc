#include "comm/control.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>

#include "core/thread.h"

namespace tutti {

Result<std::unique_ptr<ControlThread>> ControlThread::start() {
  std::unique_ptr<ControlThread> control(new ControlThread);
  control->epoll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!control->epoll_.is_open()) return system_error("epoll_create1", errno);
  control->wake_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!control->wake_.is_open()) return system_error("eventfd", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = control->wake_.get();
  if (epoll_ctl(control->epoll_.get(), EPOLL_CTL_ADD, control->wake_.get(), &event) != 0) {
    return system_error("epoll_ctl", errno);
  }
  TUTTI_TRY(start_thread(control->thread_, "the control thread", [raw = control.get()] { raw->loop(); }));
  return control;
}

ControlThread::~ControlThread() {
  if (!thread_.joinable()) return;
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

Status ControlThread::watch(int fd, uint32_t events, Handler handler) {
  const std::scoped_lock lock(running_);
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return system_error("epoll_ctl", errno);
  handlers_[fd] = std::make_shared<Handler>(std::move(handler));
  return Status::ok();
}

void ControlThread::forget(int fd) {
  const std::scoped_lock lock(running_);
  if (handlers_.erase(fd) > 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void ControlThread::loop() {
  std::array<epoll_event, 16> events{};
  for (;;) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.fd == wake_.get()) return;
      const std::scoped_lock lock(running_);
      const auto found = handlers_.find(event.data.fd);
      if (found == handlers_.end()) continue;
      // A handler may forget itself: keep it until it returns.
      const std::shared_ptr<Handler> handler = found->second;
      (*handler)(event.events);
    }
  }
}

}  // namespace tutti
