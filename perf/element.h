// Names and layout of element types and operators. Accepts nccl-tests' names ("half", "float", "f8e4m3") and
// tutti's. Includes the pre-multiplied sum, which the C API makes for each communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/operators.h"
#include "tutti/tutti.h"

namespace tutti::perf {

/// The rows of core/operators.h, and one value for no operator.
enum class TestOp : uint8_t {
  kSum = operators::value_of("sum"),
  kProd = operators::value_of("prod"),
  kMax = operators::value_of("max"),
  kMin = operators::value_of("min"),
  kAvg = operators::value_of("avg"),
  kMulSum = operators::value_of("mulsum"),
  kBitAnd = operators::value_of("band"),
  kBitOr = operators::value_of("bor"),
  kBitXor = operators::value_of("bxor"),
  kNone = operators::kCount,  ///< the collective moves data without reducing it
};

/// "float", "half", "bfloat16", "f8e4m3", "int16", "bool", ...
std::string_view test_type_name(tutti_type_t type);
/// Accepts nccl-tests' names and tutti's ("float32", "float16", "float8_e4m3").
std::optional<tutti_type_t> test_type_from_name(std::string_view name);
/// nccl-tests' types in its order, then the types that only tutti has.
std::vector<tutti_type_t> all_test_types();

std::string_view test_op_name(TestOp op);
std::optional<TestOp> test_op_from_name(std::string_view name);
std::vector<TestOp> all_test_ops();

size_t test_type_bytes(tutti_type_t type);
bool is_float_type(tutti_type_t type);
bool is_op_defined(TestOp op, tutti_type_t type);

/// The operator in the C API. kNone gives sum. kMulSum has none: tutti_op_create_premul_sum makes it.
tutti_op_t tutti_op(TestOp op);

}  // namespace tutti::perf
