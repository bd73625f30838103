// The hot function of the host engine: reduces K sources into M sinks, with one read per source and one write
// per sink. Operations find their kernel once, at binding, and call it per slice: table look-up and SIMD
// dispatch stay off the short path.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/types.h"

namespace tutti::reduce {

/// The limits of one call.
inline constexpr int kMaxSources = 8;
inline constexpr int kMaxSinks = 8;

/// The order in which K operands are combined. For both orders:
/// - Integers wrap around.
/// - Floats round to nearest even and keep subnormals, unless the thread's floating-point mode flushes them.
///   Multiplication and addition are not contracted.
/// - The average of floats is one correctly rounded division, in float32 (float64: in float64).
/// - min and max of floats order -0 below +0. If an operand is NaN, they return the canonical quiet NaN. So
///   the order of operands does not matter.
/// - bool takes any byte but 0 as true and yields 0 or 1.
/// - float8_e4m3 has no infinity: values that round above 448 become NaN. A NaN of float8 is always
///   canonical.
enum class Association : uint8_t {
  /// ((s0 + s1) + s2) + ...; 16- and 8-bit floats accumulate in float32 and round once at the end, after the
  /// product with `scale` and the division of an average. Payload and sign of a NaN are unspecified, except
  /// for min and max. K == 1 without scale and division copies the bytes (except bool).
  kLeft,
  /// The canonical tree: [0, K) splits at the largest power of two below K; lower indices are the left
  /// operand. Each node, scaled operands and the average included, rounds to the element type and replaces
  /// NaN by the canonical quiet NaN. K == 1: a copy with canonical NaN.
  kTree,
};

/// One call. Sources and sinks may have any alignment. A sink may equal a source (in place); the caller must
/// prevent any other overlap.
struct Job {
  const void* sources[kMaxSources];
  void* sinks[kMaxSinks];
  uint32_t source_count = 0;    ///< 1..kMaxSources
  uint32_t sink_count = 0;      ///< 1..kMaxSinks
  size_t count = 0;             ///< elements, 0 allowed
  uint32_t scaled_sources = 0;  ///< kPremulSum: bit k: `scale` multiplies source k on reading
  bool finish = false;          ///< kAvg: divide the result by `divisor` before storing
  /// Bit m: non-temporal stores to sink m, for large results. Other sinks stay in the cache, such as a slot
  /// that a peer is about to read.
  uint32_t streaming_sinks = 0;
  /// Bit m: the copy kernel may write sink m by the processor's string move. It is fast where
  /// has_string_moves(). Other kernels write as usual.
  uint32_t string_sinks = 0;
  /// Bit m: the copy kernel may write sink m interleaved (core/stores.h). Other kernels write as usual. Of
  /// several bits for one sink string_sinks counts, then this one.
  uint32_t interleaved_sinks = 0;
  /// Bit m: the copy kernel does not ask for the lines of sink m ahead of its stores.
  uint32_t unclaimed_sinks = 0;
  uint64_t divisor = 1;  ///< kAvg: the rank count; integers truncate toward zero
  /// kPremulSum: the scalar's bits in the element type, low bytes first.
  uint64_t scale_bits = 0;
};

using Kernel = void (*)(const Job& job);

/// The kernel for (type, op, association) on this CPU; null only if is_defined(op, type) is false. Pure and
/// thread-safe.
Kernel find_kernel(DataType type, ReduceOp op, Association association);

/// The kernel of collectives without reduction: copies bytes to one or more sinks.
Kernel find_copy_kernel();

/// Whether the string move of this CPU moves whole lines (x86: `rep movsb`, "enhanced").
bool has_string_moves();

/// The SIMD target in use: "AVX3" (AVX-512), "AVX2", "SSE4", "NEON", or "SCALAR" for the baseline.
const char* target_name();

}  // namespace tutti::reduce
