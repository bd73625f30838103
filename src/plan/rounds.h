// Rounds: how long messages are cut into slices, and into rounds that fit a link's slots. The engine and the
// price cut alike.
#pragma once

#include <cstdint>

namespace tutti {

/// A longer piece than `least` is cut into `wanted` slices or more, as far as multiples of `least` and `most`
/// allow, so that the copies into and out of the slots overlap. `least` bounds the cost of flags.
struct SliceLimits {
  static constexpr uint32_t kWantedOnDevices = 4;

  uint64_t least = 8192;  ///< as large as `most` where no core copies into slots, as with a network
  uint64_t most = 16384;  ///< bytes of a slot
  uint32_t wanted = 2;
  uint32_t wide_slots = 0;  ///< of kWideSlotBytes, in each link; 0: every slice fits a slot
};

/// Bytes of a slice of a piece of `bytes`.
uint64_t slice_bytes_for(uint64_t bytes, const SliceLimits& limits);

struct Rounds {
  uint64_t slice_bytes = 0;  ///< of a message; the last slice may be shorter
  uint64_t round_bytes = 0;  ///< bytes of each chunk that one round moves
  uint32_t count = 1;
  uint32_t slots = 0;  ///< of each link that hold such slices

  /// `slots`: of each link, without the wide ones. `slots_needed`: of the plan.
  static Rounds of(uint64_t largest_chunk_bytes, uint32_t slots, uint32_t slots_needed,
                   const SliceLimits& limits);
};

}  // namespace tutti
