#include "net/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <mutex>

namespace tutti {
namespace {

uint64_t tag_of(int fd, uint32_t generation) {
  return uint64_t{generation} << 32 | static_cast<uint32_t>(fd);
}

/// An event that is always ready. To wake a loop is to let it watch this one once: thousands of loops share a
/// descriptor.
int always_ready() {
  static std::mutex mutex;
  static auto* const kEvent = new FileDescriptor;  // loops may outlive static objects
  const std::scoped_lock lock(mutex);
  if (!kEvent->is_open()) *kEvent = FileDescriptor(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  return kEvent->get();
}

/// What `action` throws leaves, or goes to `*thrown`.
template <class Action>
void call(std::exception_ptr* thrown, const Action& action) {
  if (thrown == nullptr) return action();
  try {
    action();
  } catch (...) {
    *thrown = std::current_exception();
  }
}

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::create(Clock clock) {
  if (always_ready() < 0) return system_error("eventfd", errno);
  std::unique_ptr<EventLoop> loop(new EventLoop(std::move(clock)));
  loop->epoll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!loop->epoll_.is_open()) return system_error("epoll_create1", errno);
  return loop;
}

Status EventLoop::add_alarm() {
  if (alarm_.is_open()) return Status::ok();
  FileDescriptor alarm(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!alarm.is_open()) return system_error("timerfd_create", errno);
  // Edge-triggered: the alarm is never read, only set again.
  TUTTI_TRY(watch(alarm.get(), EPOLLIN | EPOLLET, [](uint32_t) {}));
  alarm_ = std::move(alarm);
  arm();
  return Status::ok();
}

Status EventLoop::watch(int fd, uint32_t events, Handler handler) {
  const uint32_t generation = ++generation_;
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag_of(fd, generation);
  auto shared = std::make_shared<Handler>(std::move(handler));
  // The place comes first: what epoll watches is known here, whatever fails, so that `forget` finds it.
  const auto [place, is_new] = watches_.try_emplace(fd);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    const int error_number = errno;
    if (is_new) watches_.erase(place);
    return system_error("epoll_ctl", error_number);
  }
  place->second = {generation, std::move(shared)};
  return Status::ok();
}

void EventLoop::change(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag_of(fd, watches_.at(fd).generation);
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::forget(int fd) {
  if (watches_.erase(fd) > 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

EventLoop::Timer EventLoop::call_at(uint64_t time_ns, std::function<void()> action) {
  const Timer timer{time_ns, ++timer_count_};
  timers_.emplace(timer, std::move(action));
  arm();
  return timer;
}

void EventLoop::cancel(Timer& timer) {
  timers_.erase(timer);
  timer = {};
}

/// Ringing too early does no harm.
void EventLoop::arm() {
  if (timers_.empty() || !alarm_.is_open()) return;
  const uint64_t first_ns = std::max<uint64_t>(timers_.begin()->first.time_ns, 1);
  if (armed_ns_ != 0 && armed_ns_ <= first_ns) return;
  armed_ns_ = first_ns;
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(first_ns / 1'000'000'000);
  when.it_value.tv_nsec = static_cast<long>(first_ns % 1'000'000'000);
  timerfd_settime(alarm_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

/// The timer keeps its place meanwhile, so that an action that throws is still due, and one that cancels its
/// own timer is not.
void EventLoop::run_timer(const Timer& timer) {
  std::function<void()> action = std::move(timers_.at(timer));
  try {
    action();
  } catch (...) {
    if (const auto place = timers_.find(timer); place != timers_.end()) place->second = std::move(action);
    throw;
  }
  timers_.erase(timer);
}

bool EventLoop::run_timers(std::exception_ptr* thrown) {
  bool any = false;
  const uint64_t now_ns = now();
  for (auto next = timers_.begin(); next != timers_.end() && next->first.time_ns <= now_ns;) {
    const Timer timer = next->first;
    call(thrown, [&] { run_timer(timer); });
    any = true;
    next = timers_.upper_bound(timer);
  }
  if (armed_ns_ <= now_ns) armed_ns_ = 0;
  arm();
  return any;
}

bool EventLoop::run(int timeout_ms, std::exception_ptr* thrown) {
  std::array<epoll_event, 64> events{};
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  bool any = false;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    const int fd = static_cast<int>(static_cast<uint32_t>(event.data.u64));
    const auto found = watches_.find(fd);
    if (found == watches_.end() || tag_of(fd, found->second.generation) != event.data.u64) continue;
    // A handler may forget itself, so keep it until it returns.
    const std::shared_ptr<Handler> handler = found->second.handler;
    call(thrown, [&] { (*handler)(event.events); });
    any = any || fd != alarm_.get();
  }
  return run_timers(thrown) || any;
}

bool EventLoop::run_ready() {
  std::exception_ptr thrown;
  const bool any = run(0, &thrown);
  if (thrown != nullptr) std::rethrow_exception(thrown);
  return any;
}

void EventLoop::wake() {
  const int fd = always_ready();
  epoll_event event{};
  event.events = EPOLLIN | EPOLLONESHOT;
  event.data.u64 = tag_of(fd, 0);  // of no watch
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

int EventLoop::next_timer_ms() const {
  if (timers_.empty()) return -1;
  const uint64_t first_ns = timers_.begin()->first.time_ns;
  const uint64_t now_ns = now();
  if (first_ns <= now_ns) return 0;
  return static_cast<int>(std::min<uint64_t>((first_ns - now_ns + 999'999) / 1'000'000, INT_MAX));
}

void EventLoop::run_until(const std::function<bool()>& done) {
  while (!done()) run(next_timer_ms(), nullptr);
}

}  // namespace tutti
