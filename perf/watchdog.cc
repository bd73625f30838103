#include "perf/watchdog.h"

#include <utility>

namespace tutti::perf {

Watchdog::Watchdog(std::chrono::milliseconds limit, Expire expire)
    : limit_(limit), expire_(std::move(expire)) {
  if (limit_.count() > 0) thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::begin(std::string row) {
  if (limit_.count() == 0) return;
  {
    const std::lock_guard lock(mutex_);
    row_ = std::move(row);
    deadline_ = std::chrono::steady_clock::now() + limit_;
    armed_ = true;
  }
  changed_.notify_one();
}

void Watchdog::end() {
  if (limit_.count() == 0) return;
  const std::lock_guard lock(mutex_);
  armed_ = false;
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!armed_) {
      changed_.wait(lock);
    } else if (std::chrono::steady_clock::now() >= deadline_) {
      armed_ = false;
      const std::string row = row_;
      lock.unlock();
      expire_(row);
      lock.lock();
    } else {
      changed_.wait_until(lock, deadline_);
    }
  }
}

}  // namespace tutti::perf
