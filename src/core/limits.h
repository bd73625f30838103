// Limits that every part of the library shares.
#pragma once

#include <cstdint>

namespace tutti {

/// Most ranks of a communicator.
inline constexpr uint32_t kMaxCommRanks = 4096;

/// Chunks and messages from here on are cut into slices of a wide slot, where links have such slots.
/// Fewer slices wait for fewer flags: between far cores a ping-pong is 1.2 to 1.4 times as fast. Shorter
/// messages need more slices to overlap (docs/measurements/carriage.md).
inline constexpr uint64_t kLeastWidePiece = 1u << 20;
inline constexpr uint32_t kWideSlotBytes = 65536;

}  // namespace tutti
