// Arguments of the small kernels by which the fake driver itself is tested.
#pragma once

#include <cstdint>

namespace fake_cuda {

/// fake_store: thread 0 of block 0 writes the value.
struct StoreArgument {
  uint32_t* to;
  uint32_t value;
};

/// fake_add: every thread adds 1 to the counter.
struct AddArgument {
  uint32_t* counter;
};

/// fake_hand_over: block 0 waits, without a bound, until `flag` is at least `wanted`, then copies `from` to
/// `to`.
struct HandOverArgument {
  const uint32_t* flag;
  uint32_t wanted;
  const uint32_t* from;
  uint32_t* to;
};

/// fake_meet: every block counts itself and then waits, without a bound, until all have.
struct MeetArgument {
  uint32_t* counter;
  uint32_t blocks;
};

/// fake_collect: one thread stores the sum of four floats at a multicast address to `to`, and to all copies
/// of `to_all`.
struct CollectArgument {
  const float* from_all;
  float* to;
  float* to_all;
};

}  // namespace fake_cuda
