// The part of Highway's library that chooses among SIMD targets, for distributions whose Highway is only a
// shared library. The interface is that of hwy/targets.h. A rank's kernels use nothing else of Highway's
// library, so binaries do not need that library.
#include "hwy/targets.h"

#include <atomic>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace hwy {
namespace {

std::atomic<int64_t> targets_of_test{0};

#if HWY_ARCH_X86
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

/// What the processor and the system have of the targets that reduce/targets.h leaves enabled. Each target
/// includes the one before.
int64_t detect() {
  constexpr int64_t kFallback = HWY_EMU128 | HWY_SCALAR;
  __builtin_cpu_init();
  const bool has_sse4 = __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") &&
                        __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
                        __builtin_cpu_supports("aes");
  if (!has_sse4) return kFallback;
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                        __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma") && has_f16c();
  if (!has_avx2) return kFallback | HWY_SSE4;
  const bool has_avx3 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512bw");
  return kFallback | HWY_SSE4 | HWY_AVX2 | (has_avx3 ? HWY_AVX3 : 0);
}
#else
/// The compiler's baseline: reduce/targets.h enables nothing above it here.
int64_t detect() {
  return HWY_EMU128 | HWY_SCALAR | HWY_STATIC_TARGET;
}
#endif

}  // namespace

ChosenTarget& GetChosenTarget() {
  static constinit ChosenTarget chosen;
  return chosen;
}

int64_t SupportedTargets() {
  const int64_t of_test = targets_of_test;
  return of_test != 0 ? of_test : detect();
}

void SetSupportedTargetsForTest(int64_t targets) {
  targets_of_test = targets;
}

}  // namespace hwy
