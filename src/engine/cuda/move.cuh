// Moving a slice: the threads of a block read K sources once, reduce them and write the result to M sinks.
// The meaning is that of reduce/reduce.h, to the bit, and the definitions are the ones of reduce/formats.h
// and core/operators.h; here is only how the work is spread over threads and memory accesses.
//
// Where all ends are aligned alike the bulk goes in 16-byte packets, each thread having several on their way
// at once; else element by element. One body is one (element type, operator, association); signed integers
// share the unsigned body where the bits are the same, and sums, averages and pre-multiplied sums are one
// body with two flags.
#pragma once

#include <type_traits>

#include "core/operators.h"
#include "core/types.h"
#include "engine/cuda/device.h"
#include "engine/cuda/multimem.h"
#include "engine/cuda/slice.h"
#include "reduce/formats.h"
#include "reduce/reduce.h"

namespace tutti::cuda {

/// Bits in which the addresses of the slice's ends differ within a packet; 0: all are aligned alike.
TUTTI_DEVICE_CALL uint64_t misalignment(const Slice& slice) {
  const auto first = reinterpret_cast<uint64_t>(slice.sources[0]);
  uint64_t bits = 0;
  for (uint32_t k = 1; k < slice.source_count; ++k)
    bits |= reinterpret_cast<uint64_t>(slice.sources[k]) ^ first;
  for (uint32_t m = 0; m < slice.sink_count; ++m) {
    if (slice.sinks[m] != nullptr) bits |= reinterpret_cast<uint64_t>(slice.sinks[m]) ^ first;
  }
  return bits & (sizeof(Packet) - 1);
}

/// Bytes before the first aligned one, where all ends are aligned alike; at most those of the slice.
TUTTI_DEVICE uint64_t head_bytes(const Slice& slice, uint64_t alignment) {
  const uint64_t head = (0 - reinterpret_cast<uint64_t>(slice.sources[0])) & (alignment - 1);
  return head < slice.bytes ? head : slice.bytes;
}

template <class Word>
TUTTI_DEVICE Word load_word(const unsigned char* from) {
  if constexpr (std::is_same_v<Word, Packet>) {
    return device::load_packet(from);
  } else {
    return *reinterpret_cast<const Word*>(from);
  }
}
template <class Word>
TUTTI_DEVICE void store_word(unsigned char* to, Word word) {
  if constexpr (std::is_same_v<Word, Packet>) {
    device::store_packet(to, word);
  } else {
    *reinterpret_cast<Word*>(to) = word;
  }
}

// ---- copies -------------------------------------------------------------------------------------

/// Copies `count` words from byte `first` on; each thread has kUnroll of them on their way at once.
template <class Word, uint32_t kUnroll>
TUTTI_DEVICE void copy_words(const Slice& slice, uint64_t first, uint64_t count) {
  const uint64_t threads = device::thread_count();
  for (uint64_t i = device::thread_index(); i < count; i += kUnroll * threads) {
    const uint64_t offset = first + i * sizeof(Word);
    const uint64_t stride = threads * sizeof(Word);
    Word words[kUnroll];
    TUTTI_UNROLL
    for (uint32_t u = 0; u < kUnroll; ++u) {
      if (i + u * threads < count) words[u] = load_word<Word>(slice.sources[0] + offset + u * stride);
    }
    for (uint32_t m = 0; m < slice.sink_count; ++m) {
      unsigned char* const sink = slice.sinks[m];
      if (sink == nullptr || sink == slice.sources[0]) continue;
      TUTTI_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        if (i + u * threads < count) store_word(sink + offset + u * stride, words[u]);
      }
    }
  }
}

template <class Word>
TUTTI_DEVICE_CALL void copy_as(const Slice& slice) {
  const uint64_t head = head_bytes(slice, sizeof(Word));
  const uint64_t words = (slice.bytes - head) / sizeof(Word);
  const uint64_t tail = head + words * sizeof(Word);
  copy_words<Word, 4>(slice, head, words);
  if constexpr (sizeof(Word) > 1) {
    copy_words<uint8_t, 1>(slice, 0, head);
    copy_words<uint8_t, 1>(slice, tail, slice.bytes - tail);
  }
}

TUTTI_DEVICE void copy_slice(const Slice& slice) {
  const uint64_t bits = misalignment(slice);
  if (bits == 0) return copy_as<Packet>(slice);
  if (bits % sizeof(uint32_t) == 0) return copy_as<uint32_t>(slice);
  copy_as<uint8_t>(slice);
}

// ---- reductions ---------------------------------------------------------------------------------

using reduce::Association;
using reduce::Element;

template <uint32_t kBytes>
struct RawBits;
template <>
struct RawBits<1> {
  using Type = uint8_t;
};
template <>
struct RawBits<2> {
  using Type = uint16_t;
};
template <>
struct RawBits<4> {
  using Type = uint32_t;
};
template <>
struct RawBits<8> {
  using Type = uint64_t;
};

/// Up to 8 bytes from and to memory that is aligned to nothing, once for all: the bodies stay short.
TUTTI_DEVICE_CALL uint64_t load_bytes(const unsigned char* from, uint64_t count) {
  uint64_t bits = 0;
  TUTTI_NO_UNROLL
  for (uint64_t i = 0; i < count; ++i) bits |= static_cast<uint64_t>(from[i]) << (8 * i);
  return bits;
}
TUTTI_DEVICE_CALL void store_bytes(unsigned char* to, uint64_t bits, uint64_t count) {
  TUTTI_NO_UNROLL
  for (uint64_t i = 0; i < count; ++i) to[i] = static_cast<unsigned char>(bits >> (8 * i));
}

/// One element as a word of its size; where the address is not aligned to it, byte by byte.
template <class Bits>
TUTTI_DEVICE Bits load_element(const unsigned char* from) {
  if (reinterpret_cast<uint64_t>(from) % sizeof(Bits) == 0) return load_word<Bits>(from);
  return static_cast<Bits>(load_bytes(from, sizeof(Bits)));
}
template <class Bits>
TUTTI_DEVICE void store_element(unsigned char* to, Bits bits) {
  if (reinterpret_cast<uint64_t>(to) % sizeof(Bits) == 0) return store_word<Bits>(to, bits);
  store_bytes(to, bits, sizeof(Bits));
}

/// value / divisor, once for all: a division is long.
template <class Value>
TUTTI_DEVICE_CALL Value divide_float(Value value, uint64_t divisor) {
  return reduce::divide(value, divisor);
}
/// The same for integers, in 64 bits.
TUTTI_DEVICE_CALL uint64_t divide_integer(uint64_t value, uint64_t divisor, bool is_signed) {
  if (is_signed) return static_cast<uint64_t>(reduce::divide(static_cast<int64_t>(value), divisor));
  return reduce::divide(value, divisor);
}

TUTTI_DEVICE bool is_signed_integer(const Calculation& job) {
  const auto type = static_cast<DataType>(job.arithmetic.type);
  return type == DataType::kInt8 || type == DataType::kInt16 || type == DataType::kInt32 ||
         type == DataType::kInt64;
}

/// What the bodies of one type, operator and association have in common. What depends on flags of the job
/// is decided for many elements at once.
template <class Elem, class Op, Association kAssociation>
struct Reduction {
  using Value = typename Elem::Value;
  static constexpr bool kTree = kAssociation == Association::kTree && Elem::kFloat;
  static constexpr bool kSums = std::is_same_v<Op, operators::Sum>;

  /// Source k's elements as the operator takes them.
  template <uint32_t kCount>
  TUTTI_MEMBER void scale(const Calculation& job, uint32_t k, Value (&values)[kCount]) {
    if (!kSums || (job.scaled_sources >> k & 1) == 0) return;
    const Value factor = Elem::from_bits(job.arithmetic.scale_bits);
    TUTTI_UNROLL
    for (uint32_t e = 0; e < kCount; ++e) {
      values[e] = operators::Prod::combine(values[e], factor);
      if (kTree) values[e] = Elem::round(values[e]);
    }
  }

  /// The results as they are stored.
  template <uint32_t kCount>
  TUTTI_MEMBER void finish(const Calculation& job, Value (&values)[kCount]) {
    if (kSums && job.finishes != 0) divide(job, values);
    if constexpr (Elem::kFloat && (kTree || Op::kExact)) {
      TUTTI_UNROLL
      for (uint32_t e = 0; e < kCount; ++e) {
        if (values[e] != values[e]) values[e] = reduce::canonical_nan<Value>();
      }
    }
  }

  template <uint32_t kCount>
  TUTTI_MEMBER void divide(const Calculation& job, Value (&values)[kCount]) {
    const uint64_t divisor = job.arithmetic.divisor;
    if constexpr (Elem::kFloat) {
      // The inverse of a power of two is exact, so that the product is rounded as the quotient is.
      if ((divisor & (divisor - 1)) == 0) {
        const Value inverse = Value{1} / static_cast<Value>(divisor);
        TUTTI_UNROLL
        for (uint32_t e = 0; e < kCount; ++e) values[e] = values[e] * inverse;
        return;
      }
      TUTTI_UNROLL
      for (uint32_t e = 0; e < kCount; ++e) values[e] = divide_float(values[e], divisor);
    } else {
      const bool is_signed = is_signed_integer(job);
      TUTTI_UNROLL
      for (uint32_t e = 0; e < kCount; ++e) {
        const auto extended = static_cast<uint64_t>(static_cast<std::make_signed_t<Value>>(values[e]));
        values[e] = static_cast<Value>(divide_integer(is_signed ? extended : values[e], divisor, is_signed));
      }
    }
  }

  /// One element's operands, neighbours at distance 1, 2, 4 joined: see reduce::scalar_result.
  TUTTI_MEMBER Value join_tree(Value* values, uint32_t count) {
    TUTTI_UNROLL
    for (uint32_t distance = 1; distance < reduce::kMaxSources; distance *= 2) {
      TUTTI_UNROLL
      for (uint32_t k = 0; k + distance < reduce::kMaxSources; k += 2 * distance) {
        if (k + distance < count) values[k] = Elem::round(Op::combine(values[k], values[k + distance]));
      }
    }
    return values[0];
  }
};

/// Packets [0, count) from byte `first` on, from left to right; each thread has kUnroll packets of a source
/// on their way at once.
template <class Elem, class Op, Association kAssociation, uint32_t kUnroll>
TUTTI_DEVICE void reduce_packets_left(const Slice& slice, uint64_t first, uint64_t count) {
  using R = Reduction<Elem, Op, kAssociation>;
  constexpr uint32_t kElements = sizeof(Packet) / Elem::kBytes;
  constexpr uint32_t kValues = kUnroll * kElements;
  const uint64_t threads = device::thread_count();
  const uint64_t stride = threads * sizeof(Packet);
  for (uint64_t i = device::thread_index(); i < count; i += kUnroll * threads) {
    const uint64_t offset = first + i * sizeof(Packet);
    typename Elem::Value results[kValues];
    Packet packets[kUnroll] = {};
    auto* const bytes = reinterpret_cast<unsigned char*>(packets);
    for (uint32_t k = 0; k < slice.source_count; ++k) {
      TUTTI_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        if (i + u * threads < count) packets[u] = device::load_packet(slice.sources[k] + offset + u * stride);
      }
      typename Elem::Value values[kValues];
      TUTTI_UNROLL
      for (uint32_t e = 0; e < kValues; ++e) values[e] = Elem::load(bytes + e * Elem::kBytes);
      R::scale(slice, k, values);
      TUTTI_UNROLL
      for (uint32_t e = 0; e < kValues; ++e)
        results[e] = k == 0 ? values[e] : Op::combine(results[e], values[e]);
    }
    R::finish(slice, results);
    TUTTI_UNROLL
    for (uint32_t e = 0; e < kValues; ++e) Elem::store(bytes + e * Elem::kBytes, results[e]);
    for (uint32_t m = 0; m < slice.sink_count; ++m) {
      if (slice.sinks[m] == nullptr) continue;
      TUTTI_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        if (i + u * threads < count) device::store_packet(slice.sinks[m] + offset + u * stride, packets[u]);
      }
    }
  }
}

/// The result of one element's operands, of which there are job.source_count.
template <class Elem, class Op, Association kAssociation, class Bits>
TUTTI_DEVICE Bits reduce_element(const Calculation& job, const Bits (&operands)[reduce::kMaxSources]) {
  using R = Reduction<Elem, Op, kAssociation>;
  typename Elem::Value values[reduce::kMaxSources];
  TUTTI_UNROLL
  for (uint32_t k = 0; k < reduce::kMaxSources; ++k) {
    typename Elem::Value value[1] = {Elem::load(reinterpret_cast<const unsigned char*>(&operands[k]))};
    R::scale(job, k, value);
    values[k] = value[0];
  }
  typename Elem::Value result[1] = {values[0]};
  if constexpr (R::kTree) {
    result[0] = R::join_tree(values, job.source_count);
  } else {
    TUTTI_UNROLL
    for (uint32_t k = 1; k < reduce::kMaxSources; ++k) {
      if (k < job.source_count) result[0] = Op::combine(result[0], values[k]);
    }
  }
  R::finish(job, result);
  Bits bits;
  Elem::store(reinterpret_cast<unsigned char*>(&bits), result[0]);
  return bits;
}

/// What lies before byte `head` and from byte `tail` on, element by element.
template <class Elem, class Op, Association kAssociation>
TUTTI_DEVICE void reduce_elements(const Slice& slice, uint64_t head, uint64_t tail) {
  using Bits = typename RawBits<Elem::kBytes>::Type;
  const uint64_t bytes = head + (slice.bytes - tail);
  for (uint64_t i = device::thread_index() * uint64_t{Elem::kBytes}; i < bytes;
       i += device::thread_count() * uint64_t{Elem::kBytes}) {
    const uint64_t offset = i < head ? i : tail + (i - head);
    Bits operands[reduce::kMaxSources] = {};
    TUTTI_UNROLL
    for (uint32_t k = 0; k < reduce::kMaxSources; ++k) {
      if (k < slice.source_count) operands[k] = load_element<Bits>(slice.sources[k] + offset);
    }
    const Bits bits = reduce_element<Elem, Op, kAssociation>(slice, operands);
    for (uint32_t m = 0; m < slice.sink_count; ++m) {
      if (slice.sinks[m] != nullptr) store_element<Bits>(slice.sinks[m] + offset, bits);
    }
  }
}

/// One type, operator and association. `alike`: all ends of the slice are aligned alike. The canonical tree
/// goes element by element: it keeps all operands of one.
template <class Elem, class Op, Association kAssociation>
TUTTI_DEVICE_CALL void reduce_body(const Slice& slice, bool alike) {
  // As many as leave all values in registers.
  constexpr uint32_t kUnroll = sizeof(Packet) / Elem::kBytes <= 4   ? 4
                               : sizeof(Packet) / Elem::kBytes <= 8 ? 2
                                                                    : 1;
  uint64_t head = slice.bytes;
  uint64_t tail = slice.bytes;
  if constexpr (!Reduction<Elem, Op, kAssociation>::kTree) {
    if (alike && reinterpret_cast<uint64_t>(slice.sources[0]) % Elem::kBytes == 0) {
      head = head_bytes(slice, sizeof(Packet));
      const uint64_t packets = (slice.bytes - head) / sizeof(Packet);
      tail = head + packets * sizeof(Packet);
      reduce_packets_left<Elem, Op, kAssociation, kUnroll>(slice, head, packets);
    }
  }
  reduce_elements<Elem, Op, kAssociation>(slice, head, tail);
}

/// 8 bytes of results from 8 bytes of each source. The elements one after the other: code that is short is
/// fetched soon.
template <class Elem, class Op, Association kAssociation>
TUTTI_DEVICE_CALL uint64_t reduce_operands(const Calculation& job, Operands operands) {
  using Bits = typename RawBits<Elem::kBytes>::Type;
  uint64_t results = 0;
  TUTTI_NO_UNROLL
  for (uint32_t shift = 0; shift < 64; shift += 8 * Elem::kBytes) {
    Bits bits[reduce::kMaxSources];
    TUTTI_UNROLL
    for (uint32_t k = 0; k < reduce::kMaxSources; ++k)
      bits[k] = static_cast<Bits>(operands.words[k] >> shift);
    results |= static_cast<uint64_t>(reduce_element<Elem, Op, kAssociation>(job, bits)) << shift;
  }
  return results;
}

/// What is done for one type, operator and association: all of a slice, or 8 bytes.
struct OfSlice {
  template <class Elem, class Op, Association kAssociation>
  TUTTI_MEMBER void run(const Slice& slice, bool alike) {
    reduce_body<Elem, Op, kAssociation>(slice, alike);
  }
};
struct OfOperands {
  template <class Elem, class Op, Association kAssociation>
  TUTTI_MEMBER uint64_t run(const Calculation& job, const Operands& operands) {
    return reduce_operands<Elem, Op, kAssociation>(job, operands);
  }
};

// How the functions of core/operators.h run on each kind of element.
template <class T, Association kAssociation>
struct FloatRows {
  template <class Row>
  using Function = typename Row::Function;
  static constexpr operators::Types kTypes = operators::kFloats;

  template <class Of, class Op, class Job, class... Data>
  TUTTI_MEMBER auto run(const Job& job, const Data&... data) {
    // The order and the rounding of nodes are irrelevant to an exact function.
    constexpr Association kOrder = Op::kExact ? Association::kLeft : kAssociation;
    return Of::template run<Element<T>, Op, kOrder>(job, data...);
  }
};
template <class T>
struct IntegerRows {
  template <class Row>
  using Function = typename Row::Function;
  static constexpr operators::Types kTypes = operators::kIntegers;

  template <class Of, class Op, class Job, class... Data>
  TUTTI_MEMBER auto run(const Job& job, const Data&... data) {
    using Value = std::conditional_t<Op::kSigned, T, std::make_unsigned_t<T>>;
    return Of::template run<Element<Value>, Op, Association::kLeft>(job, data...);
  }
};
/// Bytes are 0 or 1 once they are read.
struct BoolRows {
  template <class Row>
  using Function = typename Row::BoolFunction;
  static constexpr operators::Types kTypes = operators::kBool;

  template <class Of, class Op, class Job, class... Data>
  TUTTI_MEMBER auto run(const Job& job, const Data&... data) {
    return Of::template run<Element<bool>, Op, Association::kLeft>(job, data...);
  }
};

/// Runs `Of` with the function of the job's row, which is at most kRow. Rows whose function is the first
/// one's share its body, whatever their role: the job's flags say what that adds.
template <class Of, class Rows, size_t kRow = operators::kCount - 1, class Job, class... Data>
TUTTI_DEVICE auto reduce_row(const Job& job, const Data&... data) {
  using First = typename Rows::template Function<operators::RowAt<0>>;
  if constexpr (kRow == 0) {
    return Rows::template run<Of, First>(job, data...);
  } else {
    using Row = operators::RowAt<kRow>;
    using Op = typename Rows::template Function<Row>;
    if constexpr (Row::is_defined(Rows::kTypes) && !std::is_same_v<Op, First>) {
      if (job.arithmetic.op == kRow) return Rows::template run<Of, Op>(job, data...);
    }
    return reduce_row<Of, Rows, kRow - 1>(job, data...);
  }
}

template <class Of, class T, class Job, class... Data>
TUTTI_DEVICE auto reduce_float(const Job& job, const Data&... data) {
  if (static_cast<Association>(job.arithmetic.association) == Association::kTree)
    return reduce_row<Of, FloatRows<T, Association::kTree>>(job, data...);
  return reduce_row<Of, FloatRows<T, Association::kLeft>>(job, data...);
}

/// Runs `Of` for the type, operator and association of the job.
template <class Of, class Job, class... Data>
TUTTI_DEVICE auto reduce_job(const Job& job, const Data&... data) {
  switch (static_cast<DataType>(job.arithmetic.type)) {
    case DataType::kInt8: return reduce_row<Of, IntegerRows<int8_t>>(job, data...);
    case DataType::kUint8: return reduce_row<Of, IntegerRows<uint8_t>>(job, data...);
    case DataType::kInt16: return reduce_row<Of, IntegerRows<int16_t>>(job, data...);
    case DataType::kUint16: return reduce_row<Of, IntegerRows<uint16_t>>(job, data...);
    case DataType::kInt32: return reduce_row<Of, IntegerRows<int32_t>>(job, data...);
    case DataType::kUint32: return reduce_row<Of, IntegerRows<uint32_t>>(job, data...);
    case DataType::kInt64: return reduce_row<Of, IntegerRows<int64_t>>(job, data...);
    case DataType::kUint64: return reduce_row<Of, IntegerRows<uint64_t>>(job, data...);
    case DataType::kFloat16: return reduce_float<Of, reduce::Float16>(job, data...);
    case DataType::kBfloat16: return reduce_float<Of, reduce::Bfloat16>(job, data...);
    case DataType::kFloat64: return reduce_float<Of, double>(job, data...);
    case DataType::kFloat8E4M3: return reduce_float<Of, reduce::Float8E4M3>(job, data...);
    case DataType::kFloat8E5M2: return reduce_float<Of, reduce::Float8E5M2>(job, data...);
    case DataType::kBool: return reduce_row<Of, BoolRows>(job, data...);
    default: return reduce_float<Of, float>(job, data...);
  }
}

// ---- multicast ----------------------------------------------------------------------------------
//
// A slice that collects or is published goes in 16-byte packets from its beginning: slots are aligned so, and
// what lies behind the last byte of a slice in them nobody reads. Memory of the users may lie anywhere.

/// The first `bytes` of a packet, at most all, from and to memory that is aligned to nothing.
TUTTI_DEVICE_CALL Packet load_some(const unsigned char* from, uint64_t bytes) {
  Packet packet = {};
  for (uint64_t at = 0; at < sizeof(Packet) && at < bytes; at += 8) {
    const uint64_t bits = load_bytes(from + at, bytes - at < 8 ? bytes - at : 8);
    packet.words[at / 4] = static_cast<uint32_t>(bits);
    packet.words[at / 4 + 1] = static_cast<uint32_t>(bits >> 32);
  }
  return packet;
}
TUTTI_DEVICE_CALL void store_some(unsigned char* to, Packet packet, uint64_t bytes) {
  for (uint64_t at = 0; at < sizeof(Packet) && at < bytes; at += 8) {
    const uint64_t bits = packet.words[at / 4] | static_cast<uint64_t>(packet.words[at / 4 + 1]) << 32;
    store_bytes(to + at, bits, bytes - at < 8 ? bytes - at : 8);
  }
}

/// The same, whole packets at once where they are aligned.
TUTTI_DEVICE Packet load_part(const unsigned char* from, uint64_t bytes) {
  if (bytes >= sizeof(Packet) && reinterpret_cast<uint64_t>(from) % sizeof(Packet) == 0)
    return device::load_packet(from);
  return load_some(from, bytes);
}
TUTTI_DEVICE void store_part(unsigned char* to, Packet packet, uint64_t bytes) {
  if (bytes >= sizeof(Packet) && reinterpret_cast<uint64_t>(to) % sizeof(Packet) == 0)
    return device::store_packet(to, packet);
  store_some(to, packet, bytes);
}

/// What is published without being collected: a copy.
struct Copied {
  TUTTI_MEMBER Packet load(const Slice& slice, uint64_t offset) {
    return load_part(slice.sources[0] + offset, slice.bytes - offset);
  }
  TUTTI_MEMBER void finish(const Slice& /*slice*/, Packet& /*packet*/) {}
};

template <class Elem, class Op>
struct Collected {
  TUTTI_MEMBER Packet load(const Slice& slice, uint64_t offset) {
    return device::LoadReduce<Elem, Op>::load(slice.sources[0] + offset);
  }
  TUTTI_MEMBER void finish(const Slice& slice, Packet& packet) {
    constexpr uint32_t kElements = sizeof(Packet) / Elem::kBytes;
    if (slice.finishes == 0) return;
    auto* const bytes = reinterpret_cast<unsigned char*>(&packet);
    typename Elem::Value values[kElements];
    TUTTI_UNROLL
    for (uint32_t e = 0; e < kElements; ++e) values[e] = Elem::load(bytes + e * Elem::kBytes);
    Reduction<Elem, Op, Association::kLeft>::finish(slice, values);
    TUTTI_UNROLL
    for (uint32_t e = 0; e < kElements; ++e) Elem::store(bytes + e * Elem::kBytes, values[e]);
  }
};

/// Each thread has kUnroll packets on their way at once.
template <class Source, uint32_t kUnroll>
TUTTI_DEVICE_CALL void multicast_packets(const Slice& slice) {
  const uint64_t threads = device::thread_count();
  const uint64_t count = (slice.bytes + sizeof(Packet) - 1) / sizeof(Packet);
  for (uint64_t i = device::thread_index(); i < count; i += kUnroll * threads) {
    Packet packets[kUnroll];
    TUTTI_UNROLL
    for (uint32_t u = 0; u < kUnroll; ++u) {
      if (i + u * threads < count) packets[u] = Source::load(slice, (i + u * threads) * sizeof(Packet));
    }
    TUTTI_UNROLL
    for (uint32_t u = 0; u < kUnroll; ++u) {
      const uint64_t offset = (i + u * threads) * sizeof(Packet);
      if (offset >= slice.bytes) continue;
      Source::finish(slice, packets[u]);
      for (uint32_t m = 0; m < slice.sink_count; ++m) {
        unsigned char* const sink = slice.sinks[m];
        if ((slice.published >> m & 1) != 0) {
          device::multimem_store_packet(sink + offset, packets[u]);
        } else if (sink != nullptr && sink != slice.sources[0]) {
          store_part(sink + offset, packets[u], slice.bytes - offset);
        }
      }
    }
  }
}

/// What the hardware does not reduce no plan collects: plan/multicast.h.
struct OfCollected {
  template <class Elem, class Op, Association kAssociation>
  TUTTI_MEMBER void run(const Slice& slice) {
    if constexpr (kAssociation == Association::kLeft && device::kLoadReduces<Elem, Op>)
      multicast_packets<Collected<Elem, Op>, 4>(slice);
  }
};

/// The ends of the other kind of address have been written, or will be read, by others in this launch.
TUTTI_DEVICE void multicast_slice(const Slice& slice) {
  device::alias_fence();
  if (slice.collects != 0) {
    reduce_job<OfCollected>(slice);
  } else {
    multicast_packets<Copied, 4>(slice);
  }
  device::alias_fence();
}

/// Moves the slice with all threads of the block. No thread may touch what is moved before the next barrier.
TUTTI_DEVICE_CALL void move_slice(const Slice& slice) {
  if (slice.collects != 0 || slice.published != 0) return multicast_slice(slice);
  if (slice.copies != 0) return copy_slice(slice);
  reduce_job<OfSlice>(slice, misalignment(slice) == 0);
}

/// 8 bytes of results from 8 bytes of each of the job's sources, by one thread.
TUTTI_DEVICE uint64_t reduce_words(const Calculation& job, const Operands& operands) {
  return reduce_job<OfOperands>(job, operands);
}

}  // namespace tutti::cuda
