// The SIMD targets of the kernels: include before any Highway header.
//
// SSE4, AVX2 and AVX-512 (AVX3) cover the x86 machines in use, and NEON covers Arm. The baseline runs plain
// loops. Targets with vectors of unknown length are left out, because the kernels keep vectors in structs.
// SSSE3 and AVX3_DL would add code but no speed. Each target costs about 0.4 MB and 10 s of compile time.
#pragma once

#include "hwy/detect_compiler_arch.h"

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
