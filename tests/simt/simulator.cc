// What kernels call when they are compiled for the host: see engine/cuda/device.h.
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <bit>

#include "engine/cuda/device.h"
#include "tests/simt/scheduler.h"

namespace simulator {

using tutti::simt::Scheduler;

SIMT_UNSEEN uint32_t thread_index() {
  return Scheduler::of_this_thread().thread_index();
}
SIMT_UNSEEN uint32_t thread_count() {
  return Scheduler::of_this_thread().thread_count();
}
SIMT_UNSEEN uint32_t block_index() {
  return Scheduler::of_this_thread().block_index();
}
SIMT_UNSEEN void barrier(const char* place) {
  Scheduler::of_this_thread().wait_at_barrier(place);
}
SIMT_UNSEEN void meet(uint32_t number, uint32_t threads, const char* name, bool waits) {
  Scheduler::of_this_thread().meet(number, threads, name, waits);
}
SIMT_UNSEEN void word_stored() {
  Scheduler::of_this_thread().word_stored();
}
SIMT_UNSEEN void word_loaded() {
  Scheduler::of_this_thread().word_loaded();
}
SIMT_UNSEEN void poll_failed(const char* what, const void* address, bool bounded) {
  Scheduler::of_this_thread().poll_failed(what, address, bounded);
}
SIMT_UNSEEN void wait_ended() {
  Scheduler::of_this_thread().wait_ended();
}
SIMT_UNSEEN void fence_made() {
  Scheduler::of_this_thread().fence_made();
}
SIMT_UNSEEN void fence_needed() {
  Scheduler::of_this_thread().fence_needed();
}
SIMT_UNSEEN void fence_used_up() {
  Scheduler::of_this_thread().fence_used_up();
}
SIMT_UNSEEN void alias_fence_made() {
  Scheduler::of_this_thread().alias_fence_made();
}
SIMT_UNSEEN void alias_fence_needed() {
  Scheduler::of_this_thread().alias_fence_needed();
}
SIMT_UNSEEN void preempt() {
  Scheduler::of_this_thread().preempt();
}
// x86-64 processors with AVX load and store 16 aligned bytes at once. libatomic, which the thread sanitizer
// replaces, would make a locked exchange of each poll.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
Whole load_whole(const void* from) {
  const __m128i value = _mm_load_si128(static_cast<const __m128i*>(from));
  asm volatile("" ::: "memory");
  return std::bit_cast<Whole>(value);
}
void store_whole(void* to, Whole value) {
  _mm_store_si128(static_cast<__m128i*>(to), std::bit_cast<__m128i>(value));
  asm volatile("" ::: "memory");
}
#else
Whole load_whole(const void* from) {
  return __atomic_load_n(static_cast<const Whole*>(from), __ATOMIC_RELAXED);
}
void store_whole(void* to, Whole value) {
  __atomic_store_n(static_cast<Whole*>(to), value, __ATOMIC_RELAXED);
}
#endif
SIMT_UNSEEN void* shared_variable(const void* key, size_t bytes) {
  return Scheduler::of_this_thread().shared_variable(key, bytes);
}

}  // namespace simulator
