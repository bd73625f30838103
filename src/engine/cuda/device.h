// What kernels see of their compiler; multimem.h adds multicast memory. With nvcc the functions are PTX. In a
// host build each CUDA thread is a fiber of a simulator (tests/simt), which implements namespace `simulator`.
// So kernels need no #ifdef.
//
// Memory order. A release store of a flag publishes data and an acquire load sees it, between ranks and
// between blocks, at system scope: data -> barrier -> release by one thread; acquire by one thread -> barrier
// -> data. The threads of a warp that store flags make one release_fence and then store with store_fenced.
// The thread sanitizer sees no fences: to it store_fenced is a release, and the simulator checks that the
// fence is there. Polls acquire each time: a relaxed poll would need a second load, perhaps from another
// device, once the flag is there. Data accesses are weak, but never use the read-only cache (ld.global.nc),
// because peers rewrite data.
//
// Packets of short calls need neither fence nor barrier: data and flag are one atomic access of system scope.
// PTX 8.4 has such accesses of 16 bytes from sm_70 on; a vector of words would be an access for each word.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace tutti::cuda {

/// One aligned 16-byte load or store.
struct alignas(16) Packet {
  uint32_t words[4];
};

/// A packet of a short call: one atomic load or store.
struct alignas(16) Mail {
  uint32_t data[3];
  uint32_t flag;
};

}  // namespace tutti::cuda

#if defined(__CUDACC__)

#define TUTTI_DEVICE __device__ __forceinline__
#define TUTTI_DEVICE_CALL __device__ __noinline__
#define TUTTI_MEMBER static __device__ __forceinline__
#define TUTTI_UNROLL _Pragma("unroll")
#define TUTTI_NO_UNROLL _Pragma("unroll 1")
/// A multiprocessor should hold `blocks` blocks of 512 threads.
#define TUTTI_KERNEL(blocks) extern "C" __global__ void __launch_bounds__(512, blocks)
#define TUTTI_ARGUMENT const __grid_constant__
/// A variable that the threads of a block share. The type must be trivial.
#define TUTTI_SHARED(type, name) __shared__ type name

namespace tutti::cuda::device {

TUTTI_DEVICE uint32_t thread_index() {
  return threadIdx.x;
}
TUTTI_DEVICE uint32_t thread_count() {
  return blockDim.x;
}
TUTTI_DEVICE uint32_t block_index() {
  return blockIdx.x;
}
/// Waits for all threads of the block. `name` stands for the barrier in a simulator's report.
TUTTI_DEVICE void barrier(const char* /*name*/) {
  __syncthreads();
}
/// Waits until `threads` threads of the block, in whole warps, have come to barrier `kNumber`, of 1 to 15.
template <uint32_t kNumber>
TUTTI_DEVICE void meet(uint32_t threads, const char* /*name*/) {
  asm volatile("bar.sync %0, %1;" ::"n"(kNumber), "r"(threads) : "memory");
}
/// Comes to the barrier without waiting. Those who wait there see what this thread has done.
template <uint32_t kNumber>
TUTTI_DEVICE void arrive(uint32_t threads, const char* /*name*/) {
  asm volatile("bar.arrive %0, %1;" ::"n"(kNumber), "r"(threads) : "memory");
}
/// A poll found nothing: `what` at `address`. `bounded`: the thread will give up. The comments are for who
/// runs the PTX on a simulated device (tests/ptx).
TUTTI_DEVICE void poll_failed(const char* /*what*/, const void* address, bool bounded) {
  asm volatile("// simulator: poll %0, %1" ::"l"(address), "r"(static_cast<uint32_t>(bounded)));
}
/// The wait with failed polls has ended.
TUTTI_DEVICE void wait_ended() {
  asm volatile("// simulator: poll ended");
}

TUTTI_DEVICE uint64_t load_acquire(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
TUTTI_DEVICE uint32_t load_acquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
TUTTI_DEVICE void store_release(uint64_t* to, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
TUTTI_DEVICE void store_release(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
TUTTI_DEVICE uint64_t load_relaxed(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
TUTTI_DEVICE uint32_t load_relaxed(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
TUTTI_DEVICE void store_relaxed(uint64_t* to, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
TUTTI_DEVICE void store_relaxed(uint32_t* to, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
/// Whoever acquires a later store_fenced of this thread sees all that the thread has done and seen so far. No
/// barrier and no other store may come between.
TUTTI_DEVICE void release_fence() {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
}
/// Orders accesses to one place through different addresses (multimem.h).
TUTTI_DEVICE void alias_fence() {
  asm volatile("fence.proxy.alias;" ::: "memory");
}
TUTTI_DEVICE void store_fenced(uint64_t* to, uint64_t value) {
  store_relaxed(to, value);
}
/// Adds to a counter that the blocks of one device share, and returns the value before. Acquires and
/// releases.
TUTTI_DEVICE uint32_t add_acquire_release(uint32_t* to, uint32_t value) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(to), "r"(value)
               : "memory");
  return before;
}
TUTTI_DEVICE void add_relaxed(uint32_t* to, uint32_t value) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
// Words in the block's shared memory:

TUTTI_DEVICE uint32_t load_acquire_shared(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.cta.shared.u32 %0, [%1];"
               : "=r"(value)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(from)))
               : "memory");
  return value;
}
TUTTI_DEVICE void store_release_shared(uint32_t* to, uint32_t value) {
  asm volatile(
      "st.release.cta.shared.u32 [%0], %1;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "r"(value)
      : "memory");
}
TUTTI_DEVICE void raise_shared(uint64_t* to, uint64_t value) {
  atomicMax(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}

TUTTI_DEVICE Packet load_packet(const void* from) {
  Packet packet;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(packet.words[0]), "=r"(packet.words[1]), "=r"(packet.words[2]), "=r"(packet.words[3])
               : "l"(from)
               : "memory");
  return packet;
}
TUTTI_DEVICE void store_packet(void* to, Packet packet) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(packet.words[0]),
               "r"(packet.words[1]), "r"(packet.words[2]), "r"(packet.words[3])
               : "memory");
}

TUTTI_DEVICE Mail load_mail(const void* from) {
  Mail mail;
  asm volatile(
      "{ .reg .b128 whole; ld.relaxed.sys.global.b128 whole, [%4]; mov.b128 {%0, %1, %2, %3}, whole; }"
      : "=r"(mail.data[0]), "=r"(mail.data[1]), "=r"(mail.data[2]), "=r"(mail.flag)
      : "l"(from)
      : "memory");
  return mail;
}
TUTTI_DEVICE void store_mail(void* to, Mail mail) {
  asm volatile(
      "{ .reg .b128 whole; mov.b128 whole, {%1, %2, %3, %4}; st.relaxed.sys.global.b128 [%0], whole; }" ::"l"(
          to),
      "r"(mail.data[0]), "r"(mail.data[1]), "r"(mail.data[2]), "r"(mail.flag)
      : "memory");
}

}  // namespace tutti::cuda::device

#else

/// The simulator implements these. The fiber of a CUDA thread calls them.
namespace simulator {
uint32_t thread_index();
uint32_t thread_count();
uint32_t block_index();
void barrier(const char* name);
/// Barrier `number` of `threads` threads: `waits` or only arrives.
void meet(uint32_t number, uint32_t threads, const char* name, bool waits);
/// The thread stores or loads a word in shared memory by which movers tell scouts that they have moved.
void word_stored();
void word_loaded();
void poll_failed(const char* what, const void* address, bool bounded);
void wait_ended();
/// The thread has made a release fence; a store that needs one comes; a store that ends what the fence
/// covers.
void fence_made();
void fence_needed();
void fence_used_up();
void alias_fence_made();
/// Other fibers may run here.
void preempt();
/// One atomic access of 16 aligned bytes, without order.
__extension__ using Whole = unsigned __int128;
Whole load_whole(const void* from);
void store_whole(void* to, Whole value);
/// The block's shared variable for this key: zeroed, 16-byte aligned.
void* shared_variable(const void* key, size_t bytes);
}  // namespace simulator

#define TUTTI_DEVICE [[maybe_unused]] static inline
#define TUTTI_DEVICE_CALL [[maybe_unused, gnu::noinline]] static
#define TUTTI_MEMBER static
#define TUTTI_UNROLL
#define TUTTI_NO_UNROLL
#define TUTTI_KERNEL(blocks) extern "C" void
#define TUTTI_ARGUMENT const
#define TUTTI_SHARED(type, name)    \
  static const char name##_key = 0; \
  type& name = *static_cast<type*>(simulator::shared_variable(&name##_key, sizeof(type)))

namespace tutti::cuda::device {

TUTTI_DEVICE uint32_t thread_index() {
  return simulator::thread_index();
}
TUTTI_DEVICE uint32_t thread_count() {
  return simulator::thread_count();
}
TUTTI_DEVICE uint32_t block_index() {
  return simulator::block_index();
}
TUTTI_DEVICE void barrier(const char* name) {
  simulator::barrier(name);
}
template <uint32_t kNumber>
TUTTI_DEVICE void meet(uint32_t threads, const char* name) {
  simulator::meet(kNumber, threads, name, true);
}
template <uint32_t kNumber>
TUTTI_DEVICE void arrive(uint32_t threads, const char* name) {
  simulator::meet(kNumber, threads, name, false);
}
TUTTI_DEVICE void poll_failed(const char* what, const void* address, bool bounded) {
  simulator::poll_failed(what, address, bounded);
}
TUTTI_DEVICE void wait_ended() {
  simulator::wait_ended();
}

template <class Word>
TUTTI_DEVICE Word load_acquire(const Word* from) {
  return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
TUTTI_DEVICE void store_release(uint64_t* to, uint64_t value) {
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
  simulator::preempt();
}
TUTTI_DEVICE void store_release(uint32_t* to, uint32_t value) {
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
  simulator::preempt();
}
template <class Word>
TUTTI_DEVICE Word load_relaxed(const Word* from) {
  return __atomic_load_n(from, __ATOMIC_RELAXED);
}
TUTTI_DEVICE void store_relaxed(uint64_t* to, uint64_t value) {
  simulator::fence_used_up();
  __atomic_store_n(to, value, __ATOMIC_RELAXED);
}
TUTTI_DEVICE void store_relaxed(uint32_t* to, uint32_t value) {
  simulator::fence_used_up();
  __atomic_store_n(to, value, __ATOMIC_RELAXED);
}
TUTTI_DEVICE void release_fence() {
  simulator::fence_made();
}
TUTTI_DEVICE void alias_fence() {
  simulator::alias_fence_made();
}
template <class Word>
TUTTI_DEVICE void store_fenced(Word* to, Word value) {
  simulator::fence_needed();
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
  simulator::preempt();
}
TUTTI_DEVICE uint32_t add_acquire_release(uint32_t* to, uint32_t value) {
  return __atomic_fetch_add(to, value, __ATOMIC_ACQ_REL);
}
TUTTI_DEVICE void add_relaxed(uint32_t* to, uint32_t value) {
  __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
TUTTI_DEVICE uint32_t load_acquire_shared(const uint32_t* from) {
  simulator::word_loaded();
  return load_acquire(from);
}
TUTTI_DEVICE void store_release_shared(uint32_t* to, uint32_t value) {
  simulator::word_stored();
  store_release(to, value);
}
TUTTI_DEVICE void raise_shared(uint64_t* to, uint64_t value) {
  uint64_t present = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (present < value &&
         !__atomic_compare_exchange_n(to, &present, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

TUTTI_DEVICE Packet load_packet(const void* from) {
  return *static_cast<const Packet*>(from);
}
TUTTI_DEVICE void store_packet(void* to, Packet packet) {
  *static_cast<Packet*>(to) = packet;
  simulator::preempt();
}

TUTTI_DEVICE Mail load_mail(const void* from) {
  const Mail mail = std::bit_cast<Mail>(simulator::load_whole(from));
  simulator::preempt();
  return mail;
}
TUTTI_DEVICE void store_mail(void* to, Mail mail) {
  simulator::store_whole(to, std::bit_cast<simulator::Whole>(mail));
  simulator::preempt();
}

}  // namespace tutti::cuda::device

#endif
