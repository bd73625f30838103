// find_kernel, and what depends only on the target: the copy kernel and the target's name.
#include "reduce/kernels.h"
#include "reduce/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/find.cc"
#include "hwy/foreach_target.h"
#include "reduce/copy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::reduce::HWY_NAMESPACE {

void copy_kernel(const Job& job) {
  copy_bytes(job, job.count);
}

Kernel choose_copy() {
  return copy_kernel;
}
const char* choose_name() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace tutti::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace tutti::reduce {
namespace {
HWY_EXPORT(choose_copy);
HWY_EXPORT(choose_name);
}  // namespace

Kernel find_copy_kernel() {
  return HWY_DYNAMIC_DISPATCH(choose_copy)();
}

/// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2A, CPUID, leaf 7.
bool has_string_moves() {
#if HWY_ARCH_X86
  constexpr unsigned kEnhanced = 1u << 9;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & kEnhanced) != 0;
#else
  return false;
#endif
}

const char* target_name() {
  return HWY_DYNAMIC_DISPATCH(choose_name)();
}

Kernel find_kernel(DataType type, ReduceOp op, Association association) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8: return find_int8(type, op, association);
    case DataType::kInt16:
    case DataType::kUint16: return find_int16(type, op, association);
    case DataType::kInt32:
    case DataType::kUint32: return find_int32(type, op, association);
    case DataType::kInt64:
    case DataType::kUint64: return find_int64(type, op, association);
    case DataType::kFloat16: return find_float16(type, op, association);
    case DataType::kBfloat16: return find_bfloat16(type, op, association);
    case DataType::kFloat32: return find_float32(type, op, association);
    case DataType::kFloat64: return find_float64(type, op, association);
    case DataType::kFloat8E4M3:
    case DataType::kFloat8E5M2: return find_float8(type, op, association);
    case DataType::kBool: return find_bool(type, op, association);
  }
  return nullptr;
}

}  // namespace tutti::reduce
#endif
