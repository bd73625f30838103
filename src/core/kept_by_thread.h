// KeptByThread: one object for each thread, usable until the very end of the thread.
//
// A thread's objects are destroyed in reverse order, and the main thread's objects before static objects.
// Destructors of static objects may still call the library. A plain `thread_local std::string` is gone by
// then, and its use corrupts the heap.
#pragma once

#include <memory>
#include <utility>

namespace tutti {

/// One T for each thread, made at first use. A T that is made again after the thread's objects are gone
/// leaks, because no code runs later to destroy the T. `Tag` tells objects of one type apart.
template <class T, class Tag = T>
class KeptByThread {
 public:
  static T& get() {
    if (kept == nullptr) make();
    return *kept;
  }

 private:
  struct Owner {
    ~Owner() { delete std::exchange(kept, nullptr); }
    /// Odr-uses the owner and so constructs it. From then on the owner ends with the thread.
    void own() {}
  };

  [[gnu::noinline]] static void make() {
    auto fresh = std::make_unique<T>();
    static thread_local Owner owner;
    owner.own();
    kept = fresh.release();
  }

  /// Trivially destructible, so the pointer outlives the owner.
  static inline constinit thread_local T* kept = nullptr;
};

}  // namespace tutti
