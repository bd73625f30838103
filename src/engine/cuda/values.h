// Values: how a thread's registers hold the elements of a packet, and how small floats become float32 and
// back with the device's own instructions.
//
// A granule is one 32-bit word of a packet, or two of an element of 8 bytes. All indices are constants once
// the loops are unrolled, so the compiler keeps everything in registers: tests/cuda/sass_test.py.
//
// The results are those of reduce/formats.h, to the bit but for the payload of a NaN. Where that matters,
// `Canonical` makes it the canonical one.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/operators.h"
#include "engine/cuda/device.h"
#include "reduce/formats.h"

namespace tutti::cuda::device {

// ---- extremes -----------------------------------------------------------------------------------

#if defined(__CUDACC__)

/// As operators::Min and Max: -0 is below +0, and a NaN operand gives a NaN.
TUTTI_DEVICE float minimum(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
TUTTI_DEVICE float maximum(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

#else

TUTTI_DEVICE float minimum(float a, float b) {
  return operators::Min::combine(a, b);
}
TUTTI_DEVICE float maximum(float a, float b) {
  return operators::Max::combine(a, b);
}

#endif

// ---- small floats -------------------------------------------------------------------------------

/// One small float, in the low bits.
template <class Small>
TUTTI_DEVICE float widen(uint32_t bits);
/// Two floats, rounded; the first in the low half of the bits. The payload of a 16-bit NaN is unspecified.
template <class Small>
TUTTI_DEVICE uint32_t narrow_two(float first, float second);

#if defined(__CUDACC__)

template <>
TUTTI_DEVICE float widen<reduce::Float16>(uint32_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(bits)));
  return value;
}
template <>
TUTTI_DEVICE float widen<reduce::Bfloat16>(uint32_t bits) {
  return __uint_as_float(bits << 16);
}
/// As float16 the bits stand for the value divided by 256, exactly.
template <>
TUTTI_DEVICE float widen<reduce::Float8E4M3>(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7f;
  const float value = widen<reduce::Float16>((bits & 0x80) << 8 | magnitude << 7) * 256.0f;
  return magnitude == 0x7f ? __uint_as_float(reduce::kNanFloat32) : value;
}
template <>
TUTTI_DEVICE float widen<reduce::Float8E5M2>(uint32_t bits) {
  return widen<reduce::Float16>(bits << 8);
}

template <>
TUTTI_DEVICE uint32_t narrow_two<reduce::Float16>(float first, float second) {
  uint32_t bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
  return bits;
}
template <>
TUTTI_DEVICE uint32_t narrow_two<reduce::Bfloat16>(float first, float second) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
  return bits;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
/// The instruction makes infinity and what is too large the largest value, and a NaN the canonical one.
template <>
TUTTI_DEVICE uint32_t narrow_two<reduce::Float8E4M3>(float first, float second) {
  uint16_t bits;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(second), "f"(first));
  constexpr float kMost = 464.0f;  // a tie, which rounds to 448
  const uint32_t low = fabsf(first) <= kMost ? bits & 0xffu : 0x7fu;
  const uint32_t high = fabsf(second) <= kMost ? bits & 0xff00u : 0x7f00u;
  return low | high;
}
template <>
TUTTI_DEVICE uint32_t narrow_two<reduce::Float8E5M2>(float first, float second) {
  uint16_t bits;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(second), "f"(first));
  constexpr float kInfinite = 61440.0f;  // a tie, which rounds to infinity
  const auto fix = [](uint32_t byte, float value) {
    const uint32_t infinity = 0x7cu | (byte & 0x80u);
    const uint32_t finite = fabsf(value) >= kInfinite ? infinity : byte;
    return value != value ? 0x7eu : finite;
  };
  return fix(bits & 0xffu, first) | fix(bits >> 8, second) << 8;
}
#else
template <>
TUTTI_DEVICE uint32_t narrow_two<reduce::Float8E4M3>(float first, float second) {
  return reduce::narrow<reduce::Float8E4M3>(first) |
         static_cast<uint32_t>(reduce::narrow<reduce::Float8E4M3>(second)) << 8;
}
template <>
TUTTI_DEVICE uint32_t narrow_two<reduce::Float8E5M2>(float first, float second) {
  return reduce::narrow<reduce::Float8E5M2>(first) |
         static_cast<uint32_t>(reduce::narrow<reduce::Float8E5M2>(second)) << 8;
}
#endif

#else

template <class Small>
TUTTI_DEVICE float widen(uint32_t bits) {
  return reduce::widen<Small>(static_cast<typename Small::Bits>(bits));
}
template <class Small>
TUTTI_DEVICE uint32_t narrow_two(float first, float second) {
  constexpr uint32_t kBits = 8 * sizeof(typename Small::Bits);
  return reduce::narrow<Small>(first) | static_cast<uint32_t>(reduce::narrow<Small>(second)) << kBits;
}

#endif

}  // namespace tutti::cuda::device

namespace tutti::cuda {

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

/// Elements of the type's own representation.
template <class Elem>
struct Codec {
  using Value = typename Elem::Value;
  using Bits = typename RawBits<Elem::kBytes>::Type;

  TUTTI_MEMBER Value value_of(Bits bits) {
    if constexpr (std::is_same_v<Elem, Element<bool>>) {
      return bits != 0;
    } else {
      return std::bit_cast<Value>(bits);
    }
  }
  TUTTI_MEMBER Bits bits_of(Value value) { return std::bit_cast<Bits>(value); }
  template <bool kCanonical>
  TUTTI_MEMBER uint32_t two(Value first, Value second) {
    return bits_of(first) | static_cast<uint32_t>(bits_of(second)) << (8 * sizeof(Bits));
  }
  TUTTI_MEMBER Value round(Value value) { return value; }
};

template <class Small>
struct SmallCodec {
  using Value = float;
  using Bits = typename Small::Bits;
  using Format = reduce::SmallFloat<Small>;

  TUTTI_MEMBER float value_of(Bits bits) { return device::widen<Small>(bits); }
  template <bool kCanonical>
  TUTTI_MEMBER uint32_t two(float first, float second) {
    uint32_t bits = device::narrow_two<Small>(first, second);
    if constexpr (kCanonical && sizeof(Bits) == 2) {
      if (first != first) bits = (bits & 0xffff0000u) | Format::kNan;
      if (second != second) bits = (bits & 0xffffu) | Format::kNan << 16;
    }
    return bits;
  }
  TUTTI_MEMBER Bits bits_of(float value) { return static_cast<Bits>(two<true>(value, 0.0f)); }
  TUTTI_MEMBER float round(float value) { return device::widen<Small>(bits_of(value)); }
};
template <>
struct Codec<Element<reduce::Float16>> : SmallCodec<reduce::Float16> {};
template <>
struct Codec<Element<reduce::Bfloat16>> : SmallCodec<reduce::Bfloat16> {};
template <>
struct Codec<Element<reduce::Float8E4M3>> : SmallCodec<reduce::Float8E4M3> {};
template <>
struct Codec<Element<reduce::Float8E5M2>> : SmallCodec<reduce::Float8E5M2> {};

/// The words of a packet in turn. `kCanonical`: a NaN gets the canonical bits.
template <class Elem>
struct Granule {
  using C = Codec<Elem>;
  using Value = typename Elem::Value;
  static constexpr uint32_t kWords = Elem::kBytes == 8 ? 2 : 1;
  static constexpr uint32_t kElements = Elem::kBytes == 8 ? 1 : 4 / Elem::kBytes;
  static constexpr uint32_t kOfPacket = 4 / kWords;

  TUTTI_MEMBER void load(uint32_t low, [[maybe_unused]] uint32_t high, Value (&values)[kElements]) {
    using Bits = typename C::Bits;
    if constexpr (kWords == 2) {
      values[0] = C::value_of(low | static_cast<uint64_t>(high) << 32);
    } else {
      TUTTI_UNROLL
      for (uint32_t e = 0; e < kElements; ++e)
        values[e] = C::value_of(static_cast<Bits>(low >> (8 * Elem::kBytes * e)));
    }
  }

  template <bool kCanonical>
  TUTTI_MEMBER void store(const Value (&values)[kElements], uint32_t& low, [[maybe_unused]] uint32_t& high) {
    if constexpr (kWords == 2) {
      const uint64_t bits = C::bits_of(values[0]);
      low = static_cast<uint32_t>(bits);
      high = static_cast<uint32_t>(bits >> 32);
    } else if constexpr (kElements == 1) {
      low = C::bits_of(values[0]);
    } else {
      low = C::template two<kCanonical>(values[0], values[1]);
      if constexpr (kElements == 4) low |= C::template two<kCanonical>(values[2], values[3]) << 16;
    }
  }
};

}  // namespace tutti::cuda
