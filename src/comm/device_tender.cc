#include "comm/device_tender.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/thread.h"

namespace tutti {
namespace {

constexpr std::chrono::microseconds kSoonSleep{50};
constexpr std::chrono::microseconds kSeldomSleep{500};

}  // namespace

DeviceTender::~DeviceTender() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

Status DeviceTender::add(const void* key, std::function<Care()> tend) {
  const std::scoped_lock lock(mutex_);
  if (!thread_.joinable()) {
    TUTTI_TRY(start_thread(thread_, "the thread that tends devices", [this] { loop(); }));
  }
  ranks_[key] = std::move(tend);
  return Status::ok();
}

void DeviceTender::remove(const void* key) {
  const std::scoped_lock lock(mutex_);
  ranks_.erase(key);
}

void DeviceTender::wake() {
  woken_ = true;
  if (!asleep_) return;
  const std::scoped_lock lock(mutex_);
  changed_.notify_all();
}

DeviceTender::Care DeviceTender::tend_all() {
  Care most = Care::kNone;
  for (const auto& [key, tend] : ranks_) most = std::max(most, tend());
  return most;
}

void DeviceTender::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    woken_ = false;
    const Care care = tend_all();
    asleep_ = care != Care::kSoon;
    const auto is_wanted = [this] { return woken_.load() || stopping_; };
    switch (care) {
      case Care::kNone: changed_.wait(lock, is_wanted); break;
      case Care::kSeldom: changed_.wait_for(lock, kSeldomSleep, is_wanted); break;
      case Care::kSoon: changed_.wait_for(lock, kSoonSleep, [this] { return stopping_; }); break;
    }
    asleep_ = false;
  }
}

}  // namespace tutti
