// Builds without CUDA (site.h).
#include "perf/site.h"

namespace tutti::perf {

Result<std::unique_ptr<CudaDevices>> CudaDevices::find() {
  return Status(
      Code::kUnsupported,
      "this build has no CUDA engine: build it where nvcc and cuda.h are found (-Dcuda=enabled says "
      "what is missing)");
}

}  // namespace tutti::perf
