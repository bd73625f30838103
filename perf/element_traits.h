// Compile-time view of each element type for the data generator: storage, kind, float layout, and exact
// conversion of numbers into the small float formats, which C++20 lacks.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "tutti/tutti.h"

namespace tutti::perf {

enum class Kind : uint8_t { kInteger, kFloat, kBool };

/// `Storage` holds the bits. For integers it has the type's sign; for floats it is unsigned.
template <class StorageType, Kind kKindValue, int kExponentBits = 0, int kMantissaBits = 0>
struct ElementTraits {
  using Storage = StorageType;
  using Bits = std::make_unsigned_t<StorageType>;
  static constexpr Kind kKind = kKindValue;
  static constexpr int kExponent = kExponentBits;
  static constexpr int kMantissa = kMantissaBits;
  static constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
};

/// Calls body(ElementTraits<...>{}) for the type and returns its result.
template <class Body>
decltype(auto) with_traits(tutti_type_t type, Body&& body) {
  switch (type) {
    case TUTTI_INT8: return body(ElementTraits<int8_t, Kind::kInteger>{});
    case TUTTI_INT16: return body(ElementTraits<int16_t, Kind::kInteger>{});
    case TUTTI_INT32: return body(ElementTraits<int32_t, Kind::kInteger>{});
    case TUTTI_INT64: return body(ElementTraits<int64_t, Kind::kInteger>{});
    case TUTTI_UINT16: return body(ElementTraits<uint16_t, Kind::kInteger>{});
    case TUTTI_UINT32: return body(ElementTraits<uint32_t, Kind::kInteger>{});
    case TUTTI_UINT64: return body(ElementTraits<uint64_t, Kind::kInteger>{});
    case TUTTI_FLOAT16: return body(ElementTraits<uint16_t, Kind::kFloat, 5, 10>{});
    case TUTTI_BFLOAT16: return body(ElementTraits<uint16_t, Kind::kFloat, 8, 7>{});
    case TUTTI_FLOAT32: return body(ElementTraits<uint32_t, Kind::kFloat, 8, 23>{});
    case TUTTI_FLOAT64: return body(ElementTraits<uint64_t, Kind::kFloat, 11, 52>{});
    case TUTTI_FLOAT8_E4M3: return body(ElementTraits<uint8_t, Kind::kFloat, 4, 3>{});
    case TUTTI_FLOAT8_E5M2: return body(ElementTraits<uint8_t, Kind::kFloat, 5, 2>{});
    case TUTTI_BOOL: return body(ElementTraits<uint8_t, Kind::kBool>{});
    default: return body(ElementTraits<uint8_t, Kind::kInteger>{});
  }
}

/// Rounds a float to the format of E exponent and M mantissa bits: to nearest, ties to even, subnormals kept.
/// The value must be in the format's range, as the generator's data is.
template <class Bits>
Bits encode_small_float(float value, int exponent_bits, int mantissa_bits) {
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (word >> 31) << (exponent_bits + mantissa_bits);
  const uint32_t magnitude = word & 0x7fffffffu;
  if (magnitude == 0) return static_cast<Bits>(sign);
  // A subnormal float32 has the exponent of the smallest normal one, and no leading 1.
  const bool is_normal = magnitude >= 0x800000u;
  const int exponent = static_cast<int>(is_normal ? magnitude >> 23 : 1) - 127;
  const int least_exponent = 2 - (1 << (exponent_bits - 1));
  const uint32_t significand = (magnitude & 0x7fffffu) | (is_normal ? 0x800000u : 0u);
  const bool subnormal = exponent < least_exponent;
  const int shift = 23 - mantissa_bits + (subnormal ? least_exponent - exponent : 0);
  if (shift > 24) return static_cast<Bits>(sign);
  const uint32_t kept = significand >> shift;
  const uint32_t rest = significand & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  const uint32_t rounded = kept + ((rest > half || (rest == half && (kept & 1u))) ? 1u : 0u);
  // A normal number's significand still holds its leading 1, which adds the missing 1 to the exponent field.
  // A carry out of the mantissa goes there too.
  const uint32_t exponent_field =
      subnormal ? 0u : static_cast<uint32_t>(exponent - least_exponent) << mantissa_bits;
  return static_cast<Bits>(sign | (exponent_field + rounded));
}

template <class Traits>
typename Traits::Bits encode_float(double value) {
  static_assert(Traits::kKind == Kind::kFloat);
  if constexpr (Traits::kMantissa == 52) {
    return std::bit_cast<uint64_t>(value);
  } else if constexpr (Traits::kMantissa == 23) {
    return std::bit_cast<uint32_t>(static_cast<float>(value));
  } else {
    return encode_small_float<typename Traits::Bits>(static_cast<float>(value), Traits::kExponent,
                                                     Traits::kMantissa);
  }
}

template <class Traits>
double decode_float(typename Traits::Bits bits) {
  static_assert(Traits::kKind == Kind::kFloat);
  if constexpr (Traits::kMantissa == 52) {
    return std::bit_cast<double>(bits);
  } else {
    // Moves the fields to their positions in float32, whose exponent bias differs.
    const auto magnitude = static_cast<uint32_t>(bits & static_cast<typename Traits::Bits>(~Traits::kSign));
    constexpr uint32_t kBias = (1U << (Traits::kExponent - 1)) - 1;
    const auto value = std::bit_cast<float>(magnitude << (23 - Traits::kMantissa));
    const double scaled = static_cast<double>(value) * std::bit_cast<float>((254 - kBias) << 23);
    return (bits & Traits::kSign) != 0 ? -scaled : scaled;
  }
}

/// Maps float bits to integers in the order of their values. Neighbours differ by 1; both zeros give 0.
template <class Traits>
int64_t float_order(typename Traits::Bits bits) {
  const int64_t magnitude = static_cast<int64_t>(bits & static_cast<typename Traits::Bits>(~Traits::kSign));
  return (bits & Traits::kSign) ? -magnitude : magnitude;
}

}  // namespace tutti::perf
