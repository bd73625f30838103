// Moving a slice: the movers of a block read K sources once, reduce them and write the result to M sinks.
// The meaning is that of reduce/reduce.h, to the bit, and the definitions are the ones of reduce/formats.h
// and core/operators.h; here is only how the work is spread over threads and memory accesses.
//
// Where all ends are aligned alike the bulk goes in 16-byte packets, each thread having eight on their way at
// once; else element by element. One body is one (element type, operator, association); signed integers share
// the unsigned body where the bits are the same. Sums have two bodies: one for sums, and one that also scales
// and divides.
//
// A body's loops call nothing and keep all values in registers: arrays have constant indices once the loops
// are unrolled. tests/cuda/sass_test.py reads the machine code and says so.
#pragma once

#include <type_traits>

#include "core/operators.h"
#include "core/types.h"
#include "engine/cuda/device.h"
#include "engine/cuda/memory.cuh"
#include "engine/cuda/multimem.h"
#include "engine/cuda/roles.cuh"
#include "engine/cuda/slice.h"
#include "engine/cuda/values.h"
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

// ---- copies -------------------------------------------------------------------------------------

/// Copies words [begin, end) from byte `first` on. Each thread has kUnroll of them on their way at once;
/// their number is a multiple of what the block moves at once, or kUnroll is 1.
template <class Word, uint32_t kUnroll>
TUTTI_DEVICE void copy_words(const Slice& slice, uint64_t first, uint64_t begin, uint64_t end) {
  const uint64_t threads = slice.movers;
  const uint64_t stride = threads * sizeof(Word);
  const unsigned char* const source = slice.sources[0];
  const uint32_t sink_count = slice.sink_count;
  TUTTI_NO_UNROLL
  for (uint64_t i = begin + device::thread_index(); i < end; i += kUnroll * threads) {
    const uint64_t offset = first + i * sizeof(Word);
    Word words[kUnroll];
    TUTTI_UNROLL
    for (uint32_t u = 0; u < kUnroll; ++u) words[u] = load_word<Word>(source + offset + u * stride);
    TUTTI_NO_UNROLL
    for (uint32_t m = 0; m < sink_count; ++m) {
      unsigned char* const sink = slice.sinks[m];
      if (sink == nullptr || sink == source) continue;
      TUTTI_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) store_word(sink + offset + u * stride, words[u]);
    }
  }
}

/// The largest part of `count` that is a multiple of what the block moves at once. A slice bounds `count`.
TUTTI_DEVICE uint32_t whole_turns(const Slice& slice, uint64_t count, uint32_t unroll) {
  const uint32_t turn = unroll * slice.movers;
  return static_cast<uint32_t>(count) / turn * turn;
}

template <class Word>
TUTTI_DEVICE_CALL void copy_as(const Slice& slice) {
  constexpr uint32_t kUnroll = 8;
  const uint64_t head = head_bytes(slice, sizeof(Word));
  const uint64_t words = (slice.bytes - head) / sizeof(Word);
  const uint64_t tail = head + words * sizeof(Word);
  const uint64_t whole = whole_turns(slice, words, kUnroll);
  copy_words<Word, kUnroll>(slice, head, 0, whole);
  copy_words<Word, 1>(slice, head, whole, words);
  if constexpr (sizeof(Word) > 1) {
    copy_words<uint8_t, 1>(slice, 0, 0, head);
    copy_words<uint8_t, 1>(slice, tail, 0, slice.bytes - tail);
  }
}

/// Whether no byte is to be written: a message travels as a reference, or has been written directly.
TUTTI_DEVICE bool writes_nothing(const Slice& slice) {
  for (uint32_t m = 0; m < slice.sink_count; ++m) {
    if (slice.sinks[m] != nullptr && slice.sinks[m] != slice.sources[0]) return false;
  }
  return true;
}

TUTTI_DEVICE void copy_slice(const Slice& slice) {
  if (writes_nothing(slice)) return;
  const uint64_t bits = misalignment(slice);
  if (bits == 0) return copy_as<Packet>(slice);
  if (bits % sizeof(uint32_t) == 0) return copy_as<uint32_t>(slice);
  copy_as<uint8_t>(slice);
}

// ---- what one type, operator and association do -------------------------------------------------

using reduce::Association;

/// The value by which sources are multiplied or results divided. Once for a slice.
template <class Value>
struct Adjustment {
  uint32_t scaled_sources;
  Value factor;
  bool divides;
  bool by_inverse;           ///< floats: the product with the inverse is the quotient, to the bit
  bool is_signed;            ///< integers
  Value divisor_or_inverse;  ///< floats
  uint64_t divisor;          ///< integers
};

TUTTI_DEVICE bool is_signed_integer(const Calculation& job) {
  const auto type = static_cast<DataType>(job.arithmetic.type);
  return type == DataType::kInt8 || type == DataType::kInt16 || type == DataType::kInt32 ||
         type == DataType::kInt64;
}

/// `kAdjusts`: the slice has scaled sources or a division; else the code for them is left out.
template <class ElemType, class OpType, Association kAssociation, bool kAdjusts>
struct Reduction {
  using Elem = ElemType;
  using Op = OpType;
  using Value = typename Elem::Value;
  using C = Codec<Elem>;
  using Bits = typename C::Bits;
  using G = Granule<Elem>;
  using A = Adjustment<Value>;
  static constexpr bool kTree = kAssociation == Association::kTree && Elem::kFloat;
  static constexpr bool kShort = kAdjusts && !Elem::kFloat;
  static constexpr bool kWide = kAdjusts && Elem::kBytes == 1;
  /// The address of a source's packets is read one source early. Else ptxas fills the wait for it with sums
  /// of packets that are on their way, and the next loads begin behind these. Bytes have no register to
  /// spare.
  static constexpr bool kEarly = Elem::kBytes > 1;
  /// A NaN among the results is the canonical one.
  static constexpr bool kCanonical = Elem::kFloat && (kTree || Op::kExact);

  TUTTI_MEMBER A adjustment(const Calculation& job) {
    A adjust{};
    if constexpr (kAdjusts) {
      adjust.scaled_sources = job.scaled_sources;
      adjust.factor = C::value_of(static_cast<Bits>(job.arithmetic.scale_bits));
      adjust.divides = job.finishes != 0;
      adjust.divisor = job.arithmetic.divisor;
      adjust.is_signed = is_signed_integer(job);
      if constexpr (Elem::kFloat) {
        // The inverse of a power of two is exact, so that the product is rounded as the quotient is.
        const auto divisor = static_cast<Value>(adjust.divisor);
        adjust.by_inverse = (adjust.divisor & (adjust.divisor - 1)) == 0;
        adjust.divisor_or_inverse = adjust.by_inverse ? Value{1} / divisor : divisor;
      }
    }
    return adjust;
  }

  /// Source k's element as the operator takes it.
  TUTTI_MEMBER Value scaled(const A& adjust, [[maybe_unused]] uint32_t k, Value value) {
    if constexpr (kAdjusts) {
      if ((adjust.scaled_sources >> k & 1) == 0) return value;
      value = operators::Prod::combine(value, adjust.factor);
      if constexpr (kTree) value = C::round(value);
    }
    return value;
  }

  /// The result as it is stored.
  TUTTI_MEMBER Value finished(const A& adjust, Value value) {
    if constexpr (kAdjusts) {
      if (adjust.divides) value = divided(adjust, value);
    }
    if constexpr (kCanonical) {
      if (value != value) value = reduce::canonical_nan<Value>();
    }
    return value;
  }

  TUTTI_MEMBER Value divided(const A& adjust, Value value) {
    if constexpr (Elem::kFloat) {
      return adjust.by_inverse ? value * adjust.divisor_or_inverse : value / adjust.divisor_or_inverse;
    } else {
      // A division of 32 bits is short, and no rank count is longer.
      using Word = std::conditional_t<sizeof(Value) == 8, uint64_t, uint32_t>;
      const auto divisor = static_cast<Word>(adjust.divisor);
      const bool is_negative = adjust.is_signed && static_cast<std::make_signed_t<Value>>(value) < 0;
      const Word magnitude = is_negative ? static_cast<Value>(0 - value) : value;
      const Word quotient = divisor == adjust.divisor ? magnitude / divisor : 0;
      return static_cast<Value>(is_negative ? 0 - quotient : quotient);
    }
  }

  /// Op::combine, by one instruction where the device has it.
  TUTTI_MEMBER Value combine(Value a, Value b) {
    if constexpr (std::is_same_v<Value, float> && std::is_same_v<Op, operators::Min>) {
      return device::minimum(a, b);
    } else if constexpr (std::is_same_v<Value, float> && std::is_same_v<Op, operators::Max>) {
      return device::maximum(a, b);
    } else {
      return Op::combine(a, b);
    }
  }

  /// One element's operands, neighbours at distance 1, 2, 4 joined: see reduce::scalar_result.
  TUTTI_MEMBER Value join_tree(Value (&values)[reduce::kMaxSources], uint32_t count) {
    TUTTI_UNROLL
    for (uint32_t distance = 1; distance < reduce::kMaxSources; distance *= 2) {
      TUTTI_UNROLL
      for (uint32_t k = 0; k + distance < reduce::kMaxSources; k += 2 * distance) {
        if (k + distance < count) values[k] = C::round(combine(values[k], values[k + distance]));
      }
    }
    return values[0];
  }

  /// One element's operands become the result.
  TUTTI_MEMBER Value join(const A& adjust, Value (&values)[reduce::kMaxSources], uint32_t count) {
    TUTTI_UNROLL
    for (uint32_t k = 0; k < reduce::kMaxSources; ++k) values[k] = scaled(adjust, k, values[k]);
    if constexpr (kTree) return finished(adjust, join_tree(values, count));
    Value result = values[0];
    TUTTI_UNROLL
    for (uint32_t k = 1; k < reduce::kMaxSources; ++k) {
      if (k < count) result = combine(result, values[k]);
    }
    return finished(adjust, result);
  }

  /// A granule of every source becomes a granule of results.
  TUTTI_MEMBER void join_granules(const A& adjust, const uint32_t (&low)[reduce::kMaxSources],
                                  const uint32_t (&high)[reduce::kMaxSources], uint32_t count,
                                  uint32_t& low_result, uint32_t& high_result) {
    Value operands[reduce::kMaxSources][G::kElements];
    TUTTI_UNROLL
    for (uint32_t k = 0; k < reduce::kMaxSources; ++k) G::load(low[k], high[k], operands[k]);
    Value results[G::kElements];
    TUTTI_UNROLL
    for (uint32_t e = 0; e < G::kElements; ++e) {
      Value values[reduce::kMaxSources];
      TUTTI_UNROLL
      for (uint32_t k = 0; k < reduce::kMaxSources; ++k) values[k] = operands[k][e];
      results[e] = join(adjust, values, count);
    }
    G::template store<kCanonical>(results, low_result, high_result);
  }
};

// ---- packets, from left to right ----------------------------------------------------------------

/// The packets of one source that a thread has on their way, and the results so far of as many packets.
template <class R, uint32_t kUnroll>
struct Columns {
  static constexpr uint32_t kGranules = kUnroll * R::G::kOfPacket;

  TUTTI_MEMBER void load(const unsigned char* from, uint32_t stride, Packet (&packets)[kUnroll]) {
    TUTTI_UNROLL
    for (uint32_t u = 0; u < kUnroll; ++u) packets[u] = device::load_packet(from + u * stride);
  }

  /// Adds source k to the results; source 0 begins them.
  template <bool kFirst>
  TUTTI_MEMBER void add(const typename R::A& adjust, uint32_t k, const Packet (&packets)[kUnroll],
                        typename R::Value (&results)[kGranules][R::G::kElements]) {
    TUTTI_UNROLL
    for (uint32_t g = 0; g < kGranules; ++g) {
      const Packet& packet = packets[g / R::G::kOfPacket];
      const uint32_t word = g % R::G::kOfPacket * R::G::kWords;
      typename R::Value values[R::G::kElements];
      R::G::load(packet.words[word], packet.words[word + R::G::kWords - 1], values);
      TUTTI_UNROLL
      for (uint32_t e = 0; e < R::G::kElements; ++e) {
        const typename R::Value value = R::scaled(adjust, k, values[e]);
        results[g][e] = kFirst ? value : R::combine(results[g][e], value);
      }
    }
  }

  TUTTI_MEMBER void finish(const typename R::A& adjust,
                           typename R::Value (&results)[kGranules][R::G::kElements],
                           Packet (&packets)[kUnroll]) {
    TUTTI_UNROLL
    for (uint32_t g = 0; g < kGranules; ++g) {
      Packet& packet = packets[g / R::G::kOfPacket];
      const uint32_t word = g % R::G::kOfPacket * R::G::kWords;
      TUTTI_UNROLL
      for (uint32_t e = 0; e < R::G::kElements; ++e) results[g][e] = R::finished(adjust, results[g][e]);
      R::G::template store<R::kCanonical>(results[g], packet.words[word],
                                          packet.words[word + R::G::kWords - 1]);
    }
  }
};

template <uint32_t kUnroll>
TUTTI_DEVICE void store_packets(const Slice& slice, uint64_t offset, uint32_t stride,
                                const Packet (&packets)[kUnroll]) {
  TUTTI_NO_UNROLL
  for (uint32_t m = 0; m < slice.sink_count; ++m) {
    unsigned char* const sink = slice.sinks[m];
    if (sink == nullptr) continue;
    TUTTI_UNROLL
    for (uint32_t u = 0; u < kUnroll; ++u) device::store_packet(sink + offset + u * stride, packets[u]);
  }
}

/// The address in source k, or null.
TUTTI_DEVICE const unsigned char* source_at(const Slice& slice, uint32_t k, uint64_t offset) {
  return k < slice.source_count ? slice.sources[k] + offset : nullptr;
}

/// Packets [begin, end) from byte `first` on, which are a multiple of what the block moves at once. A thread
/// loads kUnroll packets of the next source while it reduces those of this one.
template <class R, uint32_t kUnroll>
TUTTI_DEVICE void reduce_packets_left(const Slice& slice, const typename R::A& adjust, uint32_t first,
                                      uint32_t begin, uint32_t end) {
  using Of = Columns<R, kUnroll>;
  const uint32_t threads = slice.movers;
  const uint32_t stride = threads * static_cast<uint32_t>(sizeof(Packet));
  const uint32_t count = slice.source_count;
  TUTTI_NO_UNROLL
  for (uint32_t i = begin + device::thread_index(); i < end; i += kUnroll * threads) {
    const uint32_t offset = first + i * static_cast<uint32_t>(sizeof(Packet));
    Packet even[kUnroll];
    Packet odd[kUnroll] = {};
    typename R::Value results[Of::kGranules][R::G::kElements];
    Of::load(slice.sources[0] + offset, stride, even);
    if (count > 1) Of::load(slice.sources[1] + offset, stride, odd);
    const unsigned char* next = R::kEarly ? source_at(slice, 2, offset) : nullptr;
    Of::template add<true>(adjust, 0, even, results);
    TUTTI_NO_UNROLL
    for (uint32_t k = 1; k < count; k += 2) {
      if (k + 1 < count) Of::load(R::kEarly ? next : slice.sources[k + 1] + offset, stride, even);
      if constexpr (R::kEarly) next = source_at(slice, k + 2, offset);
      Of::template add<false>(adjust, k, odd, results);
      if (k + 1 == count) break;
      if (k + 2 < count) Of::load(R::kEarly ? next : slice.sources[k + 2] + offset, stride, odd);
      if constexpr (R::kEarly) next = source_at(slice, k + 3, offset);
      Of::template add<false>(adjust, k + 1, even, results);
    }
    Of::finish(adjust, results, even);
    store_packets(slice, offset, stride, even);
  }
}

// ---- packets, by the canonical tree -------------------------------------------------------------

/// The packet without its first words, and with others at its end.
template <uint32_t kWords>
TUTTI_DEVICE Packet rotated(const Packet& packet, uint32_t low, uint32_t high) {
  if constexpr (kWords == 1) {
    return Packet{{packet.words[1], packet.words[2], packet.words[3], low}};
  } else {
    return Packet{{packet.words[2], packet.words[3], low, high}};
  }
}

/// One packet of every source at a time, all of them on their way at once. The words take turns in the first
/// place, so that the code of one serves all.
template <class R>
TUTTI_DEVICE void reduce_packets_tree(const Slice& slice, const typename R::A& adjust, uint64_t first,
                                      uint64_t packets) {
  const uint64_t threads = slice.movers;
  const uint32_t count = slice.source_count;
  TUTTI_NO_UNROLL
  for (uint64_t i = device::thread_index(); i < packets; i += threads) {
    const uint64_t offset = first + i * sizeof(Packet);
    Packet operands[reduce::kMaxSources];
    TUTTI_UNROLL
    for (uint32_t k = 0; k < reduce::kMaxSources; ++k) {
      operands[k] = Packet{};
      if (k < count) operands[k] = device::load_packet(slice.sources[k] + offset);
    }
    Packet results = {};
    TUTTI_NO_UNROLL
    for (uint32_t turn = 0; turn < 4; turn += R::G::kWords) {
      uint32_t low[reduce::kMaxSources];
      uint32_t high[reduce::kMaxSources];
      TUTTI_UNROLL
      for (uint32_t k = 0; k < reduce::kMaxSources; ++k) {
        low[k] = operands[k].words[0];
        high[k] = operands[k].words[1];
        operands[k] = rotated<R::G::kWords>(operands[k], 0, 0);
      }
      uint32_t low_result = 0;
      uint32_t high_result = 0;
      R::join_granules(adjust, low, high, count, low_result, high_result);
      results = rotated<R::G::kWords>(results, low_result, high_result);
    }
    const Packet stored[1] = {results};
    store_packets<1>(slice, offset, 0, stored);
  }
}

// ---- a slice ------------------------------------------------------------------------------------

template <class R>
TUTTI_DEVICE typename R::Value reduce_element(const Slice& slice, const typename R::A& adjust,
                                              uint64_t offset) {
  using Bits = typename R::Bits;
  const uint32_t count = slice.source_count;
  if constexpr (R::kTree) {
    typename R::Value values[reduce::kMaxSources];
    TUTTI_UNROLL
    for (uint32_t k = 0; k < reduce::kMaxSources; ++k) {
      values[k] = typename R::Value{};
      if (k < count) values[k] = R::C::value_of(load_element<Bits>(slice.sources[k] + offset));
    }
    return R::join(adjust, values, count);
  } else {
    typename R::Value result{};
    TUTTI_NO_UNROLL
    for (uint32_t k = 0; k < count; ++k) {
      const auto value = R::C::value_of(load_element<Bits>(slice.sources[k] + offset));
      result = k == 0 ? R::scaled(adjust, k, value) : R::combine(result, R::scaled(adjust, k, value));
    }
    return R::finished(adjust, result);
  }
}

/// What lies before byte `head` and from byte `tail` on, element by element.
template <class R>
TUTTI_DEVICE void reduce_elements(const Slice& slice, const typename R::A& adjust, uint64_t head,
                                  uint64_t tail) {
  using Bits = typename R::Bits;
  constexpr uint64_t kBytes = sizeof(Bits);
  const uint64_t bytes = head + (slice.bytes - tail);
  TUTTI_NO_UNROLL
  for (uint64_t i = device::thread_index() * kBytes; i < bytes; i += slice.movers * kBytes) {
    const uint64_t offset = i < head ? i : tail + (i - head);
    const Bits bits = R::C::bits_of(reduce_element<R>(slice, adjust, offset));
    TUTTI_NO_UNROLL
    for (uint32_t m = 0; m < slice.sink_count; ++m) {
      if (slice.sinks[m] != nullptr) store_element<Bits>(slice.sinks[m] + offset, bits);
    }
  }
}

/// `alike`: all ends of the slice are aligned alike.
template <class R>
TUTTI_DEVICE_CALL void reduce_body(const Slice& slice, bool alike) {
  const typename R::A adjust = R::adjustment(slice);
  uint64_t head = slice.bytes;
  uint64_t tail = slice.bytes;
  if (alike && reinterpret_cast<uint64_t>(slice.sources[0]) % R::Elem::kBytes == 0) {
    head = head_bytes(slice, sizeof(Packet));
    const uint64_t packets = (slice.bytes - head) / sizeof(Packet);
    tail = head + packets * sizeof(Packet);
    if constexpr (R::kTree) {
      reduce_packets_tree<R>(slice, adjust, head, packets);
    } else {
      // Integers that are divided would be long code; averages of 8-bit floats would need more registers.
      constexpr uint32_t kUnroll = R::kShort ? 1 : R::kWide ? 2 : 4;
      const uint32_t whole = whole_turns(slice, packets, kUnroll);
      if constexpr (kUnroll > 1)
        reduce_packets_left<R, kUnroll>(slice, adjust, static_cast<uint32_t>(head), 0, whole);
      reduce_packets_left<R, 1>(slice, adjust, static_cast<uint32_t>(head), kUnroll > 1 ? whole : 0,
                                static_cast<uint32_t>(packets));
    }
  }
  reduce_elements<R>(slice, adjust, head, tail);
}

/// The words take turns in the first place, so that the code of one serves all.
template <class R>
TUTTI_DEVICE_CALL PacketData reduce_operands(const Calculation& job, Operands operands) {
  const typename R::A adjust = R::adjustment(job);
  PacketData results = {};
  TUTTI_NO_UNROLL
  for (uint32_t turn = 0; turn < (R::G::kWords == 1 ? kPacketWords : 1); ++turn) {
    uint32_t low[reduce::kMaxSources];
    uint32_t high[reduce::kMaxSources];
    TUTTI_UNROLL
    for (uint32_t k = 0; k < reduce::kMaxSources; ++k) {
      uint32_t(&words)[kPacketWords] = operands.sources[k].words;
      low[k] = words[0];
      high[k] = words[1];
      words[0] = words[1];
      words[1] = words[2];
    }
    uint32_t low_result = 0;
    uint32_t high_result = 0;
    R::join_granules(adjust, low, high, job.source_count, low_result, high_result);
    if constexpr (R::G::kWords == 1) {
      results = {{results.words[1], results.words[2], low_result}};
    } else {
      results = {{low_result, high_result, 0}};
    }
  }
  return results;
}

/// Whether the job scales or divides.
TUTTI_DEVICE bool adjusts(const Calculation& job) {
  return job.scaled_sources != 0 || job.finishes != 0;
}

/// What is done for one type, operator and association: all of a slice, or what Operands hold.
struct OfSlice {
  template <class Elem, class Op, Association kAssociation>
  TUTTI_MEMBER void run(const Slice& slice, bool alike) {
    if constexpr (std::is_same_v<Op, operators::Sum>) {
      if (adjusts(slice)) return reduce_body<Reduction<Elem, Op, kAssociation, true>>(slice, alike);
    }
    reduce_body<Reduction<Elem, Op, kAssociation, false>>(slice, alike);
  }
};
struct OfOperands {
  /// Code that is short is fetched soon: one body scales and divides or not.
  template <class Elem, class Op, Association kAssociation>
  TUTTI_MEMBER PacketData run(const Calculation& job, const Operands& operands) {
    constexpr bool kAdjusts = std::is_same_v<Op, operators::Sum>;
    return reduce_operands<Reduction<Elem, Op, kAssociation, kAdjusts>>(job, operands);
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

/// What is published without being collected: a copy.
struct Copied {
  static constexpr uint32_t kUnroll = 8;
  static constexpr bool kLoadsMemory = true;
  struct Adjust {};
  TUTTI_MEMBER Adjust adjustment(const Slice& /*slice*/) { return {}; }
  TUTTI_MEMBER Packet load(const unsigned char* from) { return device::load_packet(from); }
  TUTTI_MEMBER void finish(const Adjust& /*adjust*/, Packet& /*packet*/) {}
};

template <class Elem, class Op, bool kAdjusts>
struct Collected {
  using R = Reduction<Elem, Op, Association::kLeft, kAdjusts>;
  using Adjust = typename R::A;
  static constexpr uint32_t kUnroll = R::kShort ? 1 : kAdjusts ? 4 : 8;
  static constexpr bool kLoadsMemory = false;
  TUTTI_MEMBER Adjust adjustment(const Slice& slice) {
    Adjust adjust = R::adjustment(slice);
    adjust.scaled_sources = 0;  // who contributes has scaled
    return adjust;
  }
  TUTTI_MEMBER Packet load(const unsigned char* from) { return device::LoadReduce<Elem, Op>::load(from); }
  TUTTI_MEMBER void finish(const Adjust& adjust, Packet& packet) {
    if constexpr (kAdjusts) {
      TUTTI_UNROLL
      for (uint32_t w = 0; w < 4; w += R::G::kWords) {
        typename R::Value values[R::G::kElements];
        R::G::load(packet.words[w], packet.words[w + R::G::kWords - 1], values);
        TUTTI_UNROLL
        for (uint32_t e = 0; e < R::G::kElements; ++e) values[e] = R::finished(adjust, values[e]);
        R::G::template store<R::kCanonical>(values, packet.words[w], packet.words[w + R::G::kWords - 1]);
      }
    }
  }
};

/// Whether all ends of the slice in ordinary memory are aligned to packets.
template <class Source>
TUTTI_DEVICE bool has_aligned_ends(const Slice& slice) {
  uint64_t bits = Source::kLoadsMemory ? reinterpret_cast<uint64_t>(slice.sources[0]) : 0;
  TUTTI_NO_UNROLL
  for (uint32_t m = 0; m < slice.sink_count; ++m) bits |= reinterpret_cast<uint64_t>(slice.sinks[m]);
  return bits % sizeof(Packet) == 0;
}

/// Whole packets [begin, end) between ends that are aligned: each thread has kUnroll packets on their way at
/// once.
template <class Source, uint32_t kUnroll>
TUTTI_DEVICE void multicast_whole(const Slice& slice, const typename Source::Adjust& adjust, uint32_t begin,
                                  uint32_t end) {
  const uint32_t stride = slice.movers * static_cast<uint32_t>(sizeof(Packet));
  const unsigned char* const source = slice.sources[0];
  TUTTI_NO_UNROLL
  for (uint32_t i = begin + device::thread_index(); i < end; i += kUnroll * slice.movers) {
    const uint64_t offset = i * sizeof(Packet);
    Packet packets[kUnroll];
    TUTTI_UNROLL
    for (uint32_t u = 0; u < kUnroll; ++u) packets[u] = Source::load(source + offset + u * stride);
    TUTTI_UNROLL
    for (uint32_t u = 0; u < kUnroll; ++u) Source::finish(adjust, packets[u]);
    TUTTI_NO_UNROLL
    for (uint32_t m = 0; m < slice.sink_count; ++m) {
      unsigned char* const sink = slice.sinks[m];
      const bool is_published = (slice.published >> m & 1) != 0;
      if (sink == nullptr || (!is_published && sink == source)) continue;
      TUTTI_UNROLL
      for (uint32_t u = 0; u < kUnroll; ++u) {
        unsigned char* const to = sink + offset + u * stride;
        if (is_published) {
          device::multimem_store_packet(to, packets[u]);
        } else {
          device::store_packet(to, packets[u]);
        }
      }
    }
  }
}

/// Packets [begin, end), of which the last may be a part, between any ends.
template <class Source>
TUTTI_DEVICE void multicast_parts(const Slice& slice, const typename Source::Adjust& adjust, uint32_t begin,
                                  uint32_t end) {
  const unsigned char* const source = slice.sources[0];
  TUTTI_NO_UNROLL
  for (uint32_t i = begin + device::thread_index(); i < end; i += slice.movers) {
    const uint64_t offset = i * sizeof(Packet);
    const uint64_t bytes = slice.bytes - offset;
    Packet packet;
    if constexpr (Source::kLoadsMemory) {
      packet = load_part(source + offset, bytes);
    } else {
      packet = Source::load(source + offset);
    }
    Source::finish(adjust, packet);
    TUTTI_NO_UNROLL
    for (uint32_t m = 0; m < slice.sink_count; ++m) {
      unsigned char* const sink = slice.sinks[m];
      if ((slice.published >> m & 1) != 0) {
        device::multimem_store_packet(sink + offset, packet);
      } else if (sink != nullptr && sink != source) {
        store_part(sink + offset, packet, bytes);
      }
    }
  }
}

template <class Source>
TUTTI_DEVICE_CALL void multicast_packets(const Slice& slice) {
  const typename Source::Adjust adjust = Source::adjustment(slice);
  const auto count = static_cast<uint32_t>((slice.bytes + sizeof(Packet) - 1) / sizeof(Packet));
  uint32_t whole = 0;
  uint32_t done = 0;
  if (has_aligned_ends<Source>(slice)) {
    done = static_cast<uint32_t>(slice.bytes / sizeof(Packet));
    if constexpr (Source::kUnroll > 1) {
      whole = whole_turns(slice, done, Source::kUnroll);
      multicast_whole<Source, Source::kUnroll>(slice, adjust, 0, whole);
    }
    multicast_whole<Source, 1>(slice, adjust, whole, done);
  }
  multicast_parts<Source>(slice, adjust, done, count);
}

/// What the hardware does not reduce no plan collects: plan/multicast.h.
struct OfCollected {
  template <class Elem, class Op, Association kAssociation>
  TUTTI_MEMBER void run(const Slice& slice) {
    if constexpr (kAssociation == Association::kLeft && device::kLoadReduces<Elem, Op>) {
      if constexpr (std::is_same_v<Op, operators::Sum>) {
        if (slice.finishes != 0) return multicast_packets<Collected<Elem, Op, true>>(slice);
      }
      multicast_packets<Collected<Elem, Op, false>>(slice);
    }
  }
};

/// Moves the slice with all movers of the block. No thread may touch what is moved before the next barrier.
/// A multicast slice needs an alias fence before the last barrier and after the next (multimem.h).
TUTTI_DEVICE_CALL void move_slice(const Slice& slice) {
  if (slice.collects != 0) return reduce_job<OfCollected>(slice);
  if (slice.published != 0) return multicast_packets<Copied>(slice);
  if (slice.copies != 0) return copy_slice(slice);
  reduce_job<OfSlice>(slice, misalignment(slice) == 0);
}

/// Results from a packet of each of the job's sources, by one thread. A call, so that pushing and pulling
/// share the search for the right body.
TUTTI_DEVICE_CALL PacketData reduce_words(const Calculation& job, Operands operands) {
  return reduce_job<OfOperands>(job, operands);
}

}  // namespace tutti::cuda
