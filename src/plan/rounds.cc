#include "plan/rounds.h"

#include <algorithm>

#include "core/limits.h"

namespace tutti {

uint64_t slice_bytes_for(uint64_t bytes, const SliceLimits& limits) {
  if (bytes <= limits.least) return limits.most;
  if (limits.wide_slots != 0 && bytes >= kLeastWidePiece) return kWideSlotBytes;
  const uint64_t part = (bytes / limits.wanted + limits.least - 1) / limits.least * limits.least;
  return std::clamp(part, std::min(limits.least, limits.most), limits.most);
}

Rounds Rounds::of(uint64_t largest_chunk_bytes, uint32_t slots, uint32_t slots_needed,
                  const SliceLimits& limits) {
  Rounds rounds;
  rounds.slots = slots;
  rounds.slice_bytes = slice_bytes_for(largest_chunk_bytes, limits);
  if (rounds.slice_bytes > limits.most) {
    // Four slices in a round, so that the copies overlap; with fewer, twice as many are under way.
    if (8 * slots_needed <= limits.wide_slots) {
      rounds.slots = limits.wide_slots;
    } else {
      rounds.slice_bytes = limits.most;
    }
  }
  rounds.round_bytes = std::max(1u, rounds.slots / 2 / std::max(1u, slots_needed)) * rounds.slice_bytes;
  rounds.count = static_cast<uint32_t>(std::clamp<uint64_t>(
      (largest_chunk_bytes + rounds.round_bytes - 1) / rounds.round_bytes, 1, UINT32_MAX));
  return rounds;
}

}  // namespace tutti
