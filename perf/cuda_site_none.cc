// Builds without CUDA (site.h).
#include "perf/site.h"

namespace tutti::perf {

Result<std::unique_ptr<CudaDevices>> CudaDevices::find() {
  return Status(
      Code::kUnsupported,
      "this build has no CUDA engine: build on a machine with nvcc and cuda.h (-Dcuda=enabled prints "
      "what is missing)");
}

}  // namespace tutti::perf
