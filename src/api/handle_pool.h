// HandlePool: handles that C callers hold. The pool recycles handles, oldest first, and never frees them. So
// the use of a dead handle is an error instead of a crash.
#pragma once

#include <deque>
#include <mutex>

namespace tutti {

template <class Handle>
class HandlePool {
 public:
  /// Returns a new handle, or a handle that has rested long enough.
  Handle* take() {
    {
      const std::scoped_lock lock(mutex_);
      if (resting_.size() > kQuarantine) {
        Handle* handle = resting_.front();
        resting_.pop_front();
        return handle;
      }
    }
    return new Handle;
  }
  /// Takes a handle that the caller has emptied and marked dead.
  void rest(Handle* handle) {
    const std::scoped_lock lock(mutex_);
    resting_.push_back(handle);
  }

 private:
  // A handle rests until this many later handles rest too. Misuse of a dead handle is noticed for that long.
  static constexpr size_t kQuarantine = 256;

  std::mutex mutex_;
  std::deque<Handle*> resting_;
};

}  // namespace tutti
