// Copies bytes from one source to one or more sinks, once per SIMD target.
//
// foreach_target.h includes this file once per target, hence the unusual guard.
#if defined(TUTTI_REDUCE_COPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_COPY_INL_H_
#undef TUTTI_REDUCE_COPY_INL_H_
#else
#define TUTTI_REDUCE_COPY_INL_H_
#endif

#include <bit>
#include <cstring>

#include "core/cache_hints.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "reduce/scalar.h"
#include "reduce/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::reduce::HWY_NAMESPACE {

/// The sinks with non-temporal stores, and the bytes before their alignment.
struct StreamPlan {
  uint32_t sinks = 0;
  size_t head_bytes = 0;

  /// The first streaming sink decides the head. Sinks aligned differently get ordinary stores; so do all if
  /// no whole number of elements aligns it.
  HWY_INLINE StreamPlan(const Job& job, size_t bytes, size_t element_bytes, size_t vector_bytes) {
    const uint32_t wanted = job.streaming_sinks & ((1u << job.sink_count) - 1);
    if (wanted == 0) return;
    const auto first = reinterpret_cast<uintptr_t>(job.sinks[std::countr_zero(wanted)]);
    const size_t head = (0 - first) & (vector_bytes - 1);
    if (head % element_bytes != 0 || bytes < head + vector_bytes) return;
    head_bytes = head;
    for (uint32_t m = 0; m < job.sink_count; ++m) {
      const size_t skew = reinterpret_cast<uintptr_t>(job.sinks[m]) - first;
      if ((wanted >> m & 1) != 0 && skew % vector_bytes == 0) sinks |= 1u << m;
    }
  }
};

/// One fixed-size move from each end of [0, bytes), for kBytes <= bytes <= 2 * kBytes. Loads before stores: a
/// sink may be the source.
template <size_t kBytes>
HWY_INLINE void move_both_ends(const uint8_t* source, uint8_t* sink, size_t bytes) {
  struct Chunk {
    uint8_t bytes[kBytes];
  };
  Chunk head, tail;
  std::memcpy(&head, source, kBytes);
  std::memcpy(&tail, source + bytes - kBytes, kBytes);
  std::memcpy(sink, &head, kBytes);
  std::memcpy(sink + bytes - kBytes, &tail, kBytes);
}

inline constexpr size_t kSmallMoveBytes = 64;

/// Moves up to kMaxBytes without a call.
template <size_t kMaxBytes>
HWY_INLINE void move_small(const uint8_t* source, uint8_t* sink, size_t bytes) {
  static_assert(kMaxBytes <= kSmallMoveBytes);
  if constexpr (kMaxBytes >= 32) {
    if (bytes >= 32) return move_both_ends<32>(source, sink, bytes);
  }
  if constexpr (kMaxBytes >= 16) {
    if (bytes >= 16) return move_both_ends<16>(source, sink, bytes);
  }
  if (bytes >= 8) return move_both_ends<8>(source, sink, bytes);
  if (bytes >= 4) return move_both_ends<4>(source, sink, bytes);
  if (bytes >= 2) return move_both_ends<2>(source, sink, bytes);
  if (bytes == 1) *sink = *source;
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

inline void copy_bytes(const Job& job, size_t bytes) {
  for (uint32_t m = 0; m < job.sink_count; ++m) {
    if (job.sinks[m] != job.sources[0]) std::memcpy(job.sinks[m], job.sources[0], bytes);
  }
}

#else

/// Moves kBytes. Streaming, the sink is aligned to a vector.
template <size_t kBytes, bool kStreams>
HWY_INLINE void move_block(const uint8_t* source, uint8_t* sink) {
  constexpr int kUnits = HWY_MIN(4, kBytes / kVectorBytes);
  static_assert(kUnits > 0 && kBytes % (kUnits * kVectorBytes) == 0);
  for (size_t at = 0; at < kBytes; at += kUnits * kVectorBytes) {
    Group<ByteVector, kUnits> block;
    block.a = load(source + at);
    if constexpr (kUnits > 1) block.b = load(source + at + kVectorBytes);
    if constexpr (kUnits > 2) {
      block.c = load(source + at + 2 * kVectorBytes);
      block.d = load(source + at + 3 * kVectorBytes);
    }
    store_group<kStreams>(block, sink + at);
  }
}

/// Copies with non-temporal stores, from a whole block on: 64 bytes behind one, messages of 16 MiB took 1.05
/// times as long.
inline void stream_to_one(const uint8_t* source, uint8_t* sink, size_t bytes) {
  constexpr size_t kBlockBytes = 4 * kVectorBytes;
  size_t offset = (0 - reinterpret_cast<uintptr_t>(sink)) & (kBlockBytes - 1);
  if (bytes < offset + kVectorBytes) offset = bytes;
  std::memcpy(sink, source, offset);
  for (; offset + kBlockBytes <= bytes; offset += kBlockBytes)
    move_block<kBlockBytes, true>(source + offset, sink + offset);
  for (; offset + kVectorBytes <= bytes; offset += kVectorBytes)
    move_block<kVectorBytes, true>(source + offset, sink + offset);
  std::memcpy(sink + offset, source + offset, bytes - offset);
  hwy::FlushStream();
}

/// Copies with non-temporal stores to the streaming sinks, and with ordinary stores to the others.
inline HWY_NOINLINE void copy_streaming(const Job& job, size_t bytes) {
  const uint8_t* source = source_bytes(job, 0);
  const StreamPlan plan(job, bytes, 1, kVectorBytes);
  size_t offset = plan.head_bytes;
  for (uint32_t m = 0; m < job.sink_count; ++m) std::memmove(job.sinks[m], source, offset);
  for (; offset + kVectorBytes <= bytes; offset += kVectorBytes) {
    const auto vector = hn::LoadU(Tag<uint8_t>(), source + offset);
    for (uint32_t m = 0; m < job.sink_count; ++m) {
      if (plan.sinks >> m & 1) {
        stream(vector, sink_bytes(job, m) + offset);
      } else {
        hn::StoreU(vector, Tag<uint8_t>(), sink_bytes(job, m) + offset);
      }
    }
  }
  for (uint32_t m = 0; m < job.sink_count; ++m) {
    std::memmove(sink_bytes(job, m) + offset, source + offset, bytes - offset);
  }
  if (plan.sinks != 0) hwy::FlushStream();
}

/// Copies to all sinks in one pass over the source.
inline HWY_NOINLINE void copy_to_many(const Job& job, size_t bytes) {
  constexpr size_t kUnits = 4;
  const uint8_t* source = source_bytes(job, 0);
  const Tag<uint8_t> d;
  size_t offset = 0;
  for (; offset + kUnits * kVectorBytes <= bytes; offset += kUnits * kVectorBytes) {
    ByteVector vectors[kUnits];
    for (size_t u = 0; u < kUnits; ++u) vectors[u] = hn::LoadU(d, source + offset + u * kVectorBytes);
    for (uint32_t m = 0; m < job.sink_count; ++m) {
      uint8_t* sink = sink_bytes(job, m) + offset;
      for (size_t u = 0; u < kUnits; ++u) hn::StoreU(vectors[u], d, sink + u * kVectorBytes);
    }
  }
  for (; offset + kVectorBytes <= bytes; offset += kVectorBytes) {
    const ByteVector vector = hn::LoadU(d, source + offset);
    for (uint32_t m = 0; m < job.sink_count; ++m) hn::StoreU(vector, d, sink_bytes(job, m) + offset);
  }
  for (uint32_t m = 0; m < job.sink_count; ++m) {
    move_small<kSmallMoveBytes>(source + offset, sink_bytes(job, m) + offset, bytes - offset);
  }
}

/// Slices of these sizes mostly go to lines that this core has not: of its next slot, or of a short result.
inline constexpr size_t kLeastClaimingBytes = 2048;
inline constexpr size_t kMostClaimingBytes = 16384;

/// Copies to one sink, whose lines it claims ahead: stores that miss overlap less, and the processor's own
/// prefetcher stops at every page. Distances of 64 and 1024 bytes gained less, claiming all lines first lost
/// (docs/measurements/carriage.md).
inline HWY_NOINLINE void copy_claiming(const uint8_t* source, uint8_t* sink, size_t bytes) {
  constexpr size_t kUnits = 4;
  constexpr size_t kStep = kUnits * kVectorBytes;
  constexpr size_t kAhead = 512;
  const Tag<uint8_t> d;
  claim_lines(sink, kAhead);
  size_t offset = 0;
  for (; offset + kStep <= bytes; offset += kStep) {
    if (offset + kAhead + kStep <= bytes) claim_lines(sink + offset + kAhead, kStep);
    ByteVector vectors[kUnits];
    for (size_t u = 0; u < kUnits; ++u) vectors[u] = hn::LoadU(d, source + offset + u * kVectorBytes);
    for (size_t u = 0; u < kUnits; ++u) hn::StoreU(vectors[u], d, sink + offset + u * kVectorBytes);
  }
  std::memcpy(sink + offset, source + offset, bytes - offset);
}

/// Outside these sizes, and without claiming lines, glibc's memcpy is the fastest copy to one sink above a
/// cache line; below, the call itself costs most.
inline void copy_to_one(const Job& job, uint32_t sink, size_t bytes) {
  const bool may_claim = (job.unclaimed_sinks >> sink & 1) == 0;
  if (may_claim && bytes >= kLeastClaimingBytes && bytes <= kMostClaimingBytes)
    return copy_claiming(source_bytes(job, 0), sink_bytes(job, sink), bytes);
  std::memcpy(sink_bytes(job, sink), source_bytes(job, 0), bytes);
}

/// The flag that tells a reader is a store of its own, which no store of a string move passes. Source: Intel
/// 64 and IA-32 Architectures Software Developer's Manual, volume 3A, "Out-of-Order Stores For String
/// Operations".
inline void move_string(const uint8_t* source, uint8_t* sink, size_t bytes) {
#if HWY_ARCH_X86
  asm volatile("rep movsb" : "+D"(sink), "+S"(source), "+c"(bytes) : : "memory");
#else
  std::memcpy(sink, source, bytes);
#endif
}

/// Copies a line of each quarter in turn: of several pages at once a core has more lines under way
/// (docs/measurements/carriage.md).
inline HWY_NOINLINE void copy_quarters(const uint8_t* source, uint8_t* sink, size_t bytes) {
  constexpr size_t kLine = 64;
  const size_t quarter = bytes / (4 * kLine) * kLine;
  for (size_t line = 0; line < quarter; line += kLine) {
    for (size_t i = 0; i < 4; ++i)
      move_block<kLine, false>(source + i * quarter + line, sink + i * quarter + line);
  }
  std::memcpy(sink + 4 * quarter, source + 4 * quarter, bytes - 4 * quarter);
}

/// Copies to one sink after the other.
inline HWY_NOINLINE void copy_one_by_one(const Job& job, size_t bytes) {
  for (uint32_t m = 0; m < job.sink_count; ++m) {
    if (job.sinks[m] == job.sources[0]) continue;
    if ((job.string_sinks >> m & 1) != 0) {
      move_string(source_bytes(job, 0), sink_bytes(job, m), bytes);
    } else if ((job.interleaved_sinks >> m & 1) != 0) {
      copy_quarters(source_bytes(job, 0), sink_bytes(job, m), bytes);
    } else if ((job.streaming_sinks >> m & 1) != 0) {
      stream_to_one(source_bytes(job, 0), sink_bytes(job, m), bytes);
    } else {
      copy_to_one(job, m, bytes);
    }
  }
}

/// Out of line, to keep short copies cheap.
inline HWY_NOINLINE void copy_long(const Job& job, size_t bytes) {
  const uint32_t one_by_one = job.string_sinks | job.interleaved_sinks;  // these copies have one sink
  if ((one_by_one | job.streaming_sinks) == 0) {
    if (job.sink_count > 1) return copy_to_many(job, bytes);
    if (job.sinks[0] != job.sources[0]) copy_to_one(job, 0, bytes);
    return;
  }
  if (job.sink_count == 1 || one_by_one != 0) return copy_one_by_one(job, bytes);
  copy_streaming(job, bytes);
}

inline void copy_bytes(const Job& job, size_t bytes) {
  if (bytes > kSmallMoveBytes) return copy_long(job, bytes);
  HWY_UNROLL(1)
  for (uint32_t m = 0; m < job.sink_count; ++m)
    move_small<kSmallMoveBytes>(source_bytes(job, 0), sink_bytes(job, m), bytes);
}

#endif

}  // namespace tutti::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
