// Rounding of double to smaller floats, in one step.
#pragma once

#include <cmath>
#include <cstdint>

#include "reduce/formats.h"

namespace fake_cuda::ptx {

/// The double rounded to float so that a second rounding, to fewer bits, is right ("round to odd": the last
/// bit says that something was cut off).
inline float round_to_odd(double value) {
  auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) == value || std::isnan(value) || std::isinf(narrow)) return narrow;
  if (std::fabs(static_cast<double>(narrow)) > std::fabs(value)) narrow = std::nextafterf(narrow, 0);
  const uint32_t bits = std::bit_cast<uint32_t>(narrow) | 1;
  return std::bit_cast<float>(bits);
}

template <class Small>
typename Small::Bits narrow_double(double value) {
  return tutti::reduce::narrow<Small>(round_to_odd(value));
}

}  // namespace fake_cuda::ptx
