#include "health/heartbeat.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/clock.h"
#include "health/loss.h"

namespace tutti {

Result<std::unique_ptr<Heartbeat>> Heartbeat::start(ControlThread& control, uint64_t heartbeat_ms,
                                                    std::atomic<uint32_t>& own,
                                                    const std::vector<Peer>& peers, OnSilent on_silent) {
  std::unique_ptr<Heartbeat> heartbeat(new Heartbeat(control, heartbeat_ms, own, std::move(on_silent)));
  heartbeat->clock_.start(now_ns());
  for (const Peer& peer : peers) heartbeat->watched_.push_back({.peer = peer});
  heartbeat->timer_ = FileDescriptor(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!heartbeat->timer_.is_open()) return system_error("timerfd_create", errno);
  const uint64_t period_ns = heartbeat->clock_.period_ns();
  const timespec period{static_cast<time_t>(period_ns / 1'000'000'000),
                        static_cast<long>(period_ns % 1'000'000'000)};
  const itimerspec schedule{period, period};
  if (timerfd_settime(heartbeat->timer_.get(), 0, &schedule, nullptr) != 0)
    return system_error("timerfd_settime", errno);
  own.fetch_add(1, std::memory_order_relaxed);
  TUTTI_TRY(
      control.watch(heartbeat->timer_.get(), EPOLLIN, [raw = heartbeat.get()](uint32_t) { raw->beat(); }));
  return heartbeat;
}

Heartbeat::~Heartbeat() {
  if (timer_.is_open()) control_.forget(timer_.get());
}

void Heartbeat::expect_beats() {
  const auto hold = control_.hold();
  expects_beats_ = true;
  for (Watched& watched : watched_) watched.moved_ns = now_ns();
}

/// Allocates nothing: memory may be short.
void Heartbeat::beat() {
  uint64_t count = 0;
  (void)!read(timer_.get(), &count, sizeof(count));  // re-arms the descriptor; the number does not matter
  own_.fetch_add(1, std::memory_order_relaxed);
  const uint64_t now = now_ns();
  const bool was_stopped = clock_.beat(now);
  for (Watched& watched : watched_) {
    const uint32_t heartbeat = watched.peer.heartbeat->load(std::memory_order_relaxed);
    if (heartbeat != watched.seen || was_stopped) {
      watched.seen = heartbeat;
      watched.moved_ns = now;
    } else if (expects_beats_ && !watched.is_silent && clock_.is_too_long(now - watched.moved_ns)) {
      watched.is_silent = true;
      on_silent_(watched.peer.rank,
                 silent_status(watched.peer.rank, now - watched.moved_ns, "its process is stopped"));
    }
  }
}

}  // namespace tutti
