#include "perf/element.h"

#include <array>

namespace tutti::perf {
namespace {

struct TypeEntry {
  tutti_type_t type;
  std::string_view name;
  std::string_view alias;
  uint8_t bytes;
  bool is_float;
};

constexpr std::array<TypeEntry, TUTTI_TYPE_COUNT> kTypes = {{
    {TUTTI_INT8, "int8", "char", 1, false},
    {TUTTI_UINT8, "uint8", "byte", 1, false},
    {TUTTI_INT32, "int32", "int", 4, false},
    {TUTTI_UINT32, "uint32", "uint", 4, false},
    {TUTTI_INT64, "int64", "long", 8, false},
    {TUTTI_UINT64, "uint64", "ulong", 8, false},
    {TUTTI_FLOAT16, "half", "float16", 2, true},
    {TUTTI_FLOAT32, "float", "float32", 4, true},
    {TUTTI_FLOAT64, "double", "float64", 8, true},
    {TUTTI_BFLOAT16, "bfloat16", "bf16", 2, true},
    {TUTTI_FLOAT8_E4M3, "f8e4m3", "float8_e4m3", 1, true},
    {TUTTI_FLOAT8_E5M2, "f8e5m2", "float8_e5m2", 1, true},
    {TUTTI_INT16, "int16", "short", 2, false},
    {TUTTI_UINT16, "uint16", "ushort", 2, false},
    {TUTTI_BOOL, "bool", "boolean", 1, false},
}};

const TypeEntry* find_type(tutti_type_t type) {
  for (const TypeEntry& entry : kTypes)
    if (entry.type == type) return &entry;
  return nullptr;
}

}  // namespace

std::string_view test_type_name(tutti_type_t type) {
  const TypeEntry* entry = find_type(type);
  return entry ? entry->name : "unknown";
}

std::optional<tutti_type_t> test_type_from_name(std::string_view name) {
  for (const TypeEntry& entry : kTypes)
    if (name == entry.name || name == entry.alias) return entry.type;
  return std::nullopt;
}

std::vector<tutti_type_t> all_test_types() {
  std::vector<tutti_type_t> types;
  for (const TypeEntry& entry : kTypes) types.push_back(entry.type);
  return types;
}

std::string_view test_op_name(TestOp op) {
  return op == TestOp::kNone ? "none" : operators::kNames[static_cast<size_t>(op)];
}

std::optional<TestOp> test_op_from_name(std::string_view name) {
  for (const TestOp op : all_test_ops())
    if (name == test_op_name(op)) return op;
  return std::nullopt;
}

std::vector<TestOp> all_test_ops() {
  std::vector<TestOp> ops;
  for (size_t i = 0; i < operators::kCount; ++i) ops.push_back(static_cast<TestOp>(i));
  return ops;
}

size_t test_type_bytes(tutti_type_t type) {
  const TypeEntry* entry = find_type(type);
  return entry ? entry->bytes : 0;
}

bool is_float_type(tutti_type_t type) {
  const TypeEntry* entry = find_type(type);
  return entry && entry->is_float;
}

bool is_op_defined(TestOp op, tutti_type_t type) {
  if (op == TestOp::kNone) return true;
  const operators::Types types = is_float_type(type)  ? operators::kFloats
                                 : type == TUTTI_BOOL ? operators::kBool
                                                      : operators::kIntegers;
  return operators::visit(static_cast<size_t>(op), [types](auto row) { return row.is_defined(types); });
}

tutti_op_t tutti_op(TestOp op) {
  if (op == TestOp::kMulSum || op == TestOp::kNone) return TUTTI_SUM;
  return static_cast<tutti_op_t>(op);
}

}  // namespace tutti::perf
