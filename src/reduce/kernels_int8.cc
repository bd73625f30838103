// Kernels of int8 and uint8; all associations of integers give the same bits.
#include "reduce/kernels.h"
#include "reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_int8.cc"
#include "hwy/foreach_target.h"
#include "reduce/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::reduce::HWY_NAMESPACE {

Kernel choose_int8(DataType type, ReduceOp op, Association) {
  return type == DataType::kInt8 ? find_for_integer<int8_t>(op) : find_for_integer<uint8_t>(op);
}

}  // namespace tutti::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::reduce {
namespace {
HWY_EXPORT(choose_int8);
}
Kernel find_int8(DataType type, ReduceOp op, Association association) {
  return HWY_DYNAMIC_DISPATCH(choose_int8)(type, op, association);
}
}  // namespace tutti::reduce
#endif
