// HandlePool: handles that C callers hold. They are recycled, oldest first, and never given back to the
// system, so that the use of a dead one is noticed instead of crashing.
#pragma once

#include <deque>
#include <mutex>

namespace tutti {

template <class Handle>
class HandlePool {
 public:
  /// A new handle, or one that has rested long enough.
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
  /// The caller has marked it dead and emptied it.
  void rest(Handle* handle) {
    const std::scoped_lock lock(mutex_);
    resting_.push_back(handle);
  }

 private:
  // A handle rests for this many others before it is used again: so long is its misuse noticed.
  static constexpr size_t kQuarantine = 256;

  std::mutex mutex_;
  std::deque<Handle*> resting_;
};

}  // namespace tutti
