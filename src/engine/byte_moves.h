// Byte moves: collectives without arithmetic, as messages between the ranks.
//
// A plan's steps read and write payloads. Memory of a device can be neither read nor written by the host's
// interpreter, but a network card sends whole messages from there. So where all ranks' cards reach their
// devices, these collectives go as messages.
#pragma once

#include <cstdint>

#include "engine/call.h"

namespace tutti {

/// Shorter messages pass through host memory: two short copies cost less than telling the peer where to
/// write. Not measured: no hardware was at hand.
inline constexpr uint64_t kLeastDirectBytes = 1u << 16;
/// A broadcast leaves the root once for each rank. On more ranks a plan is faster, copies included.
inline constexpr uint32_t kMostBroadcastRanks = 4;

/// Whether a call should go as messages. All ranks agree.
bool moves_bytes(const CallShape& shape, uint32_t rank_count);
/// The call's messages of one rank. Requires moves_bytes().
MessageCall as_messages(const Call& call, uint32_t rank, uint32_t rank_count);

}  // namespace tutti
