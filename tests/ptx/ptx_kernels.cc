// The kernels of tests/kernels/host_kernels.h, out of the PTX that nvcc has made.
#include <cstring>

#include "engine/cuda/launch.cuh"
#include "engine/cuda/roles.cuh"
#include "ptx.h"
#include "tests/kernels/host_kernels.h"

using namespace ptx_kernels;

extern "C" void tutti_run(tutti::cuda::Launch launch) {
  static_assert(sizeof launch == tutti_run_bytes);
  f_tutti_run(ptx::this_block(kShared), reinterpret_cast<const unsigned char*>(&launch));
}
extern "C" void tutti_short(tutti::cuda::Launch launch) {
  static_assert(sizeof launch == tutti_short_bytes);
  f_tutti_short(ptx::this_block(kShared), reinterpret_cast<const unsigned char*>(&launch));
}

namespace tutti::test {

/// nvcc has found that the argument is always the block's own slice.
void move_one_slice(const cuda::Slice& slice) {
  if (cuda::is_scout()) return;
  ptx::Block block = ptx::this_block(kShared);
  constexpr uint64_t kState = shared__ZZN5tutti4cuda10run_launchERKNS0_6LaunchEE5block;
  std::memcpy(block.memory + kState - kShared.start + offsetof(cuda::BlockState, slice), &slice,
              sizeof slice);
  f__ZN5tutti4cuda10move_sliceERKNS0_5SliceE(block);
}
/// The PTX has it only as a part of short calls.
bool reduces_some_words() {
  return false;
}
cuda::PacketData reduce_some_words(const cuda::Calculation& /*job*/, const cuda::Operands& /*operands*/) {
  ptx::trap();
}

}  // namespace tutti::test
