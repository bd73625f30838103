// What translated PTX (translate.py) runs on: PTX's registers are C++ variables, and memory, barriers and
// atomics are those of the simulated device (tests/simt).
//
// Every access is checked: aligned to its size, and inside of the block's shared memory, of a parameter, or
// of memory that the device knows (simt/known_memory.h). A wrong one ends the process and says what is wrong.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tests/simt/context.h"

namespace ptx {

/// The module's shared memory: addresses [start, start + bytes).
struct SharedMemory {
  uint64_t start;
  uint64_t bytes;
};

/// The calling thread's block.
struct Block {
  SharedMemory shared;
  unsigned char* memory;  ///< of shared.bytes

  uint64_t from_shared(uint64_t address) const {
    return reinterpret_cast<uint64_t>(memory) + (address - shared.start);
  }
  uint64_t to_shared(uint64_t address) const {
    return address - reinterpret_cast<uint64_t>(memory) + shared.start;
  }
};

Block this_block(SharedMemory shared);

uint32_t thread_index();
uint32_t thread_count();
uint32_t block_index();
void barrier();
/// Barrier `number` of `threads` threads: `waits` or only arrives.
void barrier(uint32_t number, uint32_t threads, bool waits);
void fence();
void alias_fence();
void poll_failed(uint64_t address, bool bounded);
void wait_ended();
[[noreturn]] void trap();

// ---- memory -------------------------------------------------------------------------------------

__extension__ using Uint128 = unsigned __int128;

template <class Word, int kCount>
struct Words {
  Word words[kCount];
};

template <class Word, int kCount>
Words<Word, kCount> load_generic(const Block& block, uint64_t address);
template <class Word, int kCount>
Words<Word, kCount> load_shared(const Block& block, uint64_t address);
/// Parameters and local memory are variables of the translated function.
template <class Word, int kCount>
Words<Word, kCount> load_param(const Block& block, uint64_t address);
template <class Word, int kCount>
Words<Word, kCount> load_local(const Block& block, uint64_t address) {
  return load_param<Word, kCount>(block, address);
}
template <class Word, int kCount>
Words<Word, kCount> load_acquire(const Block& block, uint64_t address);
template <class Word, int kCount>
Words<Word, kCount> load_relaxed(const Block& block, uint64_t address);

template <class Word, int kCount>
void store_generic(const Block& block, uint64_t address, Words<Word, kCount> value);
template <class Word, int kCount>
void store_shared(const Block& block, uint64_t address, Words<Word, kCount> value);
template <class Word, int kCount>
void store_param(const Block& block, uint64_t address, Words<Word, kCount> value);
template <class Word, int kCount>
void store_local(const Block& block, uint64_t address, Words<Word, kCount> value) {
  store_param(block, address, value);
}
template <class Word, int kCount>
void store_release(const Block& block, uint64_t address, Words<Word, kCount> value);
template <class Word, int kCount>
void store_relaxed(const Block& block, uint64_t address, Words<Word, kCount> value);

template <class Word, int kCount>
Words<Word, kCount> load_acquire_shared(const Block& block, uint64_t address);
template <class Word, int kCount>
void store_release_shared(const Block& block, uint64_t address, Words<Word, kCount> value);
uint64_t shared_max(const Block& block, uint64_t address, uint64_t value);
uint32_t add_acquire_release(const Block& block, uint64_t address, uint32_t value);
void add_relaxed(const Block& block, uint64_t address, uint32_t value);

// Multicast memory: the name says operator, accumulator, vector and type.
void multicast_store(const Block& block, uint64_t address, Words<uint32_t, 4> value);
Words<uint32_t, 4> reduce_add_v4_f32(const Block& block, uint64_t address);
Words<uint32_t, 4> reduce_add_acc_f32_v4_f16x2(const Block& block, uint64_t address);
Words<uint32_t, 4> reduce_add_acc_f32_v4_bf16x2(const Block& block, uint64_t address);
Words<uint64_t, 1> reduce_add_f64(const Block& block, uint64_t address);
#define PTX_REDUCE(operation, type, bits) \
  Words<uint##bits##_t, 1> reduce_##operation##_##type(const Block& block, uint64_t address)
PTX_REDUCE(add, u32, 32);
PTX_REDUCE(min, u32, 32);
PTX_REDUCE(max, u32, 32);
PTX_REDUCE(min, s32, 32);
PTX_REDUCE(max, s32, 32);
PTX_REDUCE(and, b32, 32);
PTX_REDUCE(or, b32, 32);
PTX_REDUCE(xor, b32, 32);
PTX_REDUCE(add, u64, 64);
PTX_REDUCE(min, u64, 64);
PTX_REDUCE(max, u64, 64);
PTX_REDUCE(min, s64, 64);
PTX_REDUCE(max, s64, 64);
PTX_REDUCE(and, b64, 64);
PTX_REDUCE(or, b64, 64);
PTX_REDUCE(xor, b64, 64);
#undef PTX_REDUCE

// ---- arithmetic ---------------------------------------------------------------------------------

/// A shift by the register's width or more leaves nothing but the sign.
template <class T>
constexpr T shift_left(T value, uint32_t by) {
  return by < 8 * sizeof(T) ? static_cast<T>(value << by) : T{0};
}
template <class T>
constexpr T shift_right(T value, uint32_t by) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  if (by < kBits) return static_cast<T>(value >> by);
  return static_cast<T>(value < 0 ? -1 : 0);
}
/// The division of integers by 0 is undefined in PTX.
template <class T>
T divide(T a, T b) {
  return b != 0 ? static_cast<T>(a / b) : (trap(), T{0});
}
template <class T>
T remide(T a, T b) {
  return b != 0 ? static_cast<T>(a % b) : (trap(), T{0});
}
template <class T>
T neg(T value) {
  if constexpr (std::is_floating_point_v<T>) return -value;
  return static_cast<T>(0 - static_cast<uint64_t>(value));
}
template <class T>
T abs(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::fabs(value);
  return value < 0 ? neg(value) : value;
}
template <class T>
T rcp(T value) {
  return T{1} / value;
}
template <class T>
bool unordered(T a, T b) {
  return a != a || b != b;
}
/// min.NaN and max.NaN: a NaN operand gives the canonical NaN, and -0 is below +0.
inline float min_nan(float a, float b) {
  if (unordered(a, b)) return std::bit_cast<float>(0x7fffffffu);
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
inline float max_nan(float a, float b) {
  if (unordered(a, b)) return std::bit_cast<float>(0x7fffffffu);
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

// ---- small floats: the conversions of PTX ISA 8.2, by arithmetic --------------------------------

inline float convert_f32_f16(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int mantissa = bits & 0x3ff;
  float value = std::ldexp(static_cast<float>(mantissa), -24);
  if (exponent == 0x1f) value = mantissa != 0 ? NAN : INFINITY;
  if (exponent > 0 && exponent < 0x1f) value = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return std::copysign(value, (bits & 0x8000) != 0 ? -1.0f : 1.0f);
}
/// The bits of a float that is rounded to nearest even; without the sign. `most`: the bits of what is too
/// large.
inline uint32_t round_to(float value, int mantissa_bits, int bias, uint32_t most) {
  const float magnitude = std::fabs(value);
  if (magnitude == 0) return 0;
  if (std::isinf(magnitude)) return most;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
  const auto bits = (static_cast<int64_t>(exponent + bias - 1) << mantissa_bits) + steps;
  return static_cast<uint32_t>(std::min<int64_t>(bits, most));
}
inline uint32_t convert_to(float value, int mantissa_bits, int bias, uint32_t most, uint32_t nan,
                           uint32_t sign) {
  if (std::isnan(value)) return nan;
  return round_to(value, mantissa_bits, bias, most) | (std::signbit(value) ? sign : 0);
}
inline uint32_t convert_rn_f16x2_f32(float high, float low) {
  const auto one = [](float value) { return convert_to(value, 10, 15, 0x7c00, 0x7fff, 0x8000); };
  return one(high) << 16 | one(low);
}
inline uint32_t convert_rn_bf16x2_f32(float high, float low) {
  const auto one = [](float value) { return convert_to(value, 7, 127, 0x7f80, 0x7fff, 0x8000); };
  return one(high) << 16 | one(low);
}
inline uint16_t convert_rn_satfinite_e4m3x2_f32(float high, float low) {
  const auto one = [](float value) { return convert_to(value, 3, 7, 0x7e, 0x7f, 0x80); };
  return static_cast<uint16_t>(one(high) << 8 | one(low));
}
inline uint16_t convert_rn_satfinite_e5m2x2_f32(float high, float low) {
  const auto one = [](float value) { return convert_to(value, 2, 15, 0x7b, 0x7f, 0x80); };
  return static_cast<uint16_t>(one(high) << 8 | one(low));
}

template <class T>
constexpr T low_bits(uint32_t count) {
  return count >= 8 * sizeof(T) ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << count) - 1);
}
template <class T>
constexpr T insert_bits(T a, T b, uint32_t at, uint32_t count) {
  at &= 0xff;
  count &= 0xff;
  if (at >= 8 * sizeof(T)) return b;
  const T mask = static_cast<T>(low_bits<T>(count) << at);
  return static_cast<T>((b & ~mask) | (static_cast<T>(a << at) & mask));
}
template <class T>
constexpr T extract_bits(T a, uint32_t at, uint32_t count) {
  return static_cast<T>(shift_right(a, at & 0xff) & low_bits<T>(count & 0xff));
}
constexpr uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = a | static_cast<uint64_t>(b) << 32;
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t pick = selector >> (4 * i) & 0xf;
    uint32_t byte = bytes >> (8 * (pick & 7)) & 0xff;
    if ((pick & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}
constexpr uint32_t funnel_left(uint32_t low, uint32_t high, uint32_t by) {
  return static_cast<uint32_t>(((static_cast<uint64_t>(high) << 32 | low) << (by & 31)) >> 32);
}
constexpr uint32_t funnel_right(uint32_t low, uint32_t high, uint32_t by) {
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> (by & 31));
}

}  // namespace ptx
