#include "reduce/reference.h"

#include <cmath>
#include <span>
#include <type_traits>

#include "reduce/formats.h"

namespace tutti::reduce {
namespace {

template <class Elem, class Row>
struct Reducer {
  using Value = typename Elem::Value;

  using Function = std::conditional_t<std::is_same_v<Elem, Element<bool>>, typename Row::BoolFunction,
                                      typename Row::Function>;

  const Job& job;
  bool tree;

  Value node_value(Value value) const {
    if (!tree) return value;
    if constexpr (Elem::kFloat) {
      const Value rounded = Elem::round(value);
      return std::isnan(rounded) ? canonical_nan<Value>() : rounded;
    }
    return value;
  }

  Value apply(Value a, Value b) const { return node_value(Function::combine(a, b)); }

  Value leaf(size_t k, size_t offset) const {
    const Value value = Elem::load(static_cast<const uint8_t*>(job.sources[k]) + offset);
    if (Row::kRole != operators::Role::kScaled || !(job.scaled_sources >> k & 1)) return node_value(value);
    return node_value(operators::Prod::combine(value, Elem::from_bits(job.scale_bits)));
  }

  Value reduce_left(size_t offset) const {
    Value result = leaf(0, offset);
    for (size_t k = 1; k < job.source_count; ++k) result = apply(result, leaf(k, offset));
    return result;
  }

  Value reduce_tree(size_t first, size_t last, size_t offset) const {
    if (last - first == 1) return leaf(first, offset);
    size_t half = 1;
    while (2 * half < last - first) half *= 2;
    return apply(reduce_tree(first, first + half, offset), reduce_tree(first + half, last, offset));
  }

  void run() const {
    const bool finishes = Row::kRole == operators::Role::kAverage && job.finish;
    const bool scales = Row::kRole == operators::Role::kScaled && job.scaled_sources != 0;
    const bool copies =
        job.source_count == 1 && !tree && !finishes && !scales && !std::is_same_v<Elem, Element<bool>>;
    for (size_t i = 0; i < job.count; ++i) {
      const size_t offset = i * Elem::kBytes;
      uint8_t result_bytes[sizeof(uint64_t)];
      if (copies) {
        std::memcpy(result_bytes, static_cast<const uint8_t*>(job.sources[0]) + offset, Elem::kBytes);
      } else {
        Value result = tree ? reduce_tree(0, job.source_count, offset) : reduce_left(offset);
        if (finishes) result = node_value(divide(result, job.divisor));
        Elem::store(result_bytes, result);
      }
      for (void* sink : std::span(job.sinks, job.sink_count)) {
        std::memcpy(static_cast<uint8_t*>(sink) + offset, result_bytes, Elem::kBytes);
      }
    }
  }
};

template <class T>
void run(const Job& job, ReduceOp op, Association association) {
  using Elem = Element<T>;
  constexpr operators::Types kTypes = std::is_same_v<T, bool> ? operators::kBool
                                      : Elem::kFloat          ? operators::kFloats
                                                              : operators::kIntegers;
  operators::visit(static_cast<size_t>(op), [&](auto row) {
    using Row = decltype(row);
    if constexpr (Row::is_defined(kTypes)) Reducer<Elem, Row>{job, association == Association::kTree}.run();
    return true;
  });
}

}  // namespace

void reference_kernel(const Job& job, DataType type, ReduceOp op, Association association) {
  switch (type) {
    case DataType::kInt8: return run<int8_t>(job, op, association);
    case DataType::kUint8: return run<uint8_t>(job, op, association);
    case DataType::kInt16: return run<int16_t>(job, op, association);
    case DataType::kUint16: return run<uint16_t>(job, op, association);
    case DataType::kInt32: return run<int32_t>(job, op, association);
    case DataType::kUint32: return run<uint32_t>(job, op, association);
    case DataType::kInt64: return run<int64_t>(job, op, association);
    case DataType::kUint64: return run<uint64_t>(job, op, association);
    case DataType::kFloat16: return run<Float16>(job, op, association);
    case DataType::kBfloat16: return run<Bfloat16>(job, op, association);
    case DataType::kFloat32: return run<float>(job, op, association);
    case DataType::kFloat64: return run<double>(job, op, association);
    case DataType::kFloat8E4M3: return run<Float8E4M3>(job, op, association);
    case DataType::kFloat8E5M2: return run<Float8E5M2>(job, op, association);
    case DataType::kBool: return run<bool>(job, op, association);
  }
}

}  // namespace tutti::reduce
