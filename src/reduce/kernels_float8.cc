// Kernels of float8_e4m3 and float8_e5m2.
#include "reduce/kernels.h"
#include "reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_float8.cc"
#include "hwy/foreach_target.h"
#include "reduce/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::reduce::HWY_NAMESPACE {

Kernel choose_float8(DataType type, ReduceOp op, Association association) {
  return type == DataType::kFloat8E4M3 ? find_for_float<Float8E4M3>(op, association)
                                       : find_for_float<Float8E5M2>(op, association);
}

}  // namespace tutti::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::reduce {
namespace {
HWY_EXPORT(choose_float8);
}
Kernel find_float8(DataType type, ReduceOp op, Association association) {
  return HWY_DYNAMIC_DISPATCH(choose_float8)(type, op, association);
}
}  // namespace tutti::reduce
#endif
