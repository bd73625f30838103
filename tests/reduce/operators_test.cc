// The functions of core/operators.h against definitions spelled out here a second time, and the rules that
// every row must keep. The reference and all kernels use those functions.
#include "core/operators.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/types.h"

namespace tutti {
namespace {

template <class Value>
Value defined_float(ReduceOp op, Value a, Value b) {
  const bool has_nan = std::isnan(a) || std::isnan(b);
  switch (op) {
    case ReduceOp::kProd: return a * b;
    case ReduceOp::kMax:
      if (has_nan) return std::numeric_limits<Value>::quiet_NaN();
      if (a == 0 && b == 0) return std::signbit(a) && std::signbit(b) ? a : Value{0};
      return std::fmax(a, b);
    case ReduceOp::kMin:
      if (has_nan) return std::numeric_limits<Value>::quiet_NaN();
      if (a == 0 && b == 0) return std::signbit(a) || std::signbit(b) ? -Value{0} : Value{0};
      return std::fmin(a, b);
    default: return a + b;
  }
}

template <class Value>
Value defined_integer(ReduceOp op, Value a, Value b) {
  const auto wide_a = static_cast<uint64_t>(a);
  const auto wide_b = static_cast<uint64_t>(b);
  switch (op) {
    case ReduceOp::kProd: return static_cast<Value>(wide_a * wide_b);
    case ReduceOp::kMax: return a > b ? a : b;
    case ReduceOp::kMin: return a < b ? a : b;
    case ReduceOp::kBitAnd: return static_cast<Value>(wide_a & wide_b);
    case ReduceOp::kBitOr: return static_cast<Value>(wide_a | wide_b);
    case ReduceOp::kBitXor: return static_cast<Value>(wide_a ^ wide_b);
    default: return static_cast<Value>(wide_a + wide_b);
  }
}

/// Operators that the definitions above know. A new row adds its own and its number here.
constexpr size_t kDefinedCount = 9;

template <class Value>
std::vector<Value> values() {
  std::vector<Value> values = {
      0, 1, 2, 3, std::numeric_limits<Value>::max(), std::numeric_limits<Value>::lowest()};
  std::mt19937_64 engine(1);
  if constexpr (std::is_floating_point_v<Value>) {
    using Limits = std::numeric_limits<Value>;
    for (const Value value :
         {Value{0}, Limits::infinity(), Limits::denorm_min(), Limits::min(), static_cast<Value>(0.3)})
      values.insert(values.end(), {value, -value});
    values.insert(values.end(), {Limits::quiet_NaN(), -Limits::quiet_NaN()});
  }
  using Bits = std::conditional_t<sizeof(Value) == 8, uint64_t,
                                  std::conditional_t<sizeof(Value) == 4, uint32_t, uint16_t>>;
  for (int i = 0; i < 200; ++i) {
    if constexpr (std::is_floating_point_v<Value>)
      values.push_back(std::bit_cast<Value>(static_cast<Bits>(engine())));
    else
      values.push_back(static_cast<Value>(engine()));
  }
  return values;
}

template <class Value>
bool have_the_same_bits(Value a, Value b) {
  if constexpr (std::is_floating_point_v<Value>)
    return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
  else
    return a == b;
}

template <class Value>
void check_rows() {
  constexpr bool kFloat = std::is_floating_point_v<Value>;
  for (size_t op = 0; op < operators::kCount; ++op) {
    operators::visit(op, [&](auto row) {
      using Row = decltype(row);
      if constexpr (Row::is_defined(kFloat ? operators::kFloats : operators::kIntegers)) {
        for (const Value a : values<Value>()) {
          for (const Value b : values<Value>()) {
            const Value got = Row::Function::combine(a, b);
            Value want{};
            if constexpr (kFloat)
              want = defined_float(static_cast<ReduceOp>(op), a, b);
            else
              want = defined_integer(static_cast<ReduceOp>(op), a, b);
            EXPECT_TRUE(have_the_same_bits(got, want)) << Row::kName.view() << " of " << +a << " and " << +b;
            EXPECT_TRUE(have_the_same_bits(got, Row::Function::combine(b, a))) << Row::kName.view();
          }
        }
      }
      return true;
    });
  }
}

TEST(OperatorsTest, FunctionsAreWhatTheirNamesSay) {
  ASSERT_EQ(operators::kCount, kDefinedCount) << "give the new operator a definition in this file";
  check_rows<int8_t>();
  check_rows<uint8_t>();
  check_rows<int16_t>();
  check_rows<uint16_t>();
  check_rows<int32_t>();
  check_rows<uint32_t>();
  check_rows<int64_t>();
  check_rows<uint64_t>();
  check_rows<float>();
  check_rows<double>();
}

// Goal: on bool sum and max are or, prod and min are and; no other operator is defined there.
TEST(OperatorsTest, OnBoolOperatorsAreAndOrOr) {
  const std::map<std::string, bool> is_and = {{"sum", false}, {"max", false}, {"prod", true}, {"min", true}};
  for (size_t op = 0; op < operators::kCount; ++op) {
    operators::visit(op, [&](auto row) {
      using Row = decltype(row);
      const std::string name(Row::kName.view());
      EXPECT_EQ(Row::is_defined(operators::kBool), is_and.contains(name)) << name;
      if constexpr (Row::is_defined(operators::kBool)) {
        for (const auto a : {uint8_t{0}, uint8_t{1}}) {
          for (const auto b : {uint8_t{0}, uint8_t{1}})
            EXPECT_EQ(Row::BoolFunction::combine(a, b), is_and.at(name) ? a & b : a | b) << name;
        }
      }
      return true;
    });
  }
}

// Goal: what kSigned and kExact say of a function is true.
TEST(OperatorsTest, FunctionsKeepWhatTheirRowsPromise) {
  for (size_t op = 0; op < operators::kCount; ++op) {
    operators::visit(op, [&](auto row) {
      using Row = decltype(row);
      using Function = typename Row::Function;
      if constexpr (Row::is_defined(operators::kIntegers) && !Function::kSigned) {
        for (const int32_t a : values<int32_t>()) {
          for (const int32_t b : values<int32_t>()) {
            EXPECT_EQ(static_cast<uint32_t>(Function::combine(a, b)),
                      Function::combine(static_cast<uint32_t>(a), static_cast<uint32_t>(b)))
                << Row::kName.view();
          }
        }
      }
      if constexpr (Row::is_defined(operators::kFloats) && Function::kExact) {
        for (const float a : values<float>()) {
          for (const float b : values<float>()) {
            const float c = -0.5F;
            EXPECT_TRUE(have_the_same_bits(Function::combine(Function::combine(a, b), c),
                                           Function::combine(a, Function::combine(b, c))))
                << Row::kName.view();
          }
        }
      }
      return true;
    });
  }
}

}  // namespace
}  // namespace tutti
