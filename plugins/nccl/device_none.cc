// device.h for builds without CUDA: every rank works on host memory.
#include "plugins/nccl/device.h"

namespace tutti::nccl {

int current_device() {
  return kHostMemory;
}

int device_count() {
  return 0;
}

Result<void*> allocate_on_device(int /*device*/, size_t /*bytes*/) {
  return Status(Code::kUnsupported, "this build of tutti has no CUDA");
}

bool free_on_device(void* /*pointer*/) {
  return false;
}

}  // namespace tutti::nccl
