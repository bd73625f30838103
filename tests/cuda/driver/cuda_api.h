// cuda.h, for the library that defines its functions: they are what it exports.
#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
#include <cudaTypedefs.h>

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's
// Older versions, which programs ask for; the header declares them only to the driver itself.
#undef cuEventElapsedTime
#undef cuStreamGetCaptureInfo
#define cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v2
extern "C" CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to);
extern "C" CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                              CUgraph* graph, const CUgraphNode** dependencies,
                                              size_t* count);
// NOLINTEND(readability-identifier-naming)
#pragma GCC visibility pop
