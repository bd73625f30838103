// Tables behind element.h.
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

struct OpEntry {
  TestOp op;
  std::string_view name;
  tutti_op_t value;
};

constexpr std::array<OpEntry, 10> kOps = {{
    {TestOp::kSum, "sum", TUTTI_SUM},
    {TestOp::kProd, "prod", TUTTI_PROD},
    {TestOp::kMax, "max", TUTTI_MAX},
    {TestOp::kMin, "min", TUTTI_MIN},
    {TestOp::kAvg, "avg", TUTTI_AVG},
    {TestOp::kMulSum, "mulsum", TUTTI_SUM},
    {TestOp::kBitAnd, "band", TUTTI_BAND},
    {TestOp::kBitOr, "bor", TUTTI_BOR},
    {TestOp::kBitXor, "bxor", TUTTI_BXOR},
    {TestOp::kNone, "none", TUTTI_SUM},
}};

const TypeEntry* find_type(tutti_type_t type) {
  for (const TypeEntry& entry : kTypes)
    if (entry.type == type) return &entry;
  return nullptr;
}

const OpEntry& find_op(TestOp op) {
  return kOps[static_cast<size_t>(op)];
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
  return find_op(op).name;
}

std::optional<TestOp> test_op_from_name(std::string_view name) {
  for (const OpEntry& entry : kOps)
    if (name == entry.name && entry.op != TestOp::kNone) return entry.op;
  return std::nullopt;
}

std::vector<TestOp> all_test_ops() {
  std::vector<TestOp> ops;
  for (const OpEntry& entry : kOps)
    if (entry.op != TestOp::kNone) ops.push_back(entry.op);
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
  switch (op) {
    case TestOp::kBitAnd:
    case TestOp::kBitOr:
    case TestOp::kBitXor: return !is_float_type(type) && type != TUTTI_BOOL;
    case TestOp::kAvg:
    case TestOp::kMulSum: return type != TUTTI_BOOL;
    default: return true;
  }
}

tutti_op_t tutti_op(TestOp op) {
  return find_op(op).value;
}

}  // namespace tutti::perf
