// Fiber: a stack of its own and a switch onto it and back, told to the address and the thread sanitizer.
#pragma once

#include <cstddef>

#include "tests/simt/context.h"

namespace tutti::simt {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

/// Happens-before edges for the thread sanitizer: what was done before a release is seen after an acquire of
/// the same tag. Without it they do nothing.
void release_tag(void* tag);
void acquire_tag(void* tag);

/// Gives pages as somebody apart to the thread sanitizer, so that no edge comes with them from who asks for
/// them.
class PageAllocator {
 public:
  PageAllocator();
  ~PageAllocator();
  PageAllocator(const PageAllocator&) = delete;
  PageAllocator& operator=(const PageAllocator&) = delete;
  /// Fresh zeroed pages, as of mmap; their making is seen by who acquires `tag`.
  void* map_pages(size_t bytes, void* tag);

 private:
  void* thread_sanitizer_fiber_;
};

/// Stays on the OS thread that has first entered it.
class Fiber {
 public:
  /// The calling thread's own stack: where fibers return to.
  Fiber();
  /// Runs `entry(argument)`, which must never return: it calls leave_for_good.
  Fiber(void (*entry)(void*), void* argument, size_t stack_bytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Leaves this fiber, which is running, and goes on in `to`. Makes no happens-before edge.
  void leave(Fiber& to);
  [[noreturn]] void leave_for_good(Fiber& to);
  /// A fiber that was left for good begins again when it is entered next.
  void restart();
  /// Makes an edge to the caller from all that this fiber, which is not running, has done.
  void join();

 private:
  static void run_entered();
  void arrived(Fiber& from);

  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* memory_ = nullptr;  ///< a guard page, then the stack
  size_t memory_bytes_ = 0;
  Context* context_ = nullptr;
  void* thread_sanitizer_fiber_ = nullptr;
  void* address_sanitizer_stack_ = nullptr;
  const void* stack_bottom_ = nullptr;  ///< as the address sanitizer sees it
  size_t stack_bytes_ = 0;
};

}  // namespace tutti::simt
