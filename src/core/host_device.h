// A mark for functions that kernels call as well. Functions that are constexpr need none: kernels are
// compiled with --expt-relaxed-constexpr.
#pragma once

#if defined(__CUDACC__)
#define TUTTI_HOST_DEVICE __host__ __device__
#else
#define TUTTI_HOST_DEVICE
#endif
