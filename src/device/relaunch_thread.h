// RelaunchThread: the thread of a process that looks after operations on devices: it launches again what has
// left unfinished, and notices what will never finish.
//
// It sleeps while nothing is under way. While something is, it looks at words in pinned memory, in sleeps of
// some 50 us: a call into the stream that would wake it (cuLaunchHostFunc) costs every operation several
// microseconds, whether it needs to be launched again or not, and a replayed graph passes no host code at
// all.
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
  /// How soon a rank is to be looked at again.
  enum class NextCheck : uint8_t {
    kNone,    ///< when woken
    kSeldom,  ///< a replayed graph may need it at any time
    kSoon,
  };

  ~RelaunchThread();
  /// Calls `check_launches` on the relaunch_thread's thread, from now until `remove`. Any thread. Errors:
  /// kSystemError.
  Status add(const void* key, std::function<NextCheck()> check_launches);
  /// After it returns `check_launches` is not running and will not run. Not on the relaunch_thread's thread.
  void remove(const void* key);
  /// Something is under way. Any thread; no system call while the relaunch_thread is awake.
  void wake();

 private:
  void loop();
  NextCheck check_all();

  std::mutex mutex_;  ///< held while a `check_launches` runs
  std::condition_variable changed_;
  std::map<const void*, std::function<NextCheck()>> ranks_;
  std::atomic<bool> woken_{false};
  std::atomic<bool> asleep_{
      false};  ///< stored before woken_ is read, as `wake` stores woken_ before it reads this
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti
