#include "net/control_thread.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <new>
#include <utility>

#include "core/thread.h"
#include "net/local_socket.h"

namespace tutti {
namespace {

constexpr uint64_t kPauseNs = 10'000'000;
constexpr int kMemoryPauseMs = 10;

}  // namespace

Result<std::unique_ptr<ControlThread>> ControlThread::start() {
  std::unique_ptr<ControlThread> control(new ControlThread);
  auto loop = EventLoop::create();
  TUTTI_TRY(loop.status());
  TUTTI_TRY((*loop)->add_alarm());
  control->loop_ = std::move(*loop);
  control->wake_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!control->wake_.is_open()) return system_error("eventfd", errno);
  TUTTI_TRY(start_thread(control->thread_, "the control thread", [raw = control.get()] { raw->run(); }));
  return control;
}

ControlThread::~ControlThread() {
  if (!thread_.joinable()) return;
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

Status ControlThread::watch(int fd, uint32_t events, Handler handler) {
  const std::scoped_lock lock(running_);
  return loop_->watch(fd, events, std::move(handler));
}

void ControlThread::forget(int fd) {
  const std::scoped_lock lock(running_);
  if (auto paused = paused_.extract(fd)) loop_->cancel(paused.mapped());
  loop_->forget(fd);
}

void ControlThread::pause(int fd) {
  // In this order: where memory is short, no listener pauses that nothing resumes, and `forget` knows of the
  // timer.
  EventLoop::Timer& resume = paused_[fd];
  resume = loop_->call_at(loop_->now() + kPauseNs, [this, fd] {
    paused_.erase(fd);
    loop_->change(fd, EPOLLIN);
  });
  loop_->change(fd, 0);
}

void ControlThread::run() {
  std::array<pollfd, 2> ready = {{{loop_->descriptor(), POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
  for (;;) {
    // Poll without the lock, so that other threads can watch and forget.
    poll(ready.data(), ready.size(), -1);
    if (ready[1].revents != 0) return;
    // Handlers leave what they cannot do ready: without a pause they would fail again and again.
    if (!turn()) poll(&ready[1], 1, kMemoryPauseMs);
  }
}

bool ControlThread::turn() {
  const std::scoped_lock lock(running_);
  try {
    loop_->run_ready();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void accept_waiting(ControlThread& control, const FileDescriptor& listener,
                    const std::function<void(FileDescriptor)>& take) {
  for (;;) {
    FileDescriptor connection = local_accept(listener);
    if (!connection.is_open()) {
      if (errno != EAGAIN) control.pause(listener.get());
      return;
    }
    take(std::move(connection));
  }
}

}  // namespace tutti
