#include "plan/rounds.h"

#include <algorithm>

namespace tutti {

uint64_t slice_bytes_for(uint64_t bytes, const SliceLimits& limits) {
  constexpr uint64_t kSlicesPerPiece = 4;
  if (bytes <= limits.least) return limits.most;
  const uint64_t part = (bytes / kSlicesPerPiece + limits.least - 1) / limits.least * limits.least;
  return std::clamp(part, std::min(limits.least, limits.most), limits.most);
}

Rounds Rounds::of(uint64_t largest_chunk_bytes, uint32_t slots, uint32_t slots_needed,
                  const SliceLimits& limits) {
  Rounds rounds;
  rounds.slice_bytes = slice_bytes_for(largest_chunk_bytes, limits);
  rounds.round_bytes = std::max(1u, slots / 2 / std::max(1u, slots_needed)) * rounds.slice_bytes;
  rounds.count = static_cast<uint32_t>(
      std::max<uint64_t>(1, (largest_chunk_bytes + rounds.round_bytes - 1) / rounds.round_bytes));
  return rounds;
}

}  // namespace tutti
