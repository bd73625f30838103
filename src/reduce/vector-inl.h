// Vectors of elements: reading, rounding, writing and combining them, on any SIMD target.
//
// Decoding turns a vector of bytes into one or more vectors of the computing type (its parts); encoding
// reverses this. For integers, float32 and float64 only the type's name changes. 16- and 8-bit floats become
// float32 parts. bfloat16 and the software formats split by position inside 32-bit lanes (even and odd
// elements), not by halves, so no data crosses lanes.
//
// foreach_target.h includes this file once per target, hence the unusual guard.
#if defined(TUTTI_REDUCE_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_VECTOR_INL_H_
#undef TUTTI_REDUCE_VECTOR_INL_H_
#else
#define TUTTI_REDUCE_VECTOR_INL_H_
#endif

#include "hwy/highway.h"
#include "reduce/formats.h"
#include "reduce/scalar.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::reduce::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vector = hn::Vec<Tag<T>>;
using ByteVector = Vector<uint8_t>;
inline constexpr size_t kVectorBytes = hn::MaxLanes(Tag<uint8_t>());

/// A few vectors in registers. Named members, because compilers keep arrays in memory.
template <class V, int kCount>
struct Group;
template <class V>
struct Group<V, 1> {
  V a;
};
template <class V>
struct Group<V, 2> {
  V a, b;
};
template <class V>
struct Group<V, 4> {
  V a, b, c, d;
};

/// function(x) or function(x, y) of each member.
template <class Function, class V>
HWY_INLINE Group<V, 1> map(const Function& function, const Group<V, 1>& x) {
  return {function(x.a)};
}
template <class Function, class V>
HWY_INLINE Group<V, 2> map(const Function& function, const Group<V, 2>& x) {
  return {function(x.a), function(x.b)};
}
template <class Function, class V>
HWY_INLINE Group<V, 4> map(const Function& function, const Group<V, 4>& x) {
  return {function(x.a), function(x.b), function(x.c), function(x.d)};
}
template <class Function, class V>
HWY_INLINE Group<V, 1> map(const Function& function, const Group<V, 1>& x, const Group<V, 1>& y) {
  return {function(x.a, y.a)};
}
template <class Function, class V>
HWY_INLINE Group<V, 2> map(const Function& function, const Group<V, 2>& x, const Group<V, 2>& y) {
  return {function(x.a, y.a), function(x.b, y.b)};
}
template <class Function, class V>
HWY_INLINE Group<V, 4> map(const Function& function, const Group<V, 4>& x, const Group<V, 4>& y) {
  return {function(x.a, y.a), function(x.b, y.b), function(x.c, y.c), function(x.d, y.d)};
}

// ---- element formats ----------------------------------------------------------------------------

/// Eight 16-bit elements, which become 256 bits of float32.
using PieceBytes = hn::Full128<uint8_t>;
using Piece = hn::Vec<PieceBytes>;
inline constexpr size_t kPieceBytes = 16;

HWY_INLINE ByteVector load(const uint8_t* at) {
  return hn::LoadU(Tag<uint8_t>(), at);
}
HWY_INLINE void store(ByteVector bytes, uint8_t* at) {
  hn::StoreU(bytes, Tag<uint8_t>(), at);
}
/// Non-temporal stores; `at` is a multiple of kVectorBytes.
HWY_INLINE void stream(ByteVector bytes, uint8_t* at) {
  hn::Stream(bytes, Tag<uint8_t>(), at);
}
HWY_INLINE ByteVector joined(ByteVector bytes) {
  return bytes;
}

template <bool kStreams, class Unit>
HWY_INLINE void put(const Unit& unit, uint8_t* at) {
  if constexpr (kStreams) {
    stream(unit, at);
  } else {
    store(unit, at);
  }
}

/// Streaming: with non-temporal stores.
template <bool kStreams = false, class Unit>
HWY_INLINE void store_group(const Group<Unit, 1>& units, uint8_t* at) {
  put<kStreams>(units.a, at);
}
template <bool kStreams = false, class Unit>
HWY_INLINE void store_group(const Group<Unit, 2>& units, uint8_t* at) {
  put<kStreams>(units.a, at);
  put<kStreams>(units.b, at + kVectorBytes);
}
template <bool kStreams = false, class Unit>
HWY_INLINE void store_group(const Group<Unit, 4>& units, uint8_t* at) {
  put<kStreams>(units.a, at);
  put<kStreams>(units.b, at + kVectorBytes);
  put<kStreams>(units.c, at + 2 * kVectorBytes);
  put<kStreams>(units.d, at + 3 * kVectorBytes);
}
/// Reads a vector from any address. Formats that convert by pieces read pieces: moving part of a register
/// costs as much as converting it.
template <class Format>
HWY_INLINE auto load_parts(const uint8_t* at) {
  return Format::decode(hn::LoadU(Tag<uint8_t>(), at));
}

/// Types that need no conversion.
template <class T>
struct Plain {
  using Elem = Element<T>;
  using Part = Vector<T>;
  static constexpr int kParts = 1;
  static constexpr bool kRounds = false;

  static HWY_INLINE Group<Vector<T>, 1> decode(ByteVector bytes) { return {hn::BitCast(Tag<T>(), bytes)}; }
  static HWY_INLINE ByteVector encode(const Group<Vector<T>, 1>& parts) {
    return hn::BitCast(Tag<uint8_t>(), parts.a);
  }
  static HWY_INLINE Vector<T> round(Vector<T> value) { return value; }
};

/// bool: any byte but 0 is true; results are 0 or 1.
struct PlainBool : Plain<uint8_t> {
  using Elem = Element<bool>;
  static HWY_INLINE Group<ByteVector, 1> decode(ByteVector bytes) {
    return {hn::Min(bytes, hn::Set(Tag<uint8_t>(), 1))};
  }
};

/// bfloat16. Rounding adds just under half a place to the float32 bits. NaN needs no special case. Each NaN
/// here comes from a bfloat16 operand or is the processor's default, so its low 16 bits are 0 and the
/// addition does not reach the upper half.
struct VectorBfloat16 {
  using Elem = Element<Bfloat16>;
  using Part = Vector<float>;
  static constexpr int kParts = 2;
  static constexpr bool kRounds = true;

  static HWY_INLINE Group<Vector<float>, 2> decode(ByteVector bytes) {
    const Tag<uint32_t> du;
    const auto bits = hn::BitCast(du, bytes);
    return {hn::BitCast(Tag<float>(), hn::ShiftLeft<16>(bits)),
            hn::BitCast(Tag<float>(), hn::And(bits, hn::Set(du, 0xffff0000u)))};
  }
  static HWY_INLINE Vector<uint32_t> rounded_bits(Vector<float> value) {
    const Tag<uint32_t> du;
    const auto bits = hn::BitCast(du, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    return hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
  }
  /// Rounds both parts at once, in 16-bit lanes. `high`: upper halves of the float32 bits in element order;
  /// `low`: lower halves. Rounds up if low is above half a place, or at half and high is odd.
  static HWY_INLINE ByteVector encode(const Group<Vector<float>, 2>& parts) {
    const Tag<uint16_t> dh;
    const Tag<uint32_t> du;
    const auto even = hn::BitCast(du, parts.a);
    const auto odd = hn::BitCast(du, parts.b);
    const auto high = hn::OddEven(hn::BitCast(dh, odd), hn::BitCast(dh, hn::ShiftRight<16>(even)));
    const auto low = hn::OddEven(hn::BitCast(dh, hn::ShiftLeft<16>(odd)), hn::BitCast(dh, even));
    const auto one = hn::Set(dh, 1);
    const auto up = hn::Gt(hn::OrAnd(low, high, one), hn::Set(dh, 0x8000));
    return hn::BitCast(Tag<uint8_t>(), hn::IfThenElse(up, hn::Add(high, one), high));
  }
  static HWY_INLINE Vector<float> round(Vector<float> value) {
    return hn::BitCast(Tag<float>(), hn::And(rounded_bits(value), hn::Set(Tag<uint32_t>(), 0xffff0000u)));
  }
};

/// Small floats by integer arithmetic: widen and narrow of formats.h, lane by lane. Conversions are calls.
/// Inline they would be 30 % faster, but double the size and compile time of the whole folder.
template <class Small>
struct SoftFloat {
  using Elem = Element<Small>;
  using Format = SmallFloat<Small>;
  using Part = Vector<float>;
  using Unsigned = Tag<uint32_t>;
  static constexpr int kBits = 8 * sizeof(typename Small::Bits);
  static constexpr int kParts = 32 / kBits;
  static constexpr bool kRounds = true;

  static HWY_INLINE Vector<float> widen_lanes(Vector<uint32_t> bits) {
    const Unsigned du;
    const Tag<float> df;
    const auto magnitude = hn::And(bits, hn::Set(du, Format::kMagnitude));
    const auto sign =
        hn::ShiftLeft<32 - kBits>(hn::And(bits, hn::Set(du, static_cast<uint32_t>(Format::kSignBit))));
    const auto shifted = hn::ShiftLeft<Format::kShift>(magnitude);
    const auto min_normal = hn::Set(du, Format::kMinNormal);
    const auto normal = hn::Add(shifted, hn::Set(du, Format::kRebias));
    const auto subnormal =
        hn::BitCast(du, hn::Sub(hn::BitCast(df, hn::Add(shifted, min_normal)), hn::BitCast(df, min_normal)));
    const auto is_subnormal = hn::Lt(signed_lanes(magnitude), signed_value(1u << Format::kMantissaBits));
    auto result = hn::IfThenElse(hn::RebindMask(du, is_subnormal), subnormal, normal);
    if constexpr (Small::kHasInfinity) {
      const auto is_special = hn::Gt(signed_lanes(magnitude), signed_value(Format::kInfinity - 1));
      result =
          hn::IfThenElse(hn::RebindMask(du, is_special), hn::Or(shifted, hn::Set(du, 0x7f800000u)), result);
    } else {
      result = hn::IfThenElse(hn::Eq(magnitude, hn::Set(du, Format::kNan)), hn::Set(du, kNanFloat32), result);
    }
    return hn::BitCast(df, hn::Or(result, sign));
  }

  static HWY_INLINE Vector<uint32_t> narrow_lanes(Vector<float> value) {
    const Unsigned du;
    const Tag<float> df;
    const auto bits = hn::BitCast(du, value);
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
    const auto sign =
        hn::And(hn::ShiftRight<32 - kBits>(bits), hn::Set(du, static_cast<uint32_t>(Format::kSignBit)));
    const auto odd = hn::And(hn::ShiftRight<Format::kShift>(magnitude), hn::Set(du, 1));
    const auto offset = hn::Set(du, (1u << (Format::kShift - 1)) - 1 - Format::kRebias);
    const auto normal = hn::ShiftRight<Format::kShift>(hn::Add(hn::Add(magnitude, offset), odd));
    const auto magic = hn::Set(du, Format::kSubnormalMagic);
    const auto subnormal =
        hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, magic))), magic);
    const auto is_subnormal = hn::Lt(signed_lanes(magnitude), signed_value(Format::kMinNormal));
    auto result = hn::IfThenElse(hn::RebindMask(du, is_subnormal), subnormal, normal);
    result = hn::Min(result, hn::Set(du, Small::kHasInfinity ? Format::kInfinity : Format::kNan));
    const auto is_nan = Small::kHasInfinity ? hn::Gt(signed_lanes(magnitude), signed_value(0x7f800000u))
                                            : hn::Eq(signed_lanes(result), signed_value(Format::kNan));
    const auto nan = hn::Set(du, Format::kNan);
    if constexpr (kBits == 8) return hn::IfThenElse(hn::RebindMask(du, is_nan), nan, hn::Or(result, sign));
    return hn::Or(hn::IfThenElse(hn::RebindMask(du, is_nan), nan, result), sign);
  }

  static HWY_NOINLINE Group<Vector<float>, kParts> decode(ByteVector bytes) {
    const auto bits = hn::BitCast(Unsigned(), bytes);
    if constexpr (kParts == 2) {
      return {widen_lanes(bits), widen_lanes(hn::ShiftRight<16>(bits))};
    } else {
      return {widen_lanes(bits), widen_lanes(hn::ShiftRight<8>(bits)), widen_lanes(hn::ShiftRight<16>(bits)),
              widen_lanes(hn::ShiftRight<24>(bits))};
    }
  }
  static HWY_NOINLINE ByteVector encode(const Group<Vector<float>, kParts>& parts) {
    auto bits = hn::Or(narrow_lanes(parts.a), hn::ShiftLeft<kBits>(narrow_lanes(parts.b)));
    if constexpr (kParts == 4) {
      bits = hn::Or(bits, hn::ShiftLeft<16>(narrow_lanes(parts.c)));
      bits = hn::Or(bits, hn::ShiftLeft<24>(narrow_lanes(parts.d)));
    }
    return hn::BitCast(Tag<uint8_t>(), bits);
  }
  static HWY_NOINLINE Vector<float> round(Vector<float> value) { return widen_lanes(narrow_lanes(value)); }

 private:
  static HWY_INLINE Vector<int32_t> signed_lanes(Vector<uint32_t> value) {
    return hn::BitCast(Tag<int32_t>(), value);
  }
  static HWY_INLINE Vector<int32_t> signed_value(uint32_t value) {
    return hn::Set(Tag<int32_t>(), static_cast<int32_t>(value));
  }
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
template <class V>
HWY_INLINE auto split(V bytes) {
  const hn::Half<hn::DFromV<V>> dh;
  const auto low = hn::LowerHalf(dh, bytes);
  const auto high = hn::UpperHalf(dh, bytes);
  if constexpr (sizeof(V) == 2 * kPieceBytes) {
    return Group<Piece, 2>{low, high};
  } else {
    const auto first = split(low);
    const auto last = split(high);
    return Group<Piece, 4>{first.a, first.b, last.a, last.b};
  }
}

template <int kPieces>
HWY_INLINE Group<Piece, kPieces> load_pieces(const uint8_t* at) {
  const PieceBytes d;
  if constexpr (kPieces == 2) {
    return {hn::LoadU(d, at), hn::LoadU(d, at + kPieceBytes)};
  } else {
    return {hn::LoadU(d, at), hn::LoadU(d, at + kPieceBytes), hn::LoadU(d, at + 2 * kPieceBytes),
            hn::LoadU(d, at + 3 * kPieceBytes)};
  }
}

/// float16 by the processor's conversions (F16C), which round to nearest even. On other targets Highway
/// truncates and has no infinities, so SoftFloat serves there. Parts have 256 bits even on AVX-512: on Zen 4,
/// converting 512 bits is 10 % slower. x * 1 + y is the same float32 as x + y, but does not use the pipes
/// that convert. That saves time: 1.85 instead of 2.6 ns per 64 bytes of a sum.
template <int kPieces>
struct PiecewiseFloat16 {
  using Elem = Element<Float16>;
  using Floats = hn::CappedTag<float, 8>;
  using Part = hn::Vec<Floats>;
  using Half = hn::Rebind<hwy::float16_t, Floats>;
  static constexpr int kParts = kPieces;
  static constexpr bool kRounds = true;

  static HWY_INLINE Part widened(Piece piece) { return hn::PromoteTo(Floats(), hn::BitCast(Half(), piece)); }
  static HWY_INLINE Piece narrowed(Part part) {
    return hn::BitCast(PieceBytes(), hn::DemoteTo(Half(), part));
  }
  static HWY_INLINE Group<Part, kParts> decode(ByteVector bytes) { return widened_group(split(bytes)); }
  static HWY_INLINE Group<Part, 2> widened_group(const Group<Piece, 2>& pieces) {
    return {widened(pieces.a), widened(pieces.b)};
  }
  static HWY_INLINE Group<Part, 4> widened_group(const Group<Piece, 4>& pieces) {
    return {widened(pieces.a), widened(pieces.b), widened(pieces.c), widened(pieces.d)};
  }
  static HWY_INLINE auto encode(const Group<Part, kParts>& parts) {
    if constexpr (kParts == 2) {
      return Group<Piece, 2>{narrowed(parts.a), narrowed(parts.b)};
    } else {
      return Group<Piece, 4>{narrowed(parts.a), narrowed(parts.b), narrowed(parts.c), narrowed(parts.d)};
    }
  }
  static HWY_INLINE Part round(Part value) { return widened(narrowed(value)); }
};
using VectorFloat16 = PiecewiseFloat16<kVectorBytes / kPieceBytes>;
template <>
HWY_INLINE auto load_parts<VectorFloat16>(const uint8_t* at) {
  return VectorFloat16::widened_group(load_pieces<VectorFloat16::kParts>(at));
}

HWY_INLINE void store(const Group<Piece, 2>& pieces, uint8_t* at) {
  const PieceBytes d;
  hn::StoreU(pieces.a, d, at);
  hn::StoreU(pieces.b, d, at + kPieceBytes);
}
HWY_INLINE void store(const Group<Piece, 4>& pieces, uint8_t* at) {
  store(Group<Piece, 2>{pieces.a, pieces.b}, at);
  store(Group<Piece, 2>{pieces.c, pieces.d}, at + 2 * kPieceBytes);
}
HWY_INLINE auto joined(const Group<Piece, 2>& pieces) {
  return hn::Combine(hn::CappedTag<uint8_t, 2 * kPieceBytes>(), pieces.b, pieces.a);
}
template <class P>
HWY_INLINE auto joined(const Group<P, 4>& pieces) {
  const auto high = joined(Group<P, 2>{pieces.c, pieces.d});
  return hn::Combine(Tag<uint8_t>(), high, joined(Group<P, 2>{pieces.a, pieces.b}));
}
HWY_INLINE void stream(const Group<Piece, 2>& pieces, uint8_t* at) {
  const PieceBytes d;
  hn::Stream(pieces.a, d, at);
  hn::Stream(pieces.b, d, at + kPieceBytes);
}
HWY_INLINE void stream(const Group<Piece, 4>& pieces, uint8_t* at) {
  stream(Group<Piece, 2>{pieces.a, pieces.b}, at);
  stream(Group<Piece, 2>{pieces.c, pieces.d}, at + 2 * kPieceBytes);
}
#else
using VectorFloat16 = SoftFloat<Float16>;
#endif

template <class T>
struct FormatOf {
  using Type = Plain<T>;
};
template <>
struct FormatOf<bool> {
  using Type = PlainBool;
};
template <>
struct FormatOf<Float16> {
  using Type = VectorFloat16;
};
template <>
struct FormatOf<Bfloat16> {
  using Type = VectorBfloat16;
};
template <>
struct FormatOf<Float8E4M3> {
  using Type = SoftFloat<Float8E4M3>;
};
template <>
struct FormatOf<Float8E5M2> {
  using Type = SoftFloat<Float8E5M2>;
};

// ---- operators on vectors -----------------------------------------------------------------------

template <class V>
HWY_INLINE V multiply(V a, V b) {
  using T = hn::TFromV<V>;
  if constexpr (sizeof(T) == 1) {
    // There is no 8-bit multiplication: even and odd bytes are the low bytes of 16-bit products.
    const Tag<uint16_t> dh;
    const auto a16 = hn::BitCast(dh, a);
    const auto b16 = hn::BitCast(dh, b);
    const auto even = hn::Mul(a16, b16);
    const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16)));
    return hn::OddEven(hn::BitCast(Tag<T>(), odd), hn::BitCast(Tag<T>(), even));
  } else if constexpr (sizeof(T) == 8 && !hwy::IsFloat<T>()) {
    // a * b mod 2^64 = low * low + ((low * high + high * low) << 32).
    const Tag<uint32_t> dw;
    const Tag<T> dl;
    const auto a32 = hn::BitCast(dw, a);
    const auto b32 = hn::BitCast(dw, b);
    const auto cross = hn::BitCast(dl, hn::Mul(a32, hn::Shuffle2301(b32)));
    const auto high = hn::ShiftLeft<32>(hn::Add(cross, hn::ShiftRight<32>(cross)));
    return hn::Add(hn::BitCast(dl, hn::MulEven(a32, b32)), high);
  } else {
    return hn::Mul(a, b);
  }
}

/// The smaller operand; for floats -0 < +0 and NaN wins. On x86 the minimum returns its second operand if
/// one is NaN or both are zeros, so or-ing both orders keeps NaN and -0. Elsewhere it may prefer numbers.
template <class V>
HWY_INLINE V minimum(V a, V b) {
  if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
    const V least = hn::Or(hn::Min(a, b), hn::Min(b, a));
    if constexpr (HWY_ARCH_X86 == 0)
      return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, least));
    return least;
  } else {
    return hn::Min(a, b);
  }
}

/// The larger operand; for floats the negated minimum of the negated operands.
template <class V>
HWY_INLINE V maximum(V a, V b) {
  if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
    const V sign = hn::SignBit(hn::DFromV<V>());
    return hn::Xor(sign, minimum(hn::Xor(sign, a), hn::Xor(sign, b)));
  } else {
    return hn::Max(a, b);
  }
}

template <class V>
HWY_INLINE V replace_nan(V value) {
  using T = hn::TFromV<V>;
  return hn::IfThenElse(hn::IsNaN(value), hn::Set(hn::DFromV<V>(), canonical_nan<T>()), value);
}

/// The divisor of all lanes, prepared once per call. Quotients of 8- and 16-bit integers are exact after
/// truncation in float32, those of 32-bit integers in float64: operand / divisor is further from the next
/// integer than one rounding error.
template <class V>
struct Divisor {
  using T = hn::TFromV<V>;
  using D = hn::DFromV<V>;
  static constexpr bool kFloat = hwy::IsFloat<T>();
  using Number = std::conditional_t<
      kFloat, T,
      std::conditional_t<sizeof(T) <= 2, float, std::conditional_t<sizeof(T) == 4, double, uint64_t>>>;

  Number value;
  Number reciprocal;  ///< floats: 1 / value if exact, else 0

  explicit Divisor(uint64_t divisor)
      : value(static_cast<Number>(divisor)),
        reciprocal(kFloat && std::has_single_bit(divisor) ? Number{1} / static_cast<Number>(divisor)
                                                          : Number{0}) {}

  HWY_INLINE V operator()(V vector) const {
    if constexpr (kFloat) {
      // For powers of two: the same bits at a fifth of the cost.
      if (reciprocal != 0) return hn::Mul(vector, hn::Set(D(), reciprocal));
      return hn::Div(vector, hn::Set(D(), value));
    } else {
      HWY_ALIGN T lanes[hn::MaxLanes(D())];
      hn::Store(vector, D(), lanes);
      for (T& lane : lanes) {
        if constexpr (sizeof(T) == 8) {
          lane = divide(lane, value);
        } else {
          lane = static_cast<T>(static_cast<Number>(lane) / value);
        }
      }
      return hn::Load(D(), lanes);
    }
  }
};

/// a + b; for 256-bit float16 as a multiplication by one: see VectorFloat16.
template <class Format, class V>
HWY_INLINE V add(V a, V b) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<Format, VectorFloat16>)
    return hn::MulAdd(a, hn::Set(hn::DFromV<V>(), 1.0f), b);
#endif
  return hn::Add(a, b);
}

/// A function of core/operators.h on vectors: lane by lane, unless a specialisation below is faster.
template <class Function>
struct VectorFunction {
  template <class Format, class V>
  static HWY_INLINE V apply(V a, V b) {
    using D = hn::DFromV<V>;
    using Lane = hn::TFromV<V>;
    HWY_ALIGN Lane left[hn::MaxLanes(D())];
    HWY_ALIGN Lane right[hn::MaxLanes(D())];
    hn::Store(a, D(), left);
    hn::Store(b, D(), right);
    for (size_t i = 0; i < hn::MaxLanes(D()); ++i) left[i] = Function::combine(left[i], right[i]);
    return hn::Load(D(), left);
  }
};
#define TUTTI_VECTOR_FUNCTION(Function, expression) \
  template <>                                       \
  struct VectorFunction<operators::Function> {      \
    template <class Format, class V>                \
    static HWY_INLINE V apply(V a, V b) {           \
      return expression;                            \
    }                                               \
  }
TUTTI_VECTOR_FUNCTION(Sum, add<Format>(a, b));
TUTTI_VECTOR_FUNCTION(Prod, multiply(a, b));
TUTTI_VECTOR_FUNCTION(Min, minimum(a, b));
TUTTI_VECTOR_FUNCTION(Max, maximum(a, b));
TUTTI_VECTOR_FUNCTION(And, hn::And(a, b));
TUTTI_VECTOR_FUNCTION(Or, hn::Or(a, b));
TUTTI_VECTOR_FUNCTION(Xor, hn::Xor(a, b));
#undef TUTTI_VECTOR_FUNCTION
#endif  // SIMD targets

/// A function in its role, with what the loops need to know.
template <class Function, operators::Role kRole>
struct VectorOperator : Function {
  static constexpr bool kScaled = kRole == operators::Role::kScaled;    ///< uses Job::scaled_sources
  static constexpr bool kAverage = kRole == operators::Role::kAverage;  ///< uses Job::finish
  /// Has its own loops for two sources.
  static constexpr bool kHot = std::is_same_v<Function, operators::Sum> && !kScaled && !kAverage;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  template <class Format, class V>
  static HWY_INLINE V apply(V a, V b) {
    return VectorFunction<Function>::template apply<Format>(a, b);
  }
#endif
};

}  // namespace tutti::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
