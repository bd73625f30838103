#include "device/relaunch_thread.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/thread.h"

namespace tutti {
namespace {

constexpr std::chrono::microseconds kSoonSleep{50};
constexpr std::chrono::microseconds kSeldomSleep{500};

}  // namespace

RelaunchThread::~RelaunchThread() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

Status RelaunchThread::add(const void* key, std::function<NextCheck()> check_launches) {
  const std::scoped_lock lock(mutex_);
  if (!thread_.joinable()) {
    TUTTI_TRY(start_thread(thread_, "the thread that relaunches operations", [this] { loop(); }));
  }
  ranks_[key] = std::move(check_launches);
  return Status::ok();
}

void RelaunchThread::remove(const void* key) {
  const std::scoped_lock lock(mutex_);
  ranks_.erase(key);
}

void RelaunchThread::wake() {
  woken_ = true;
  if (!asleep_) return;
  const std::scoped_lock lock(mutex_);
  changed_.notify_all();
}

RelaunchThread::NextCheck RelaunchThread::check_all() {
  NextCheck most = NextCheck::kNone;
  for (const auto& [key, check_launches] : ranks_) most = std::max(most, check_launches());
  return most;
}

void RelaunchThread::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    woken_ = false;
    const NextCheck care = check_all();
    asleep_ = care != NextCheck::kSoon;
    const auto is_wanted = [this] { return woken_.load() || stopping_; };
    switch (care) {
      case NextCheck::kNone: changed_.wait(lock, is_wanted); break;
      case NextCheck::kSeldom: changed_.wait_for(lock, kSeldomSleep, is_wanted); break;
      case NextCheck::kSoon: changed_.wait_for(lock, kSoonSleep, [this] { return stopping_; }); break;
    }
    asleep_ = false;
  }
}

}  // namespace tutti
