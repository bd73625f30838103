// Values: element types for tests, independent of the library's conversions.
//
// A small float is the list of all its values, computed from (-1)^s * 2^(e - bias) * (1 + m / 2^M). Rounding
// is a search in this list.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/tutti.h"

namespace tutti::test {

bool is_float_type(tutti_type_t type);
bool is_signed_type(tutti_type_t type);
const char* type_text(tutti_type_t type);
const char* op_text(int op);

/// The number in an element. int64 for integers, so that 64-bit integers are exact.
int64_t load_integer(const void* element, tutti_type_t type);
double load_float(const void* element, tutti_type_t type);

/// Writes an integer, wrapped to the type.
void store_integer(void* element, tutti_type_t type, int64_t value);
/// Writes a number rounded to nearest, ties to even; NaN as the canonical quiet NaN.
void store_float(void* element, tutti_type_t type, double value);

/// A well mixed hash, for reproducible data.
uint64_t mix(uint64_t x);
inline uint64_t mix(uint64_t a, uint64_t b) {
  return mix(mix(a) ^ b);
}

}  // namespace tutti::test
