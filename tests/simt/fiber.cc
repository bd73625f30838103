#include "tests/simt/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

// The sanitizers' interfaces; gcc 12 ships no header for fibers of the thread sanitizer.
// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming): the names are theirs
extern "C" {
#if defined(__SANITIZE_ADDRESS__)
void __sanitizer_start_switch_fiber(void** fake_stack_save, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* fake_stack_save, const void** bottom_old, size_t* size_old);
#else
static void __sanitizer_start_switch_fiber(void**, const void*, size_t) {}
static void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) {}
#endif
#if defined(__SANITIZE_THREAD__)
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
#else
static void* __tsan_get_current_fiber() {
  return nullptr;
}
static void* __tsan_create_fiber(unsigned) {
  return nullptr;
}
static void __tsan_destroy_fiber(void*) {}
static void __tsan_switch_to_fiber(void*, unsigned) {}
static void __tsan_acquire(void*) {}
static void __tsan_release(void*) {}
#endif
}
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)

namespace tutti::simt {
namespace {

constexpr unsigned kNoEdge = 1;

struct Switch {
  Fiber* from = nullptr;
  Fiber* to = nullptr;
};
thread_local Switch last_switch;

}  // namespace

void release_tag(void* tag) {
  __tsan_release(tag);
}
void acquire_tag(void* tag) {
  __tsan_acquire(tag);
}

PageAllocator::PageAllocator() : thread_sanitizer_fiber_(__tsan_create_fiber(0)) {}

PageAllocator::~PageAllocator() {
  if (thread_sanitizer_fiber_ != nullptr) __tsan_destroy_fiber(thread_sanitizer_fiber_);
}

SIMT_UNSEEN void* PageAllocator::map_pages(size_t bytes, void* tag) {
  void* const caller = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(thread_sanitizer_fiber_, kNoEdge);
  void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  release_tag(tag);
  __tsan_switch_to_fiber(caller, kNoEdge);
  return pages;
}

Fiber::Fiber() : context_(make_context()), thread_sanitizer_fiber_(__tsan_get_current_fiber()) {}

Fiber::Fiber(void (*entry)(void*), void* argument, size_t stack_bytes)
    : entry_(entry), argument_(argument), stack_bytes_(stack_bytes) {
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  memory_bytes_ = page_bytes + stack_bytes;
  memory_ = mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory_, page_bytes, PROT_NONE);
  stack_bottom_ = static_cast<std::byte*>(memory_) + page_bytes;
  context_ = make_context(const_cast<void*>(stack_bottom_), stack_bytes, &Fiber::run_entered);
  thread_sanitizer_fiber_ = __tsan_create_fiber(0);
}

Fiber::~Fiber() {
  free_context(context_);
  if (entry_ == nullptr) return;
  if (thread_sanitizer_fiber_ != nullptr) __tsan_destroy_fiber(thread_sanitizer_fiber_);
  munmap(memory_, memory_bytes_);
}

SIMT_UNSEEN void Fiber::leave(Fiber& to) {
  last_switch = {this, &to};
  __sanitizer_start_switch_fiber(&address_sanitizer_stack_, to.stack_bottom_, to.stack_bytes_);
  __tsan_switch_to_fiber(to.thread_sanitizer_fiber_, kNoEdge);
  switch_context(*context_, *to.context_);
  arrived(*last_switch.from);
}

SIMT_UNSEEN void Fiber::leave_for_good(Fiber& to) {
  last_switch = {this, &to};
  __sanitizer_start_switch_fiber(nullptr, to.stack_bottom_, to.stack_bytes_);
  __tsan_switch_to_fiber(to.thread_sanitizer_fiber_, kNoEdge);
  switch_context(*context_, *to.context_);
  std::abort();
}

void Fiber::restart() {
  reset_context(*context_);
  address_sanitizer_stack_ = nullptr;
}

SIMT_UNSEEN void Fiber::join() {
  void* const caller = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(thread_sanitizer_fiber_, kNoEdge);
  release_tag(this);
  __tsan_switch_to_fiber(caller, kNoEdge);
  acquire_tag(this);
}

SIMT_UNSEEN void Fiber::run_entered() {
  Fiber& self = *last_switch.to;
  self.arrived(*last_switch.from);
  self.entry_(self.argument_);
  std::abort();
}

/// The stack of the OS thread is known only from what the address sanitizer says when it was left.
SIMT_UNSEEN void Fiber::arrived(Fiber& from) {
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(address_sanitizer_stack_, &bottom, &bytes);
  if (from.entry_ == nullptr) {
    from.stack_bottom_ = bottom;
    from.stack_bytes_ = bytes;
  }
}

}  // namespace tutti::simt
