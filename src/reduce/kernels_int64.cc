// Kernels of int64 and uint64; all associations of integers give the same bits.
#include "reduce/kernels.h"
#include "reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_int64.cc"
#include "hwy/foreach_target.h"
#include "reduce/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::reduce::HWY_NAMESPACE {

Kernel choose_int64(DataType type, ReduceOp op, Association) {
  return type == DataType::kInt64 ? find_for_integer<int64_t>(op) : find_for_integer<uint64_t>(op);
}

}  // namespace tutti::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::reduce {
namespace {
HWY_EXPORT(choose_int64);
}
Kernel find_int64(DataType type, ReduceOp op, Association association) {
  return HWY_DYNAMIC_DISPATCH(choose_int64)(type, op, association);
}
}  // namespace tutti::reduce
#endif
