// The mark of functions that kernels also call. A constexpr function needs no mark: kernels are compiled with
// --expt-relaxed-constexpr.
#pragma once

#if defined(__CUDACC__)
#define TUTTI_HOST_DEVICE __host__ __device__
#else
#define TUTTI_HOST_DEVICE
#endif
