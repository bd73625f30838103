// The result of a reduction, computed from its definition. See reference.h.
#include "tests/sim/reference.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "reduce/reference.h"
#include "transports/sim/sim.h"

namespace tutti::test {
namespace {

constexpr double kPremulScale = 3.0;

using Bytes = std::vector<std::byte>;

template <class T>
T load(const Bytes& bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store(std::span<std::byte> bytes, size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

template <class T, class Combine>
Bytes fold(const std::vector<Bytes>& operands, Combine combine) {
  Bytes result = operands[0];
  for (size_t i = 0; i < result.size() / sizeof(T); ++i) {
    T value = load<T>(operands[0], i);
    for (size_t rank = 1; rank < operands.size(); ++rank) value = combine(value, load<T>(operands[rank], i));
    store<T>(result, i, value);
  }
  return result;
}

Bytes reduce_doubles(ReduceOp op, const std::vector<Bytes>& operands) {
  Bytes sum = fold<double>(operands, [](double a, double b) { return a + b; });
  for (size_t i = 0; i < sum.size() / sizeof(double); ++i) {
    const auto value = load<double>(sum, i);
    if (op == ReduceOp::kAvg) store(std::span(sum), i, value / static_cast<double>(operands.size()));
    if (op == ReduceOp::kPremulSum) store(std::span(sum), i, value * kPremulScale);
  }
  return sum;
}

/// Operands [first, first + count): split at the largest power of two below the count.
Bytes reduce_tree(DataType type, ReduceOp op, std::span<const Bytes> operands) {
  if (operands.size() == 1) return operands[0];
  const size_t half = std::bit_floor(operands.size() - 1);
  const Bytes left = reduce_tree(type, op, operands.first(half));
  const Bytes right = reduce_tree(type, op, operands.subspan(half));
  Bytes result(left.size());
  reduce::Job job{};
  job.sources[0] = left.data();
  job.sources[1] = right.data();
  job.sinks[0] = result.data();
  job.source_count = 2;
  job.sink_count = 1;
  job.count = result.size() / type_bytes(type);
  reduce::reference_kernel(job, type, op, reduce::Association::kTree);
  return result;
}

/// Sign, an exponent near that of 1, any fraction: sums of these round differently in every order.
uint64_t mixed_float_bits(DataType type, uint64_t bits) {
  switch (type) {
    case DataType::kFloat32: return (bits & 0x807fffff) | (127 - 6 + (bits >> 40) % 12) << 23;
    case DataType::kFloat16: return (bits & 0x83ff) | (15 - 6 + (bits >> 40) % 8) << 10;
    default: return (bits & 0x807f) | (127 - 6 + (bits >> 40) % 12) << 7;  // bfloat16
  }
}

}  // namespace

uint64_t premul_scale_bits() {
  return std::bit_cast<uint64_t>(kPremulScale);
}

void make_operands(DataType type, uint64_t seed, std::span<std::byte> bytes) {
  SimRandom random(seed);
  const size_t width = is_float(type) ? type_bytes(type) : sizeof(uint64_t);
  for (size_t at = 0; at < bytes.size(); at += width) {
    uint64_t bits = random.next();
    if (type == DataType::kFloat64) {
      bits = std::bit_cast<uint64_t>(static_cast<double>(bits % 1000000));
    } else if (is_float(type)) {
      bits = mixed_float_bits(type, bits);
    }
    std::memcpy(bytes.data() + at, &bits, std::min(width, bytes.size() - at));
  }
}

Bytes reduce_all(DataType type, ReduceOp op, const std::vector<Bytes>& operands) {
  if (type == DataType::kUint32)
    return fold<uint32_t>(operands, [](uint32_t a, uint32_t b) { return a + b; });
  if (type == DataType::kFloat64) return reduce_doubles(op, operands);
  if (type == DataType::kUint8) {
    return fold<uint8_t>(operands, [op](uint8_t a, uint8_t b) {
      return static_cast<uint8_t>(op == ReduceOp::kBitXor ? a ^ b : a | b);
    });
  }
  return reduce_tree(type, op, operands);
}

}  // namespace tutti::test
