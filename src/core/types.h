// Element types, operators and collectives: the common types of plans, kernels and calls.
// Values equal those of include/tutti/tutti.h (src/api checks this by static_assert).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/operators.h"

namespace tutti {

enum class DataType : uint8_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8E4M3 = 10,
  kFloat8E5M2 = 11,
  kInt16 = 12,
  kUint16 = 13,
  kBool = 14,
};
inline constexpr int kDataTypeCount = 15;

/// A row of core/operators.h; only rows that code mentions have a constant. kAvg and kPremulSum reduce as
/// kSum. kAvg divides the result by the rank count. kPremulSum multiplies each operand by the caller's scalar
/// at its first read.
enum class ReduceOp : uint8_t {
  kSum = operators::value_of("sum"),
  kProd = operators::value_of("prod"),
  kMax = operators::value_of("max"),
  kMin = operators::value_of("min"),
  kAvg = operators::value_of("avg"),
  kBitAnd = operators::value_of("band"),
  kBitOr = operators::value_of("bor"),
  kBitXor = operators::value_of("bxor"),
  kPremulSum = operators::value_of("mulsum"),
};
inline constexpr int kReduceOpCount = operators::kCount;

enum class Collective : uint8_t {
  kAllReduce = 0,
  kReduce = 1,
  kBroadcast = 2,
  kAllGather = 3,
  kReduceScatter = 4,
  kAllToAll = 5,
  kGather = 6,
  kScatter = 7,
  kBarrier = 8,
  kSendRecv = 9,  ///< a group of sends and receives; its plan is made per call
};
inline constexpr int kCollectiveCount = 10;

constexpr size_t type_bytes(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kFloat8E4M3:
    case DataType::kFloat8E5M2:
    case DataType::kBool: return 1;
    case DataType::kInt16:
    case DataType::kUint16:
    case DataType::kFloat16:
    case DataType::kBfloat16: return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32: return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64: return 8;
  }
  return 0;
}

constexpr bool is_float(DataType type) {
  return type == DataType::kFloat16 || type == DataType::kFloat32 || type == DataType::kFloat64 ||
         type == DataType::kBfloat16 || type == DataType::kFloat8E4M3 || type == DataType::kFloat8E5M2;
}
constexpr bool is_integer(DataType type) {
  return !is_float(type) && type != DataType::kBool;
}

/// Whether `op` is defined on `type`.
constexpr bool is_defined(ReduceOp op, DataType type) {
  const operators::Types types = is_float(type)     ? operators::kFloats
                                 : is_integer(type) ? operators::kIntegers
                                                    : operators::kBool;
  return operators::visit(static_cast<size_t>(op), [types](auto row) { return row.is_defined(types); });
}

constexpr bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}
constexpr bool has_root(Collective collective) {
  return collective == Collective::kReduce || collective == Collective::kBroadcast ||
         collective == Collective::kGather || collective == Collective::kScatter;
}

/// Names as the perf tools and plan files spell them: "float32", "sum", "all_reduce".
std::string_view type_name(DataType type);
std::string_view op_name(ReduceOp op);
std::string_view collective_name(Collective collective);
std::optional<DataType> type_from_name(std::string_view name);
std::optional<ReduceOp> op_from_name(std::string_view name);
std::optional<Collective> collective_from_name(std::string_view name);

}  // namespace tutti
