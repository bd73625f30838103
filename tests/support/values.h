// Values: element types as tests see them, independent of the library's own conversions.
//
// A small float is the list of all values that it can hold, worked out from the formula
// (-1)^s * 2^(e - bias) * (1 + m / 2^M); rounding is a search in that list.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/tutti.h"

namespace tutti::test {

bool is_float_type(tutti_type_t type);
bool is_signed_type(tutti_type_t type);
const char* type_text(tutti_type_t type);
const char* op_text(int op);

/// The number that an element holds. int64 for integers, so 64-bit ones are exact.
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
