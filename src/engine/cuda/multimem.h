// Multicast memory, as kernels see it: an address that stands for the same place in the memory of several
// devices. A store goes to all of them; a load returns what they hold, reduced on the way by the switch, in
// an order that nobody knows and, for 16-bit floats, with float32 as the accumulator.
//
// Like device.h this file has a part for nvcc and a part for the tests' simulator, and kernels that use it
// hold no #ifdef. The types and operators are those of plan/multicast.h; the instructions (PTX ISA 8.2) exist
// from sm_90 on, and nobody makes plans with them for older devices.
//
// Memory order. The accesses are relaxed, of system scope. What was stored through another address of the
// same memory, and seen by release and acquire, is ordered with them by an alias_fence() on the way: by the
// thread that acquired, before the barrier, or by the one that releases, after the barrier (PTX ISA,
// causality order through proxies).
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/operators.h"
#include "engine/cuda/device.h"
#include "reduce/formats.h"

namespace tutti::cuda::device {

template <class Op, class... Others>
inline constexpr bool kIsOneOf = (std::is_same_v<Op, Others> || ...);

/// Whether the hardware has the operator for the elements: plan/multicast.h, by the types that kernels
/// compute with.
template <class Elem, class Op>
inline constexpr bool kLoadReduces =
    Elem::kFloat ? std::is_same_v<Op, operators::Sum>&& Elem::kBytes > 1
                 : kIsOneOf<Op, operators::Sum, operators::Min, operators::Max, operators::And, operators::Or,
                            operators::Xor>&& Elem::kBytes >= 4;

/// 16 bytes of elements at a multicast address, reduced. Only where kLoadReduces.
template <class Elem, class Op>
struct LoadReduce;

}  // namespace tutti::cuda::device

#if defined(__CUDACC__)

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define TUTTI_MULTIMEM(...) __trap()
#else
#define TUTTI_MULTIMEM(...) asm volatile(__VA_ARGS__)
#endif

namespace tutti::cuda::device {

TUTTI_DEVICE void multimem_store_packet(void* to, Packet packet) {
  TUTTI_MULTIMEM("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to),
                 "f"(__uint_as_float(packet.words[0])), "f"(__uint_as_float(packet.words[1])),
                 "f"(__uint_as_float(packet.words[2])), "f"(__uint_as_float(packet.words[3]))
                 : "memory");
}

#define TUTTI_LOAD_REDUCE(Elem, Op, body)                   \
  template <>                                               \
  struct LoadReduce<reduce::Element<Elem>, operators::Op> { \
    TUTTI_MEMBER Packet load(const void* from) {            \
      Packet packet = {};                                   \
      body;                                                 \
      return packet;                                        \
    }                                                       \
  }

/// One instruction for the packet, four or two.
#define TUTTI_LOAD_VECTOR(text)                                                           \
  TUTTI_MULTIMEM("multimem.ld_reduce.relaxed.sys.global." text " {%0, %1, %2, %3}, [%4];" \
                 : "=r"(packet.words[0]), "=r"(packet.words[1]), "=r"(packet.words[2]),   \
                   "=r"(packet.words[3])                                                  \
                 : "l"(from)                                                              \
                 : "memory")
#define TUTTI_LOAD_WORDS(text)                                                \
  TUTTI_UNROLL                                                                \
  for (uint32_t i = 0; i < 4; ++i) {                                          \
    TUTTI_MULTIMEM("multimem.ld_reduce.relaxed.sys.global." text " %0, [%1];" \
                   : "=r"(packet.words[i])                                    \
                   : "l"(static_cast<const uint32_t*>(from) + i)              \
                   : "memory");                                               \
  }
#define TUTTI_LOAD_LONG_WORDS(text, constraint, Word)                         \
  TUTTI_UNROLL                                                                \
  for (uint32_t i = 0; i < 2; ++i) {                                          \
    Word word = 0;                                                            \
    TUTTI_MULTIMEM("multimem.ld_reduce.relaxed.sys.global." text " %0, [%1];" \
                   : constraint(word)                                         \
                   : "l"(static_cast<const Word*>(from) + i)                  \
                   : "memory");                                               \
    const auto bits = std::bit_cast<uint64_t>(word);                          \
    packet.words[2 * i] = static_cast<uint32_t>(bits);                        \
    packet.words[2 * i + 1] = static_cast<uint32_t>(bits >> 32);              \
  }

TUTTI_LOAD_REDUCE(float, Sum, TUTTI_LOAD_VECTOR("add.v4.f32"));
TUTTI_LOAD_REDUCE(reduce::Float16, Sum, TUTTI_LOAD_VECTOR("add.acc::f32.v4.f16x2"));
TUTTI_LOAD_REDUCE(reduce::Bfloat16, Sum, TUTTI_LOAD_VECTOR("add.acc::f32.v4.bf16x2"));
TUTTI_LOAD_REDUCE(double, Sum, TUTTI_LOAD_LONG_WORDS("add.f64", "=d", double));
TUTTI_LOAD_REDUCE(uint32_t, Sum, TUTTI_LOAD_WORDS("add.u32"));
TUTTI_LOAD_REDUCE(uint32_t, Min, TUTTI_LOAD_WORDS("min.u32"));
TUTTI_LOAD_REDUCE(uint32_t, Max, TUTTI_LOAD_WORDS("max.u32"));
TUTTI_LOAD_REDUCE(int32_t, Min, TUTTI_LOAD_WORDS("min.s32"));
TUTTI_LOAD_REDUCE(int32_t, Max, TUTTI_LOAD_WORDS("max.s32"));
TUTTI_LOAD_REDUCE(uint32_t, And, TUTTI_LOAD_WORDS("and.b32"));
TUTTI_LOAD_REDUCE(uint32_t, Or, TUTTI_LOAD_WORDS("or.b32"));
TUTTI_LOAD_REDUCE(uint32_t, Xor, TUTTI_LOAD_WORDS("xor.b32"));
TUTTI_LOAD_REDUCE(uint64_t, Sum, TUTTI_LOAD_LONG_WORDS("add.u64", "=l", uint64_t));
TUTTI_LOAD_REDUCE(uint64_t, Min, TUTTI_LOAD_LONG_WORDS("min.u64", "=l", uint64_t));
TUTTI_LOAD_REDUCE(uint64_t, Max, TUTTI_LOAD_LONG_WORDS("max.u64", "=l", uint64_t));
TUTTI_LOAD_REDUCE(int64_t, Min, TUTTI_LOAD_LONG_WORDS("min.s64", "=l", uint64_t));
TUTTI_LOAD_REDUCE(int64_t, Max, TUTTI_LOAD_LONG_WORDS("max.s64", "=l", uint64_t));
TUTTI_LOAD_REDUCE(uint64_t, And, TUTTI_LOAD_LONG_WORDS("and.b64", "=l", uint64_t));
TUTTI_LOAD_REDUCE(uint64_t, Or, TUTTI_LOAD_LONG_WORDS("or.b64", "=l", uint64_t));
TUTTI_LOAD_REDUCE(uint64_t, Xor, TUTTI_LOAD_LONG_WORDS("xor.b64", "=l", uint64_t));

#undef TUTTI_LOAD_REDUCE
#undef TUTTI_LOAD_VECTOR
#undef TUTTI_LOAD_WORDS
#undef TUTTI_LOAD_LONG_WORDS
#undef TUTTI_MULTIMEM

}  // namespace tutti::cuda::device

#else

namespace simulator {
/// How many memories the multicast address stands for.
uint32_t multicast_members(const void* address);
/// The place in the memory of one of them.
void* multicast_copy(const void* address, uint32_t member);
/// An access by a multicast address comes.
void alias_fence_needed();
}  // namespace simulator

namespace tutti::cuda::device {

TUTTI_DEVICE void multimem_store_packet(void* to, Packet packet) {
  simulator::alias_fence_needed();
  for (uint32_t i = simulator::multicast_members(to); i-- > 0;)
    store_packet(simulator::multicast_copy(to, i), packet);
}

template <class Elem, class Op>
struct LoadReduce {
  TUTTI_MEMBER Packet load(const void* from) {
    simulator::alias_fence_needed();
    constexpr uint32_t kElements = sizeof(Packet) / Elem::kBytes;
    const uint32_t members = simulator::multicast_members(from);
    typename Elem::Value results[kElements];
    Packet packet;
    auto* const bytes = reinterpret_cast<unsigned char*>(&packet);
    // From the last to the first: no kernel may rely on the order of the ranks.
    for (uint32_t i = members; i-- > 0;) {
      packet = load_packet(simulator::multicast_copy(from, i));
      for (uint32_t e = 0; e < kElements; ++e) {
        const typename Elem::Value value = Elem::load(bytes + e * Elem::kBytes);
        results[e] = i + 1 == members ? value : Op::combine(results[e], value);
      }
    }
    for (uint32_t e = 0; e < kElements; ++e) Elem::store(bytes + e * Elem::kBytes, results[e]);
    return packet;
  }
};

}  // namespace tutti::cuda::device

#endif
