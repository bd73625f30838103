#include "comm/control.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>

#include "core/clock.h"
#include "core/thread.h"

namespace tutti {
namespace {

// How long new connections are left in the kernel's queue when descriptors have run out.
constexpr uint64_t kPauseMs = 10;

}  // namespace

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
  watches_[fd] = {events, std::make_shared<Handler>(std::move(handler))};
  return Status::ok();
}

void ControlThread::forget(int fd) {
  const std::scoped_lock lock(running_);
  std::erase(paused_, fd);
  if (watches_.erase(fd) > 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void ControlThread::change(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);  // fails for what is not watched only
}

void ControlThread::pause(int fd) {
  const std::scoped_lock lock(running_);
  if (paused_.empty()) resume_ns_ = deadline_after_ms(kPauseMs);
  paused_.push_back(fd);
  change(fd, 0);
}

/// How long to sleep.
int ControlThread::patience_ms() {
  const std::scoped_lock lock(running_);
  return paused_.empty() ? -1 : static_cast<int>(kPauseMs);
}

void ControlThread::resume() {
  const std::scoped_lock lock(running_);
  if (paused_.empty() || now_ns() < resume_ns_) return;
  for (const int fd : paused_) change(fd, watches_.at(fd).events);
  paused_.clear();
}

void ControlThread::loop() {
  std::array<epoll_event, 16> events{};
  for (;;) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), patience_ms());
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.fd == wake_.get()) return;
      const std::scoped_lock lock(running_);
      const auto found = watches_.find(event.data.fd);
      if (found == watches_.end()) continue;
      // A handler may forget itself: keep it until it returns.
      const std::shared_ptr<Handler> handler = found->second.handler;
      (*handler)(event.events);
    }
    resume();
  }
}

}  // namespace tutti
