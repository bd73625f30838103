// KeptByThread: an object a thread, that calls may use until the very end of the thread.
//
// A thread's objects go in the reverse order of their making, and the main thread's before destructors of
// static objects run. Those may call the library once more: a plain `thread_local std::string` is gone by
// then, and using it corrupts the heap.
#pragma once

#include <memory>
#include <utility>

namespace tutti {

/// One T of each thread, made at the first use. One that is made anew after the thread's objects have gone is
/// leaked: nobody is left to destroy it. `Tag` tells several of one type apart.
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
    /// Odr-uses the owner, which makes it: from then on it goes with the thread.
    void own() {}
  };

  [[gnu::noinline]] static void make() {
    auto fresh = std::make_unique<T>();
    static thread_local Owner owner;
    owner.own();
    kept = fresh.release();
  }

  /// Trivially destructible: it outlives the owner.
  static inline constinit thread_local T* kept = nullptr;
};

}  // namespace tutti
