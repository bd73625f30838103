// Kernels of bool: sum and max are or, prod and min are and.
#include "reduce/kernels.h"
#include "reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_bool.cc"
#include "hwy/foreach_target.h"
#include "reduce/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::reduce::HWY_NAMESPACE {

Kernel choose_bool(DataType, ReduceOp op, Association) {
  return operators::visit(static_cast<size_t>(op), [](auto row) -> Kernel {
    using Row = decltype(row);
    if constexpr (Row::is_defined(operators::kBool)) {
      return kernel<bool, VectorOperator<typename Row::BoolFunction, Row::kRole>, Association::kLeft>;
    } else {
      return nullptr;
    }
  });
}

}  // namespace tutti::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::reduce {
namespace {
HWY_EXPORT(choose_bool);
}
Kernel find_bool(DataType type, ReduceOp op, Association association) {
  return HWY_DYNAMIC_DISPATCH(choose_bool)(type, op, association);
}
}  // namespace tutti::reduce
#endif
