// Kernels of int32 and uint32; all associations of integers give the same bits.
#include "reduce/kernels.h"
#include "reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_int32.cc"
#include "hwy/foreach_target.h"
#include "reduce/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::reduce::HWY_NAMESPACE {

Kernel choose_int32(DataType type, ReduceOp op, Association) {
  return type == DataType::kInt32 ? find_for_integer<int32_t>(op) : find_for_integer<uint32_t>(op);
}

}  // namespace tutti::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::reduce {
namespace {
HWY_EXPORT(choose_int32);
}
Kernel find_int32(DataType type, ReduceOp op, Association association) {
  return HWY_DYNAMIC_DISPATCH(choose_int32)(type, op, association);
}
}  // namespace tutti::reduce
#endif
