// Names of types, operators and collectives: one table each, for both directions.
#include "core/types.h"

namespace tutti {
namespace {

constexpr std::array<std::string_view, kDataTypeCount> kTypeNames = {
    "int8",    "uint8",    "int32",       "uint32",      "int64", "uint64", "float16", "float32",
    "float64", "bfloat16", "float8_e4m3", "float8_e5m2", "int16", "uint16", "bool"};
constexpr std::array<std::string_view, kCollectiveCount> kCollectiveNames = {
    "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter",
    "all_to_all", "gather", "scatter",   "barrier",    "send_recv"};

static_assert(!kTypeNames.back().empty() && !kCollectiveNames.back().empty(), "a name is missing");

template <class Enum, size_t kCount>
std::optional<Enum> find_name(const std::array<std::string_view, kCount>& names, std::string_view name) {
  for (size_t i = 0; i < kCount; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

template <class Enum, size_t kCount>
std::string_view name_at(const std::array<std::string_view, kCount>& names, Enum value) {
  const auto index = static_cast<size_t>(value);
  return index < kCount ? names[index] : std::string_view("unknown");
}

}  // namespace

std::string_view type_name(DataType type) {
  return name_at(kTypeNames, type);
}
std::string_view op_name(ReduceOp op) {
  return name_at(operators::kNames, op);
}
std::string_view collective_name(Collective collective) {
  return name_at(kCollectiveNames, collective);
}
std::optional<DataType> type_from_name(std::string_view name) {
  return find_name<DataType>(kTypeNames, name);
}
std::optional<ReduceOp> op_from_name(std::string_view name) {
  return find_name<ReduceOp>(operators::kNames, name);
}
std::optional<Collective> collective_from_name(std::string_view name) {
  return find_name<Collective>(kCollectiveNames, name);
}

}  // namespace tutti
