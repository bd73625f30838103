#include "tests/ptx/machine.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/operators.h"
#include "engine/cuda/device.h"
#include "engine/cuda/multimem.h"
#include "reduce/formats.h"
#include "tests/simt/known_memory.h"

namespace ptx {
namespace {

const char kSharedKey = 0;

[[noreturn]] void wrong(const char* what, const char* why, uint64_t address, uint64_t bytes) {
  std::fprintf(stderr, "PTX: %s of %lu bytes at 0x%lx: %s (block %u, thread %u)\n", what,
               static_cast<unsigned long>(bytes), static_cast<unsigned long>(address), why, block_index(),
               thread_index());
  std::abort();
}

SIMT_UNSEEN void check(const Block& block, const char* what, uint64_t address, uint64_t bytes) {
  if (address % bytes != 0) wrong(what, "not aligned to its size", address, bytes);
  const uint64_t at = address - reinterpret_cast<uint64_t>(block.memory);
  if (at < block.shared.bytes && bytes <= block.shared.bytes - at) return;
  if (!tutti::simt::is_known_memory(address, bytes)) wrong(what, "no memory of the device", address, bytes);
}

unsigned char* shared_at(const Block& block, const char* what, uint64_t address, uint64_t bytes) {
  if (address % bytes != 0) wrong(what, "not aligned to its size", address, bytes);
  const uint64_t at = address - block.shared.start;
  if (at >= block.shared.bytes || bytes > block.shared.bytes - at)
    wrong(what, "outside of shared memory", address, bytes);
  return block.memory + at;
}

template <class Access>
Access* global_at(const Block& block, const char* what, uint64_t address) {
  check(block, what, address, sizeof(Access));
  return reinterpret_cast<Access*>(address);
}

}  // namespace

Block this_block(SharedMemory shared) {
  return {shared, static_cast<unsigned char*>(simulator::shared_variable(&kSharedKey, shared.bytes))};
}

uint32_t thread_index() {
  return simulator::thread_index();
}
uint32_t thread_count() {
  return simulator::thread_count();
}
uint32_t block_index() {
  return simulator::block_index();
}
void barrier() {
  simulator::barrier("bar.sync");
}
void barrier(uint32_t number, uint32_t threads, bool waits) {
  if (number == 0 || number > 15 || threads == 0) trap();
  simulator::meet(number, threads, waits ? "bar.sync" : "bar.arrive", waits);
}
void fence() {
  __atomic_thread_fence(__ATOMIC_ACQ_REL);
}
void alias_fence() {
  simulator::alias_fence_made();
}
void poll_failed(uint64_t address, bool bounded) {
  simulator::poll_failed("a change", reinterpret_cast<const void*>(address), bounded);
}
void wait_ended() {
  simulator::wait_ended();
}
void trap() {
  std::fprintf(stderr, "PTX: trap (block %u, thread %u)\n", block_index(), thread_index());
  std::abort();
}

// ---- memory -------------------------------------------------------------------------------------

template <class Word, int kCount>
Words<Word, kCount> load_generic(const Block& block, uint64_t address) {
  return *global_at<Words<Word, kCount>>(block, "a load", address);
}
template <class Word, int kCount>
Words<Word, kCount> load_shared(const Block& block, uint64_t address) {
  return *reinterpret_cast<Words<Word, kCount>*>(shared_at(block, "a load", address, sizeof(Word) * kCount));
}
template <class Word, int kCount>
Words<Word, kCount> load_param(const Block& /*block*/, uint64_t address) {
  return *reinterpret_cast<Words<Word, kCount>*>(address);
}
template <class Word, int kCount>
Words<Word, kCount> load_acquire(const Block& block, uint64_t address) {
  static_assert(kCount == 1);
  return {{__atomic_load_n(global_at<Word>(block, "an acquiring load", address), __ATOMIC_ACQUIRE)}};
}
/// A vector is an access for each word, in any order.
template <class Word, int kCount>
Words<Word, kCount> load_relaxed(const Block& block, uint64_t address) {
  const auto* from = global_at<Words<Word, kCount>>(block, "a relaxed load", address);
  Words<Word, kCount> value;
  for (int i = 0; i < kCount; ++i) {
    value.words[i] = __atomic_load_n(&from->words[i], __ATOMIC_RELAXED);
    if (i + 1 < kCount) simulator::preempt();
  }
  return value;
}

template <class Word, int kCount>
void store_generic(const Block& block, uint64_t address, Words<Word, kCount> value) {
  *global_at<Words<Word, kCount>>(block, "a store", address) = value;
  if (sizeof(value) == sizeof(tutti::cuda::Packet)) simulator::preempt();
}
template <class Word, int kCount>
void store_shared(const Block& block, uint64_t address, Words<Word, kCount> value) {
  *reinterpret_cast<Words<Word, kCount>*>(shared_at(block, "a store", address, sizeof(value))) = value;
}
template <class Word, int kCount>
void store_param(const Block& /*block*/, uint64_t address, Words<Word, kCount> value) {
  *reinterpret_cast<Words<Word, kCount>*>(address) = value;
}
template <class Word, int kCount>
void store_release(const Block& block, uint64_t address, Words<Word, kCount> value) {
  static_assert(kCount == 1);
  __atomic_store_n(global_at<Word>(block, "a releasing store", address), value.words[0], __ATOMIC_RELEASE);
  simulator::preempt();
}
template <class Word, int kCount>
void store_relaxed(const Block& block, uint64_t address, Words<Word, kCount> value) {
  auto* to = global_at<Words<Word, kCount>>(block, "a relaxed store", address);
  for (int i = 0; i < kCount; ++i) {
    __atomic_store_n(&to->words[i], value.words[i], __ATOMIC_RELAXED);
    if (kCount > 1) simulator::preempt();
  }
}

/// What tutti's kernels tell of by these: simt/scheduler.h.
template <class Word, int kCount>
Words<Word, kCount> load_acquire_shared(const Block& block, uint64_t address) {
  simulator::word_loaded();
  const auto* from = reinterpret_cast<Word*>(shared_at(block, "an acquiring load", address, sizeof(Word)));
  return {{__atomic_load_n(from, __ATOMIC_ACQUIRE)}};
}
template <class Word, int kCount>
void store_release_shared(const Block& block, uint64_t address, Words<Word, kCount> value) {
  simulator::word_stored();
  auto* to = reinterpret_cast<Word*>(shared_at(block, "a releasing store", address, sizeof(Word)));
  __atomic_store_n(to, value.words[0], __ATOMIC_RELEASE);
}
template Words<uint32_t, 1> load_acquire_shared(const Block&, uint64_t);
template void store_release_shared(const Block&, uint64_t, Words<uint32_t, 1> value);

uint64_t shared_max(const Block& block, uint64_t address, uint64_t value) {
  auto* to = reinterpret_cast<uint64_t*>(shared_at(block, "atom.max", address, sizeof(uint64_t)));
  uint64_t present = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (present < value &&
         !__atomic_compare_exchange_n(to, &present, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return present;
}
uint32_t add_acquire_release(const Block& block, uint64_t address, uint32_t value) {
  return __atomic_fetch_add(global_at<uint32_t>(block, "atom.add", address), value, __ATOMIC_ACQ_REL);
}
void add_relaxed(const Block& block, uint64_t address, uint32_t value) {
  __atomic_fetch_add(global_at<uint32_t>(block, "red.add", address), value, __ATOMIC_RELAXED);
}

#define PTX_ACCESS(Word, count)                                                  \
  template Words<Word, count> load_generic(const Block&, uint64_t);              \
  template Words<Word, count> load_shared(const Block&, uint64_t);               \
  template Words<Word, count> load_param(const Block&, uint64_t);                \
  template void store_generic(const Block&, uint64_t, Words<Word, count> value); \
  template void store_shared(const Block&, uint64_t, Words<Word, count> value);  \
  template void store_param(const Block&, uint64_t, Words<Word, count> value);
#define PTX_VECTORS(Word) PTX_ACCESS(Word, 1) PTX_ACCESS(Word, 2) PTX_ACCESS(Word, 4)
#define PTX_ATOMIC(Word)                                                     \
  template Words<Word, 1> load_acquire(const Block&, uint64_t);              \
  template Words<Word, 1> load_relaxed(const Block&, uint64_t);              \
  template Words<Word, 2> load_relaxed(const Block&, uint64_t);              \
  template void store_release(const Block&, uint64_t, Words<Word, 1> value); \
  template void store_relaxed(const Block&, uint64_t, Words<Word, 1> value); \
  template void store_relaxed(const Block&, uint64_t, Words<Word, 2> value);
PTX_VECTORS(uint8_t)
PTX_VECTORS(uint16_t)
PTX_VECTORS(uint32_t)
PTX_VECTORS(uint64_t)
PTX_ATOMIC(uint32_t)
PTX_ATOMIC(uint64_t)

template <>
Words<Uint128, 1> load_relaxed(const Block& block, uint64_t address) {
  const Words<Uint128, 1> value{
      {simulator::load_whole(global_at<Uint128>(block, "a relaxed load", address))}};
  simulator::preempt();
  return value;
}
template <>
void store_relaxed(const Block& block, uint64_t address, Words<Uint128, 1> value) {
  simulator::store_whole(global_at<Uint128>(block, "a relaxed store", address), value.words[0]);
  simulator::preempt();
}

// ---- multicast memory: as the host's kernels see it (engine/cuda/multimem.h) ----------------------

namespace {

/// simulator::multicast_copy knows its bounds. The elements of one access, combined over all copies, from the
/// last to the first.
template <class Elem, class Op, class Word, int kCount>
Words<Word, kCount> reduce_copies(uint64_t address) {
  constexpr size_t kElements = sizeof(Words<Word, kCount>) / Elem::kBytes;
  if (address % sizeof(Words<Word, kCount>) != 0)
    wrong("multimem.ld_reduce", "not aligned to its size", address, sizeof(Word) * kCount);
  const auto* const common = reinterpret_cast<const void*>(address);
  simulator::alias_fence_needed();
  const uint32_t members = simulator::multicast_members(common);
  typename Elem::Value results[kElements] = {};
  Words<Word, kCount> packet;
  auto* const bytes = reinterpret_cast<unsigned char*>(&packet);
  for (uint32_t i = members; i-- > 0;) {
    packet = *static_cast<const Words<Word, kCount>*>(simulator::multicast_copy(common, i));
    for (size_t e = 0; e < kElements; ++e) {
      const typename Elem::Value value = Elem::load(bytes + e * Elem::kBytes);
      results[e] = i + 1 == members ? value : Op::combine(results[e], value);
    }
  }
  for (size_t e = 0; e < kElements; ++e) Elem::store(bytes + e * Elem::kBytes, results[e]);
  return packet;
}

using tutti::reduce::Element;
namespace operators = tutti::operators;

}  // namespace

void multicast_store(const Block& /*block*/, uint64_t address, Words<uint32_t, 4> value) {
  if (address % sizeof(value) != 0) wrong("multimem.st", "not aligned to its size", address, sizeof(value));
  const auto* const common = reinterpret_cast<const void*>(address);
  simulator::alias_fence_needed();
  for (uint32_t i = simulator::multicast_members(common); i-- > 0;) {
    *static_cast<Words<uint32_t, 4>*>(simulator::multicast_copy(common, i)) = value;
    simulator::preempt();
  }
}
Words<uint32_t, 4> reduce_add_v4_f32(const Block& /*block*/, uint64_t address) {
  return reduce_copies<Element<float>, operators::Sum, uint32_t, 4>(address);
}
Words<uint32_t, 4> reduce_add_acc_f32_v4_f16x2(const Block& /*block*/, uint64_t address) {
  return reduce_copies<Element<tutti::reduce::Float16>, operators::Sum, uint32_t, 4>(address);
}
Words<uint32_t, 4> reduce_add_acc_f32_v4_bf16x2(const Block& /*block*/, uint64_t address) {
  return reduce_copies<Element<tutti::reduce::Bfloat16>, operators::Sum, uint32_t, 4>(address);
}
Words<uint64_t, 1> reduce_add_f64(const Block& /*block*/, uint64_t address) {
  return reduce_copies<Element<double>, operators::Sum, uint64_t, 1>(address);
}
#define PTX_REDUCE(operation, type, Value, Op, Word)                                     \
  Words<Word, 1> reduce_##operation##_##type(const Block& /*block*/, uint64_t address) { \
    return reduce_copies<Element<Value>, operators::Op, Word, 1>(address);               \
  }
PTX_REDUCE(add, u32, uint32_t, Sum, uint32_t)
PTX_REDUCE(min, u32, uint32_t, Min, uint32_t)
PTX_REDUCE(max, u32, uint32_t, Max, uint32_t)
PTX_REDUCE(min, s32, int32_t, Min, uint32_t)
PTX_REDUCE(max, s32, int32_t, Max, uint32_t)
PTX_REDUCE(and, b32, uint32_t, And, uint32_t)
PTX_REDUCE(or, b32, uint32_t, Or, uint32_t)
PTX_REDUCE(xor, b32, uint32_t, Xor, uint32_t)
PTX_REDUCE(add, u64, uint64_t, Sum, uint64_t)
PTX_REDUCE(min, u64, uint64_t, Min, uint64_t)
PTX_REDUCE(max, u64, uint64_t, Max, uint64_t)
PTX_REDUCE(min, s64, int64_t, Min, uint64_t)
PTX_REDUCE(max, s64, int64_t, Max, uint64_t)
PTX_REDUCE(and, b64, uint64_t, And, uint64_t)
PTX_REDUCE(or, b64, uint64_t, Or, uint64_t)
PTX_REDUCE(xor, b64, uint64_t, Xor, uint64_t)

}  // namespace ptx
