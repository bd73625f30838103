// reduce_copy: the one hot function of the host engine. It reduces K sources and writes the result to
// M sinks, reading each source once and writing each sink once.
//
// A kernel is found once per operation (set-up) by `find_kernel` and then called per slice, so the
// table look-up and the SIMD dispatch are off the short path.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/types.h"

namespace tutti::reduce {

/// Most sources and most sinks of one call.
inline constexpr int kMaxSources = 8;
inline constexpr int kMaxSinks = 8;

/// How K operands are associated. Both: integers wrap around; floats round to nearest even and keep
/// subnormals (unless the thread's floating-point mode flushes them); multiplication and addition are not
/// contracted; the average of floats is one correctly rounded division in float32 (float64: float64); min and
/// max of floats order -0 below +0 and give the canonical quiet NaN if an operand is NaN, so that the order
/// of operands is irrelevant. bool takes any byte but 0 as true and gives 0 or 1. float8_e4m3 has no
/// infinity: what rounds above 448 becomes NaN. NaN of float8 is always written canonical.
enum class Association : uint8_t {
  /// ((s0 + s1) + s2) + ...; 16- and 8-bit floats accumulate in float32 and round once at the end, after the
  /// product with `scale` and the division of an average. The payload and sign of a NaN are unspecified,
  /// min and max excepted. With K == 1 and neither scale nor division a copy of the bytes (bool excepted).
  kLeft,
  /// The canonical tree: [0, K) splits at the largest power of two below K, left operand = lower
  /// index, at every node the value is rounded to the element type and NaN replaced by the canonical
  /// quiet NaN; scaled operands and the average are nodes too. With K == 1 a copy, NaN canonicalised.
  kTree,
};

/// One call. Sources and sinks may have any alignment. A sink may be the same pointer as a source
/// (in place); other overlap is the caller's bug.
struct Job {
  const void* sources[kMaxSources];
  void* sinks[kMaxSinks];
  uint32_t source_count = 0;    ///< 1..kMaxSources
  uint32_t sink_count = 0;      ///< 1..kMaxSinks
  size_t count = 0;             ///< elements, 0 allowed
  uint32_t scaled_sources = 0;  ///< kPremulSum: bit k set = source k is multiplied by `scale` as it is read
  bool finish = false;          ///< kAvg: the result is divided by `divisor` before it is stored
  /// Bit m set = sink m is written with non-temporal stores (large results); the other sinks, such as
  /// a slot that a peer is about to read, stay in the cache.
  uint32_t streaming_sinks = 0;
  uint64_t divisor = 1;  ///< kAvg: rank count. Integers truncate toward zero
  /// kPremulSum: the scalar, in the element type's own representation (f16/bf16/fp8: the bits), low
  /// bytes first.
  uint64_t scale_bits = 0;
};

using Kernel = void (*)(const Job& job);

/// The kernel for (type, op, association), chosen for this CPU; never null for is_defined(op, type).
/// Null for an undefined pair. Pure: same answer on every call; thread-safe.
Kernel find_kernel(DataType type, ReduceOp op, Association association);

/// Copies bytes to one or more sinks: the kernel of collectives that do not reduce (elements are bytes).
Kernel find_copy_kernel();

/// Name of the SIMD target in use: "AVX3" (AVX-512), "AVX2", "SSE4", "NEON", or "SCALAR" for the baseline.
const char* target_name();

}  // namespace tutti::reduce
