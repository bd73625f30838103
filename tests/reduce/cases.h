// The case table of the reduction kernels: which jobs exist, and operands for them. The correctness test
// (tests/reduce) and the microbenchmark (perf/micro) read the same table.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "core/types.h"
#include "reduce/reduce.h"

namespace tutti::reduce {

/// What a kernel is found for.
struct KernelCase {
  DataType type;
  ReduceOp op;
  Association association;
};

/// How a job lies in memory. Every buffer starts at a 64-byte boundary plus its misalignment.
struct Placement {
  size_t source_misalignment_bytes;  ///< source k adds k times this
  size_t sink_misalignment_bytes;    ///< sink m adds m times this
  bool in_place;                     ///< sink 0 is source 0 (then at the source's misalignment)
  uint32_t streaming_sinks;
};

inline constexpr std::array kSourceCounts = {1, 2, 3, 4, 5, 8};
inline constexpr std::array kSinkCounts = {1, 2, 3};

inline std::vector<KernelCase> kernel_cases() {
  std::vector<KernelCase> cases;
  for (int t = 0; t < kDataTypeCount; ++t) {
    for (int o = 0; o < kReduceOpCount; ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<ReduceOp>(o);
      if (!is_defined(op, type)) continue;
      cases.push_back({type, op, Association::kLeft});
      cases.push_back({type, op, Association::kTree});
    }
  }
  return cases;
}

/// Counts around every vector width (16, 32, 64 bytes) and around four of the widest.
inline std::vector<size_t> element_counts(DataType type) {
  std::vector<size_t> counts = {0, 1, 2, 3, 4, 5};
  for (const size_t vector_bytes : {16, 32, 64, 256}) {
    const size_t lanes = vector_bytes / type_bytes(type);
    counts.insert(counts.end(), {lanes - 1, lanes, lanes + 1});
  }
  counts.push_back(600 / type_bytes(type) + 1);
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

/// Aligned, misaligned by an element, by a byte, and differently at each end; with and without streaming.
inline std::vector<Placement> placements(DataType type) {
  const size_t element = type_bytes(type);
  return {{0, 0, false, 0},     {0, 0, true, 0},      {element, element, false, 0}, {1, 3, false, 0},
          {1, 0, true, 0},      {0, 0, false, ~0u},   {element, 0, false, 0b1},     {0, element, false, 0b10},
          {0, 1, false, 0b111}, {element, 0, true, 1}};
}

/// Bits of one element such that the values that matter come often: zeros, infinities, NaNs, subnormals, the
/// largest and smallest, and values near 1 whose sums round.
template <class Engine>
uint64_t element_bits(DataType type, Engine& engine) {
  const uint64_t random = engine();
  int mantissa_bits = 0;
  switch (type) {
    case DataType::kFloat16: mantissa_bits = 10; break;
    case DataType::kBfloat16: mantissa_bits = 7; break;
    case DataType::kFloat32: mantissa_bits = 23; break;
    case DataType::kFloat64: mantissa_bits = 52; break;
    case DataType::kFloat8E4M3: mantissa_bits = 3; break;
    case DataType::kFloat8E5M2: mantissa_bits = 2; break;
    case DataType::kBool: return random % 3 == 0 ? random >> 8 & 0xff : random >> 4 & 1;
    default: return random;
  }
  const int bits = static_cast<int>(8 * type_bytes(type));
  const uint64_t sign = uint64_t{1} << (bits - 1);
  const uint64_t mantissa = (uint64_t{1} << mantissa_bits) - 1;
  const uint64_t exponent = (sign - 1) & ~mantissa;
  const uint64_t one = exponent >> 1 & exponent;
  switch (engine() % 32) {
    case 0: return random & sign;                                       // zero
    case 1: return (random & sign) | exponent;                          // infinity (e4m3: 256)
    case 2: return (random & sign) | exponent | mantissa;               // NaN
    case 3: return (random & sign) | (exponent | (random & mantissa));  // any NaN, signalling too
    case 4:
    case 5: return random & (sign | mantissa);        // subnormal
    case 6: return (random & sign) | (exponent - 1);  // largest finite, or near it
    case 7: return (random & sign) | ((exponent - mantissa - 1) | (random & mantissa));
    case 8: return (random & sign) | (mantissa + 1);  // smallest normal
    case 9:
    case 10:
    case 11: return random & (sign | (sign - 1));  // any bits
    default: {                                     // within a factor of 8 of 1
      const uint64_t step = (mantissa + 1) * (random >> 60 & 3);
      return (random & (sign | mantissa)) | (random >> 59 & 1 ? one + step : one - step);
    }
  }
}

/// Bits of one ordinary number between 1 and 2 (integers: any), on which no arithmetic is slow.
template <class Engine>
uint64_t plain_bits(DataType type, Engine& engine) {
  const uint64_t random = engine();
  if (!is_float(type)) return type == DataType::kBool ? random & 1 : random;
  switch (type) {
    case DataType::kFloat16: return 0x3c00 | (random & 0x3ff);
    case DataType::kBfloat16: return 0x3f80 | (random & 0x7f);
    case DataType::kFloat32: return 0x3f800000 | (random & 0x7fffff);
    case DataType::kFloat64: return 0x3ff0000000000000 | (random & 0xfffffffffffff);
    case DataType::kFloat8E4M3: return 0x38 | (random & 7);
    default: return 0x3c | (random & 3);
  }
}

/// How many ends a measured job has.
struct Shape {
  int source_count;
  int sink_count;
  uint32_t streaming_sinks;
};

struct BenchmarkCase {
  KernelCase kernel;
  bool copy;  ///< the copy kernel; `kernel` only names the type
  Shape shape;
  std::vector<int64_t> bytes;
};

inline std::vector<int64_t> copy_bytes_table() {
  return {8, 64, 200, 512, 4096, 32768, 262144, 2 << 20, 16 << 20, 64 << 20};
}

/// What is measured: sums of the types that training uses in every shape and size, every other kernel at one
/// size in the cache.
inline std::vector<BenchmarkCase> benchmark_cases() {
  std::vector<BenchmarkCase> cases;
  const std::vector<int64_t> sizes = {8, 64, 512, 4096, 65536, 1 << 20, 64 << 20};
  const std::vector<int64_t> large = {1 << 20, 8 << 20, 64 << 20};
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16}) {
    const KernelCase sum = {type, ReduceOp::kSum, Association::kLeft};
    for (const auto& [k, m] : {std::pair{2, 1}, {2, 2}, {1, 1}, {1, 2}, {4, 1}, {8, 1}}) {
      cases.push_back({sum, false, {k, m, 0}, sizes});
    }
    cases.push_back({sum, false, {2, 1, 1}, large});
    cases.push_back({sum, false, {2, 2, 2}, large});
    cases.push_back({{type, ReduceOp::kSum, Association::kTree}, false, {4, 1, 0}, {65536}});
  }
  for (const KernelCase& kernel : kernel_cases()) {
    // The association of integers is irrelevant, their kernels are the same.
    if (kernel.association == Association::kTree && !is_float(kernel.type)) continue;
    cases.push_back({kernel, false, {2, 1, 0}, {16384}});
  }
  const KernelCase bytes = {DataType::kUint8, ReduceOp::kSum, Association::kLeft};
  for (const int sink_count : {1, 2, 3})
    cases.push_back({bytes, true, {1, sink_count, 0}, copy_bytes_table()});
  cases.push_back({bytes, true, {1, 1, 1}, large});
  return cases;
}

}  // namespace tutti::reduce
