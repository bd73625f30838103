// Builds without CUDA.
#include "device/device_rank.h"

namespace tutti {

Result<std::unique_ptr<Devices>> Devices::find(uint32_t /*queues*/, bool /*yields*/) {
  return Status(
      Code::kUnsupported,
      "this build has no CUDA engine: build it where nvcc and cuda.h are found (-Dcuda=enabled says "
      "what is missing)");
}

}  // namespace tutti
