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
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax: return kernel<bool, BitOr, Association::kLeft>;
    case ReduceOp::kProd:
    case ReduceOp::kMin: return kernel<bool, BitAnd, Association::kLeft>;
    default: return nullptr;
  }
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
