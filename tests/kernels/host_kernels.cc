// The device's kernels, compiled for the host: see engine/cuda/device.h and tests/simt.
#include "tests/kernels/host_kernels.h"

#include "engine/cuda/kernels.cu"

namespace tutti::test {

void move_one_slice(const cuda::Slice& slice) {
  cuda::move_slice(slice);
}

}  // namespace tutti::test
