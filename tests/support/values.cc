#include "tests/support/values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace tutti::test {
namespace {

struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;

  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  uint32_t nan() const {
    const uint32_t all = (1u << (bits() - 1)) - 1;
    return has_infinity ? all & ~((1u << (mantissa_bits - 1)) - 1) : all;
  }
  /// The magnitude of a bit pattern without sign; NaN for NaN.
  double magnitude(uint32_t pattern) const {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = static_cast<int>(pattern >> mantissa_bits);
    const int mantissa = static_cast<int>(pattern & ((1u << mantissa_bits) - 1));
    const bool top = exponent == (1 << exponent_bits) - 1;
    if (has_infinity && top) return mantissa == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
    if (!has_infinity && top && mantissa == (1 << mantissa_bits) - 1) return std::nan("");
    if (exponent == 0) return std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  }
};

/// All finite magnitudes of a format. A bit pattern is its index in the list.
class SmallFloats {
 public:
  explicit SmallFloats(const Format& format) : format_(format) {
    for (uint32_t pattern = 0; std::isfinite(format.magnitude(pattern)); ++pattern) {
      magnitudes_.push_back(format.magnitude(pattern));
    }
    // The value after the largest finite one: a number half way to it rounds up and overflows.
    const size_t last = magnitudes_.size() - 1;
    magnitudes_.push_back(2 * magnitudes_[last] - magnitudes_[last - 1]);
  }

  double load(uint32_t pattern) const {
    const uint32_t sign = 1u << (format_.bits() - 1);
    const double value = format_.magnitude(pattern & (sign - 1));
    return (pattern & sign) != 0 ? -value : value;
  }

  uint32_t store(double value) const {
    if (std::isnan(value)) return format_.nan();
    const uint32_t sign = std::signbit(value) ? 1u << (format_.bits() - 1) : 0;
    const double magnitude = std::fabs(value);
    const auto overflow = static_cast<uint32_t>(magnitudes_.size() - 1);
    const auto above = std::lower_bound(magnitudes_.begin(), magnitudes_.end(), magnitude);
    auto pattern = static_cast<uint32_t>(above - magnitudes_.begin());
    if (pattern <= overflow && pattern > 0) {
      const double up = magnitudes_[pattern] - magnitude;
      const double down = magnitude - magnitudes_[pattern - 1];
      if (down < up || (down == up && pattern % 2 == 1)) --pattern;
    }
    if (pattern < overflow) return sign | pattern;
    if (!format_.has_infinity) return sign | format_.nan();
    return sign | ((1u << format_.exponent_bits) - 1) << format_.mantissa_bits;
  }

 private:
  Format format_;
  std::vector<double> magnitudes_;
};

const SmallFloats& floats_of(tutti_type_t type) {
  static const SmallFloats kFloat16({5, 10, true});
  static const SmallFloats kBfloat16({8, 7, true});
  static const SmallFloats kE4m3({4, 3, false});
  static const SmallFloats kE5m2({5, 2, true});
  switch (type) {
    case TUTTI_FLOAT16: return kFloat16;
    case TUTTI_BFLOAT16: return kBfloat16;
    case TUTTI_FLOAT8_E4M3: return kE4m3;
    default: return kE5m2;
  }
}

template <class T>
T load_as(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof(value));
  return value;
}

template <class T>
void store_as(void* element, T value) {
  std::memcpy(element, &value, sizeof(value));
}

}  // namespace

bool is_float_type(tutti_type_t type) {
  return type == TUTTI_FLOAT16 || type == TUTTI_FLOAT32 || type == TUTTI_FLOAT64 || type == TUTTI_BFLOAT16 ||
         type == TUTTI_FLOAT8_E4M3 || type == TUTTI_FLOAT8_E5M2;
}

bool is_signed_type(tutti_type_t type) {
  return is_float_type(type) || type == TUTTI_INT8 || type == TUTTI_INT16 || type == TUTTI_INT32 ||
         type == TUTTI_INT64;
}

const char* type_text(tutti_type_t type) {
  constexpr std::array<const char*, TUTTI_TYPE_COUNT> kNames = {
      "int8",    "uint8",    "int32",       "uint32",      "int64", "uint64", "float16", "float32",
      "float64", "bfloat16", "float8_e4m3", "float8_e5m2", "int16", "uint16", "bool"};
  return kNames[static_cast<size_t>(type)];
}

const char* op_text(int op) {
  constexpr std::array<const char*, 9> kNames = {"sum",  "prod", "max",  "min",   "avg",
                                                 "band", "bor",  "bxor", "premul"};
  return kNames[static_cast<size_t>(op)];
}

int64_t load_integer(const void* element, tutti_type_t type) {
  switch (type) {
    case TUTTI_INT8: return load_as<int8_t>(element);
    case TUTTI_UINT8:
    case TUTTI_BOOL: return load_as<uint8_t>(element);
    case TUTTI_INT16: return load_as<int16_t>(element);
    case TUTTI_UINT16: return load_as<uint16_t>(element);
    case TUTTI_INT32: return load_as<int32_t>(element);
    case TUTTI_UINT32: return load_as<uint32_t>(element);
    default: return load_as<int64_t>(element);
  }
}

double load_float(const void* element, tutti_type_t type) {
  switch (type) {
    case TUTTI_FLOAT64: return load_as<double>(element);
    case TUTTI_FLOAT32: return static_cast<double>(load_as<float>(element));
    case TUTTI_FLOAT16:
    case TUTTI_BFLOAT16: return floats_of(type).load(load_as<uint16_t>(element));
    default: return floats_of(type).load(load_as<uint8_t>(element));
  }
}

void store_integer(void* element, tutti_type_t type, int64_t value) {
  switch (tutti_type_bytes(type)) {
    case 1: return store_as(element, static_cast<int8_t>(value));
    case 2: return store_as(element, static_cast<int16_t>(value));
    case 4: return store_as(element, static_cast<int32_t>(value));
    default: return store_as(element, value);
  }
}

void store_float(void* element, tutti_type_t type, double value) {
  switch (type) {
    case TUTTI_FLOAT64: return store_as(element, std::isnan(value) ? std::nan("") : value);
    case TUTTI_FLOAT32:
      return store_as(element, std::isnan(value) ? std::nanf("") : static_cast<float>(value));
    case TUTTI_FLOAT16:
    case TUTTI_BFLOAT16: return store_as(element, static_cast<uint16_t>(floats_of(type).store(value)));
    default: return store_as(element, static_cast<uint8_t>(floats_of(type).store(value)));
  }
}

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace tutti::test
