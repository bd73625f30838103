// The table of reduction operators, for the kernels of host and device, the reference and the checker of the
// perf tools. CONTRIBUTING.md says how to add a row.
//
// A row has a name, a function, its types, a Role, and a function for bool if that differs. An operator's
// number is its row's number. Rows before "mulsum" have the values of tutti_op_t.
//
// A function is a struct with a template combine(a, b) for integers, float and double, on host and device.
// Smaller floats are converted to float first. combine must be commutative.
// - kExact: no result is rounded, and the order of operands does not matter. A NaN result is stored as the
//   canonical NaN.
// - kSigned: signed and unsigned integers give different bits, so each has its own kernel.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/host_device.h"
#include "core/name.h"

namespace tutti::operators {

/// Defaults for a function.
struct FunctionDefaults {
  static constexpr bool kExact = false;
  static constexpr bool kSigned = true;
};

/// Integers wrap around. In C++ only unsigned types may, so the sum is unsigned.
struct Sum : FunctionDefaults {
  static constexpr bool kSigned = false;
  template <class T>
  TUTTI_HOST_DEVICE static T combine(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return a + b;
    } else {
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    }
  }
};
struct Prod : FunctionDefaults {
  static constexpr bool kSigned = false;
  template <class T>
  TUTTI_HOST_DEVICE static T combine(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return a * b;
    } else {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    }
  }
};
/// Floats: -0 is below +0, and a NaN operand gives the canonical quiet NaN.
struct Min : FunctionDefaults {
  static constexpr bool kExact = true;
  template <class T>
  TUTTI_HOST_DEVICE static T combine(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
      if (a == b) return std::signbit(a) ? a : b;
    }
    return a < b ? a : b;
  }
};
struct Max : FunctionDefaults {
  static constexpr bool kExact = true;
  template <class T>
  TUTTI_HOST_DEVICE static T combine(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
      if (a == b) return std::signbit(a) ? b : a;
    }
    return a > b ? a : b;
  }
};
struct And : FunctionDefaults {
  static constexpr bool kSigned = false;
  template <class T>
  TUTTI_HOST_DEVICE static T combine(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or : FunctionDefaults {
  static constexpr bool kSigned = false;
  template <class T>
  TUTTI_HOST_DEVICE static T combine(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor : FunctionDefaults {
  static constexpr bool kSigned = false;
  template <class T>
  TUTTI_HOST_DEVICE static T combine(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

/// What a collective does besides calling the function.
enum class Role : uint8_t {
  kPlain,
  kAverage,  ///< the result is divided by the rank count
  kScaled,   ///< each operand is first multiplied by the caller's scalar
};

enum Types : uint8_t { kIntegers = 1, kFloats = 2, kBool = 4, kNumbers = 3, kEverything = 7 };

/// `OnBool`: the function for bytes that are 0 or 1. Rows with equal functions share one kernel.
template <Name kText, class FunctionType, Types kDefined, Role kRoleValue = Role::kPlain,
          class OnBool = FunctionType>
struct Row {
  using Function = FunctionType;
  using BoolFunction = OnBool;
  static constexpr Name kName = kText;
  static constexpr Role kRole = kRoleValue;
  static constexpr bool is_defined(Types types) { return (kDefined & types) != 0; }
};

using Table = std::tuple<Row<"sum", Sum, kEverything, Role::kPlain, Or>,     //
                         Row<"prod", Prod, kEverything, Role::kPlain, And>,  //
                         Row<"max", Max, kEverything, Role::kPlain, Or>,     //
                         Row<"min", Min, kEverything, Role::kPlain, And>,    //
                         Row<"avg", Sum, kNumbers, Role::kAverage>,          //
                         Row<"band", And, kIntegers>,                        //
                         Row<"bor", Or, kIntegers>,                          //
                         Row<"bxor", Xor, kIntegers>,
                         // A new row goes above this line: tutti_op_create_premul_sum makes this operator.
                         Row<"mulsum", Sum, kNumbers, Role::kScaled>>;

inline constexpr size_t kCount = std::tuple_size_v<Table>;
template <size_t kIndex>
using RowAt = std::tuple_element_t<kIndex, Table>;

/// Returns visitor(Row()) for row `index`, or a default value if there is no such row.
template <size_t kIndex = 0, class Visitor>
constexpr auto visit(size_t index, const Visitor& visitor) {
  using Result = decltype(visitor(RowAt<0>()));
  if constexpr (kIndex == kCount) {
    return Result();
  } else {
    return index == kIndex ? visitor(RowAt<kIndex>()) : visit<kIndex + 1>(index, visitor);
  }
}

inline constexpr std::array<std::string_view, kCount> kNames =
    []<size_t... kIndices>(std::index_sequence<kIndices...>) {
  return std::array<std::string_view, kCount>{RowAt<kIndices>::kName.view()...};
}
(std::make_index_sequence<kCount>());

/// The number of the row with this name. The row must exist.
consteval uint8_t value_of(std::string_view name) {
  for (size_t i = 0; i < kCount; ++i) {
    if (kNames[i] == name) return static_cast<uint8_t>(i);
  }
  throw "no operator has this name";
}

}  // namespace tutti::operators
