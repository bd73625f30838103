// The device's kernels, compiled for the host: see engine/cuda/device.h and tests/simt.
#include "tests/kernels/host_kernels.h"

#include "engine/cuda/kernels.cu"

namespace tutti::test {

void move_one_slice(const cuda::Slice& slice) {
  if (!cuda::is_scout()) cuda::move_slice(slice);
}
bool reduces_some_words() {
  return true;
}
cuda::PacketData reduce_some_words(const cuda::Calculation& job, const cuda::Operands& operands) {
  return cuda::reduce_words(job, operands);
}

}  // namespace tutti::test
