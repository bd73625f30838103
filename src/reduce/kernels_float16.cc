// Kernels of float16.
#include "reduce/kernels.h"
#include "reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_float16.cc"
#include "hwy/foreach_target.h"
#include "reduce/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::reduce::HWY_NAMESPACE {

Kernel choose_float16(DataType, ReduceOp op, Association association) {
  return find_for_float<Float16>(op, association);
}

}  // namespace tutti::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::reduce {
namespace {
HWY_EXPORT(choose_float16);
}
Kernel find_float16(DataType type, ReduceOp op, Association association) {
  return HWY_DYNAMIC_DISPATCH(choose_float16)(type, op, association);
}
}  // namespace tutti::reduce
#endif
