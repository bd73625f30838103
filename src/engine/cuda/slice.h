// Slice: the bytes that a block moves at once. And the room for what the block looks up to find the next one.
#pragma once

#include <cstdint>

#include "engine/cuda/program.h"
#include "reduce/reduce.h"
#include "transports/ring.h"

namespace tutti::cuda {

/// How the elements of a step's sources become one.
struct Calculation {
  uint32_t source_count;
  uint32_t scaled_sources;  ///< bit k: the scale multiplies source k
  uint32_t finishes;        ///< 1: the result is divided
  Arithmetic arithmetic;
};

/// A slice of a step, with all that a block needs to move it; in shared memory.
struct Slice : Calculation {
  const unsigned char* sources[reduce::kMaxSources];
  unsigned char* sinks[reduce::kMaxSinks];  ///< null: not written
  uint32_t sink_count;
  uint32_t copies;     ///< 1: one source and no arithmetic; a sink equal to the source is skipped
  uint32_t collects;   ///< 1: source 0 is a multicast address; loads from it reduce
  uint32_t published;  ///< bit m: sink m is a multicast address; its 16-byte packets may be stored whole
  /// Threads that move it. In memory: the number would be computed in uniform registers, of which calls keep
  /// too few.
  uint32_t movers;
  uint64_t bytes;
};

/// The data of a packet.
struct PacketData {
  uint32_t words[kPacketWords];
};
/// The same packet of every source of a step. An element of 8 bytes is in the first two words.
struct Operands {
  PacketData sources[reduce::kMaxSources];
};

/// What is known of a slice's end, for use once the slice has moved.
struct ReadyEnd {
  uint64_t word;       ///< links: the flag word received, or to send
  uint64_t reference;  ///< sent by reference: what tells the reader where the slice is
  uint32_t link;       ///< in Tables::sends or receives
  uint16_t slots;      ///< links: numbers that the message takes
  EndKind kind;
  Carriage carriage;
};
static_assert(flag::kMostSlots <= UINT16_MAX);

inline constexpr uint32_t kMaxEnds = reduce::kMaxSources + reduce::kMaxSinks + 2 * kMaxMulticastRanks;

/// A block's room in shared memory: first the ready ends of two slices, then copies of the lane's sends,
/// receives, ends, chunks, offsets and steps. A load from device memory takes 0.3 to 0.6 us, and the
/// acquiring loads of polls empty the first cache.
inline constexpr uint32_t kRoomBytes = 8192;
static_assert(2 * kMaxEnds * sizeof(ReadyEnd) <= kRoomBytes);

}  // namespace tutti::cuda
