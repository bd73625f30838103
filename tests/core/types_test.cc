// Element types, operators and collectives: names, sizes and the table of what is defined on what.
#include "core/types.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

namespace tutti {
namespace {

template <class Enum>
Enum nth(int index) {
  return static_cast<Enum>(index);
}

// Goal: every name leads back to its value, so that plan files and tools can be read again.
TEST(NamesTest, EveryNameReadsBack) {
  std::set<std::string_view> names;
  for (int i = 0; i < kDataTypeCount; ++i) {
    const auto name = type_name(nth<DataType>(i));
    EXPECT_EQ(type_from_name(name), nth<DataType>(i)) << name;
    names.insert(name);
  }
  for (int i = 0; i < kReduceOpCount; ++i) {
    const auto name = op_name(nth<ReduceOp>(i));
    EXPECT_EQ(op_from_name(name), nth<ReduceOp>(i)) << name;
    names.insert(name);
  }
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto name = collective_name(nth<Collective>(i));
    EXPECT_EQ(collective_from_name(name), nth<Collective>(i)) << name;
    names.insert(name);
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kDataTypeCount + kReduceOpCount + kCollectiveCount));
}

// Goal: what is no name is refused, and a value outside the enumeration still has a text.
TEST(NamesTest, UnknownNamesAndValuesAreHarmless) {
  for (const char* name : {"", "float", "Float32", "float32 ", "unknown"}) {
    EXPECT_FALSE(type_from_name(name)) << name;
    EXPECT_FALSE(op_from_name(name)) << name;
    EXPECT_FALSE(collective_from_name(name)) << name;
  }
  EXPECT_EQ(type_name(nth<DataType>(200)), "unknown");
  EXPECT_EQ(op_name(nth<ReduceOp>(200)), "unknown");
  EXPECT_EQ(collective_name(nth<Collective>(200)), "unknown");
}

// Goal: sizes are what their names say.
// Method: the digits in a type's name are its bits, except bool (one byte) and the fp8 formats.
TEST(TypeTest, BytesFollowFromTheName) {
  for (int i = 0; i < kDataTypeCount; ++i) {
    const auto type = nth<DataType>(i);
    const std::string_view name = type_name(type);
    size_t bytes = 0;
    if (name.find("64") != name.npos) bytes = 8;
    if (name.find("32") != name.npos) bytes = 4;
    if (name.find("16") != name.npos) bytes = 2;
    if (name == "bool" || name == "int8" || name == "uint8" || name.starts_with("float8")) bytes = 1;
    EXPECT_EQ(type_bytes(type), bytes) << name;
  }
  EXPECT_EQ(type_bytes(nth<DataType>(kDataTypeCount)), 0u);
}

// Goal: a type is exactly one of: floating, integer, bool.
TEST(TypeTest, IsFloatingOrIntegerOrBool) {
  for (int i = 0; i < kDataTypeCount; ++i) {
    const auto type = nth<DataType>(i);
    EXPECT_EQ(is_float(type) + is_integer(type) + (type == DataType::kBool), 1) << type_name(type);
    EXPECT_EQ(is_float(type), type_name(type).find("float") != std::string_view::npos) << type_name(type);
  }
}

// Goal: the operators that are not defined on everything are refused exactly where documented.
TEST(OperatorTest, IsDefinedWhereDocumented) {
  for (int i = 0; i < kDataTypeCount; ++i) {
    const auto type = nth<DataType>(i);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin}) {
      EXPECT_TRUE(is_defined(op, type)) << op_name(op) << " on " << type_name(type);
    }
    for (const ReduceOp op : {ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor}) {
      EXPECT_EQ(is_defined(op, type), is_integer(type)) << op_name(op) << " on " << type_name(type);
    }
    for (const ReduceOp op : {ReduceOp::kAvg, ReduceOp::kPremulSum}) {
      EXPECT_EQ(is_defined(op, type), type != DataType::kBool) << op_name(op) << " on " << type_name(type);
    }
  }
}

// Goal: the collectives that reduce, and those with a root, are exactly the documented ones.
TEST(CollectiveTest, ReducesOrHasARootAsDocumented) {
  const std::set<std::string_view> reducing = {"all_reduce", "reduce", "reduce_scatter"};
  const std::set<std::string_view> rooted = {"reduce", "broadcast", "gather", "scatter"};
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = nth<Collective>(i);
    EXPECT_EQ(reduces(collective), reducing.contains(collective_name(collective)));
    EXPECT_EQ(has_root(collective), rooted.contains(collective_name(collective)));
  }
}

}  // namespace
}  // namespace tutti
