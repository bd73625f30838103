// Reduction of single elements, for the baseline target and for counts too small for vectors.
//
// The functions come from core/operators.h. The association is repeated here for scalars.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/operators.h"
#include "reduce/formats.h"
#include "reduce/reduce.h"

namespace tutti::reduce {

inline const uint8_t* source_bytes(const Job& job, uint32_t k) {
  return static_cast<const uint8_t*>(job.sources[k]);
}
inline uint8_t* sink_bytes(const Job& job, uint32_t m) {
  return static_cast<uint8_t*>(job.sinks[m]);
}

/// Whether the job only moves bytes: one source, and an operator that keeps a single operand.
template <class Op>
bool is_copy(const Job& job) {
  if (job.source_count != 1) return false;
  if (Op::kScaled && job.scaled_sources != 0) return false;
  return !(Op::kAverage && job.finish);
}

/// The value to store for a result.
template <class Elem, class Op, Association kAssociation, class Value>
inline Value finished_scalar(const Job& job, Value result) {
  if constexpr (Op::kAverage) {
    if (job.finish) result = divide(result, job.divisor);
  }
  if constexpr (Elem::kFloat && (kAssociation == Association::kTree || Op::kExact)) {
    if (std::isnan(result)) result = canonical_nan<Value>();
  }
  return result;
}

template <class Elem, class Op, Association kAssociation>
inline typename Elem::Value scalar_operand(const Job& job, uint32_t k, size_t offset) {
  typename Elem::Value value = Elem::load(source_bytes(job, k) + offset);
  if constexpr (Op::kScaled) {
    if (job.scaled_sources >> k & 1) {
      value = operators::Prod::combine(value, Elem::from_bits(job.scale_bits));
      if constexpr (kAssociation == Association::kTree) value = Elem::round(value);
    }
  }
  return value;
}

template <class Elem, class Op, Association kAssociation>
inline typename Elem::Value scalar_result(const Job& job, size_t offset) {
  using Value = typename Elem::Value;
  if constexpr (kAssociation == Association::kLeft || !Elem::kFloat) {
    Value result = scalar_operand<Elem, Op, kAssociation>(job, 0, offset);
    for (uint32_t k = 1; k < job.source_count; ++k) {
      result = Op::combine(result, scalar_operand<Elem, Op, kAssociation>(job, k, offset));
    }
    return result;
  } else {
    Value values[kMaxSources] = {};
    for (uint32_t k = 0; k < job.source_count; ++k) {
      values[k] = scalar_operand<Elem, Op, kAssociation>(job, k, offset);
    }
    // Neighbours at distance 1, 2, 4 form the same tree as splits at the largest power of two below K.
    for (uint32_t distance = 1; distance < job.source_count; distance *= 2) {
      for (uint32_t k = 0; k + distance < job.source_count; k += 2 * distance) {
        values[k] = Elem::round(Op::combine(values[k], values[k + distance]));
      }
    }
    return values[0];
  }
}

/// The whole job, one element at a time, for all kinds of jobs except those that are is_copy.
template <class Elem, class Op, Association kAssociation>
void reduce_scalars(const Job& job) {
  for (size_t i = 0; i < job.count; ++i) {
    const size_t offset = i * Elem::kBytes;
    const auto result =
        finished_scalar<Elem, Op, kAssociation>(job, scalar_result<Elem, Op, kAssociation>(job, offset));
    for (uint32_t m = 0; m < job.sink_count; ++m) Elem::store(sink_bytes(job, m) + offset, result);
  }
}

/// The same for two sources and operators without scale; short enough for a few elements.
template <class Elem, class Op, Association kAssociation>
inline void reduce_scalar_pairs(const Job& job) {
  for (size_t i = 0; i < job.count; ++i) {
    const size_t offset = i * Elem::kBytes;
    const auto sum =
        Op::combine(Elem::load(source_bytes(job, 0) + offset), Elem::load(source_bytes(job, 1) + offset));
    const auto result = finished_scalar<Elem, Op, kAssociation>(job, sum);
    for (uint32_t m = 0; m < job.sink_count; ++m) Elem::store(sink_bytes(job, m) + offset, result);
  }
}

}  // namespace tutti::reduce
