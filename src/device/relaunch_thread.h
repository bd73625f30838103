// RelaunchThread: a process's thread that relaunches unfinished operations on devices and finds those that
// never end.
//
// It sleeps while no operation is under way, and else polls pinned memory about every 50 us. A host function
// in the stream (cuLaunchHostFunc) could wake it, but would cost every operation several microseconds, and a
// replayed graph runs no host code.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "core/result.h"

namespace tutti {

class RelaunchThread {
 public:
  /// When to check a rank again.
  enum class NextCheck : uint8_t {
    kNone,    ///< when woken
    kSeldom,  ///< a replayed graph may need a relaunch at any time
    kSoon,
  };

  ~RelaunchThread();
  /// Calls `check_launches` on this thread, from now until `remove`. Any thread. Errors: kSystemError.
  Status add(const void* key, std::function<NextCheck()> check_launches);
  /// After the return, `check_launches` no longer runs. Not on this thread.
  void remove(const void* key);
  /// Says that an operation is under way. Any thread. Makes no system call while this thread is awake.
  void wake();

 private:
  void loop();
  NextCheck check_all();

  std::mutex mutex_;  ///< held while a `check_launches` runs
  std::condition_variable changed_;
  std::map<const void*, std::function<NextCheck()>> ranks_;
  std::atomic<bool> woken_{false};
  std::atomic<bool> asleep_{
      false};  ///< the thread stores asleep_, then reads woken_; `wake` does the reverse
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti
