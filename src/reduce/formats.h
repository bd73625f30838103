// Element types as scalars: reading, rounding and writing one element. The reference and the kernels' scalar
// paths use these functions, and tests compare the vector code with them.
//
// Small floats (float16, bfloat16, float8) are a sign, kExponentBits and kMantissaBits. Computation is in
// float32, which holds each value exactly. All conversions round to nearest, ties to even, and keep
// subnormals.
//
// - float16, bfloat16, float8_e5m2 are IEEE-like: overflow gives infinity.
// - float8_e4m3 is the OCP format without infinity: 0x7f and 0xff are NaN, the largest value is 448. Infinity
//   and magnitudes above 464 become NaN (464 itself is a tie and rounds to 448).
// - Narrowing to float8 writes the canonical NaN (0x7f, 0x7e), to float16 and bfloat16 some quiet NaN.
//
// Source: OCP 8-bit Floating Point Specification (OFP8), revision 1.0, 2023; IEEE 754-2019.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/host_device.h"

namespace tutti::reduce {

struct Float16 {
  using Bits = uint16_t;
  static constexpr int kMantissaBits = 10;
  static constexpr int kExponentBits = 5;
  static constexpr bool kHasInfinity = true;
};
struct Bfloat16 {
  using Bits = uint16_t;
  static constexpr int kMantissaBits = 7;
  static constexpr int kExponentBits = 8;
  static constexpr bool kHasInfinity = true;
};
struct Float8E4M3 {
  using Bits = uint8_t;
  static constexpr int kMantissaBits = 3;
  static constexpr int kExponentBits = 4;
  static constexpr bool kHasInfinity = false;
};
struct Float8E5M2 {
  using Bits = uint8_t;
  static constexpr int kMantissaBits = 2;
  static constexpr int kExponentBits = 5;
  static constexpr bool kHasInfinity = true;
};

/// Masks of a small float, for the scalar and the vector conversions.
template <class Small>
struct SmallFloat {
  static constexpr int kMantissaBits = Small::kMantissaBits;
  static constexpr int kShift = 23 - kMantissaBits;  ///< mantissa bits dropped from float32
  static constexpr int kBias = (1 << (Small::kExponentBits - 1)) - 1;
  static constexpr uint32_t kSignBit = 1u << (kMantissaBits + Small::kExponentBits);
  static constexpr uint32_t kMagnitude = kSignBit - 1;
  /// All exponent bits set: infinity, if the format has one.
  static constexpr uint32_t kInfinity = kMagnitude & ~((1u << kMantissaBits) - 1);
  static constexpr uint32_t kNan = Small::kHasInfinity ? kInfinity | (1u << (kMantissaBits - 1)) : kMagnitude;
  /// Converts an exponent from this format's bias to float32's.
  static constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
  /// float32 bits of the smallest normal value.
  static constexpr uint32_t kMinNormal = static_cast<uint32_t>(127 - kBias + 1) << 23;
  /// float32 bits of the power of two whose last place is this format's smallest subnormal: adding it rounds
  /// to that place. (Unused by bfloat16, whose exponents are float32's.)
  static constexpr uint32_t kSubnormalMagic = static_cast<uint32_t>(127 - kBias + 1 + kShift) << 23;
};

inline constexpr uint32_t kNanFloat32 = 0x7fc00000u;

/// The exact float32 value of a small float.
template <class Small>
constexpr float widen(typename Small::Bits bits) {
  using Format = SmallFloat<Small>;
  if constexpr (std::is_same_v<Small, Bfloat16>) return std::bit_cast<float>(uint32_t{bits} << 16);
  const uint32_t magnitude = bits & Format::kMagnitude;
  const uint32_t sign = (bits & Format::kSignBit) ? 0x80000000u : 0;
  const uint32_t shifted = magnitude << Format::kShift;
  uint32_t result = shifted + Format::kRebias;
  if (magnitude < (1u << Format::kMantissaBits)) {
    const float one_up = std::bit_cast<float>(shifted + Format::kMinNormal);
    result = std::bit_cast<uint32_t>(one_up - std::bit_cast<float>(Format::kMinNormal));
  } else if (Small::kHasInfinity && magnitude >= Format::kInfinity) {
    result = shifted | 0x7f800000u;
  } else if (!Small::kHasInfinity && magnitude == Format::kNan) {
    result = kNanFloat32;
  }
  return std::bit_cast<float>(result | sign);
}

/// A float32 rounded to a small float, as documented above.
template <class Small>
constexpr typename Small::Bits narrow(float value) {
  using Format = SmallFloat<Small>;
  using Bits = typename Small::Bits;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t sign = bits >> 31 ? Format::kSignBit : 0;
  if (magnitude > 0x7f800000u) return static_cast<Bits>(Format::kNan | (sizeof(Bits) == 1 ? 0 : sign));
  uint32_t rounded = 0;
  if (magnitude < Format::kMinNormal && !std::is_same_v<Small, Bfloat16>) {
    const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(Format::kSubnormalMagic);
    rounded = std::bit_cast<uint32_t>(sum) - Format::kSubnormalMagic;
  } else {
    const uint32_t odd = (magnitude >> Format::kShift) & 1;
    const uint32_t half = (1u << (Format::kShift - 1)) - 1;
    rounded = (magnitude + half + odd - Format::kRebias) >> Format::kShift;
  }
  if (Small::kHasInfinity) {
    if (rounded > Format::kInfinity) rounded = Format::kInfinity;
  } else if (rounded >= Format::kNan) {
    return static_cast<Bits>(Format::kNan);
  }
  return static_cast<Bits>(rounded | sign);
}

/// An element type for scalar code. Operators compute with `Value`.
template <class T>
struct Element {
  using Value = T;
  static constexpr size_t kBytes = sizeof(T);
  static constexpr bool kFloat = std::is_floating_point_v<T>;
  TUTTI_HOST_DEVICE static T from_bits(uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  TUTTI_HOST_DEVICE static T load(const uint8_t* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  TUTTI_HOST_DEVICE static void store(uint8_t* at, T value) { std::memcpy(at, &value, sizeof value); }
  TUTTI_HOST_DEVICE static T round(T value) { return value; }
};

template <class Small>
struct SmallElement {
  using Value = float;
  using Bits = typename Small::Bits;
  static constexpr size_t kBytes = sizeof(Bits);
  static constexpr bool kFloat = true;
  TUTTI_HOST_DEVICE static float from_bits(uint64_t bits) { return widen<Small>(static_cast<Bits>(bits)); }
  TUTTI_HOST_DEVICE static float load(const uint8_t* at) {
    Bits bits;
    std::memcpy(&bits, at, sizeof bits);
    return widen<Small>(bits);
  }
  TUTTI_HOST_DEVICE static void store(uint8_t* at, float value) {
    const Bits bits = narrow<Small>(value);
    std::memcpy(at, &bits, sizeof bits);
  }
  TUTTI_HOST_DEVICE static float round(float value) { return widen<Small>(narrow<Small>(value)); }
};
template <>
struct Element<Float16> : SmallElement<Float16> {};
template <>
struct Element<Bfloat16> : SmallElement<Bfloat16> {};
template <>
struct Element<Float8E4M3> : SmallElement<Float8E4M3> {};
template <>
struct Element<Float8E5M2> : SmallElement<Float8E5M2> {};

/// bool: any byte but 0 is true; results are 0 or 1.
template <>
struct Element<bool> {
  using Value = uint8_t;
  static constexpr size_t kBytes = 1;
  static constexpr bool kFloat = false;
  TUTTI_HOST_DEVICE static uint8_t from_bits(uint64_t bits) { return bits != 0; }
  TUTTI_HOST_DEVICE static uint8_t load(const uint8_t* at) { return *at != 0; }
  TUTTI_HOST_DEVICE static void store(uint8_t* at, uint8_t value) { *at = value; }
  TUTTI_HOST_DEVICE static uint8_t round(uint8_t value) { return value; }
};

template <class Value>
constexpr Value canonical_nan() {
  return std::numeric_limits<Value>::quiet_NaN();
}

/// Integers truncate toward zero; floats round once in their own precision.
template <class Value>
constexpr Value divide(Value value, uint64_t divisor) {
  if constexpr (std::is_floating_point_v<Value>) {
    return value / static_cast<Value>(divisor);
  } else if constexpr (std::is_unsigned_v<Value>) {
    return static_cast<Value>(value / divisor);
  } else {
    const auto bits = static_cast<uint64_t>(static_cast<int64_t>(value));
    const uint64_t quotient = (value < 0 ? 0 - bits : bits) / divisor;
    return static_cast<Value>(value < 0 ? 0 - quotient : quotient);
  }
}

}  // namespace tutti::reduce
