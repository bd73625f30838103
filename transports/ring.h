// Ring: the memory of a link, declared once for host and device.
//
// A message has a cell of two adjacent cache lines, which caches often fetch together: a flag word and 120
// bytes for a small payload. A larger payload lies in the slot of the same number, or in a wide slot, or
// travels as a reference. The flag word holds the message's number, a signature of the call and the payload's
// size, which the reader knows beforehand. So one compare shows that the message has arrived, and the first
// message reveals a call that does not match. The reader returns slots through a counter in its own cache
// line.
//
// The words are plain, for kernels. Host threads access them through core/shared_word.h, kernels through
// engine/cuda/device.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/hash.h"
#include "core/limits.h"

namespace tutti {

inline constexpr size_t kLineBytes = 64;
inline constexpr uint32_t kInlineBytes = 120;

enum class Carriage : uint8_t {
  kInline = 0,
  kSlot = 1,
  kReference =
      2,      ///< an address for the reader to load from; 0: the payload is in the reader's buffer already
  kPull = 3,  ///< a PulledRun in the writer's process, to copy from by a system call
};

/// The adjacent slices that a kPull message stands for. Its flag word has the size of the first one.
struct PulledRun {
  uint64_t address;
  uint64_t bytes;
};

struct alignas(2 * kLineBytes) Cell {
  uint64_t word;
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(Cell) == 2 * kLineBytes);

/// A counter alone in its cache line.
struct alignas(kLineBytes) Credit {
  uint64_t released;
  uint32_t can_pull;  ///< 1: the reader has shown that it can pull
  /// The reader's costs, by StoreTrials::Length and kind of stores, as StoreTrials::shown.
  uint16_t store_costs[4][4];
  uint32_t pull_preferences;  ///< bits for each class of messages (MessageVotes::preferences)
};
static_assert(sizeof(Credit) == kLineBytes);

/// The address in a reference to a payload that is in the readers' buffers already (ExposedBuffer).
inline constexpr uint64_t kWrittenDirectly = 0;

/// The part of a buffer, from its beginning, that lies in registered memory.
struct Reach {
  uint64_t location;  ///< of the beginning, as engine/cuda/program.h numbers it; 0: not registered memory
  uint64_t bytes;
};

/// A rank's receive buffer during one call. Peers may write results there until the rank has read the call's
/// last message. Only the owner writes this struct.
struct alignas(kLineBytes) ExposedBuffer {
  uint64_t call;     ///< sequence number of the collective; written last
  uint64_t address;  ///< for peers in the same process, or on the same device
  Reach reach;       ///< for peers on other devices
  /// For other processes of the host. 1: in the symmetric heap, which they have mapped.
  uint32_t in_heap;
};
static_assert(sizeof(ExposedBuffer) == kLineBytes);

/// The flag word: number (12 bits) | signature (28) | bytes (22) | carriage (2). A cell holds the message of
/// this round of the ring or of the round before. So the number needs few bits, and the signature gets the
/// rest.
namespace flag {
inline constexpr uint32_t kNumberBits = 40 - kSignatureBits;
inline constexpr uint64_t kNumberMask = (1ull << kNumberBits) - 1;
inline constexpr uint32_t kMostSlots = 1u << (kNumberBits - 1);
inline constexpr uint64_t kCarriageShift = 62;
inline constexpr uint64_t kAgreedMask = (1ull << kCarriageShift) - 1;
inline constexpr uint64_t kMaxBytes = (1ull << 22) - 1;

/// `number` counts the link's messages from 0. A fresh cell (word 0) matches no number.
constexpr uint64_t make(uint64_t number, uint32_t signature, uint64_t bytes) {
  return ((number + 1) & kNumberMask) | (static_cast<uint64_t>(signature) << kNumberBits) | (bytes << 40);
}
constexpr Carriage carriage(uint64_t word) {
  return static_cast<Carriage>(word >> kCarriageShift);
}
constexpr uint32_t signature(uint64_t word) {
  return static_cast<uint32_t>(word >> kNumberBits) & ((1u << kSignatureBits) - 1);
}
/// Whether two words have the same number and signature.
constexpr bool is_same_message(uint64_t a, uint64_t b) {
  constexpr uint64_t kMask = (1ull << 40) - 1;
  return ((a ^ b) & kMask) == 0;
}
constexpr uint64_t bytes(uint64_t word) {
  return (word >> 40) & kMaxBytes;
}
}  // namespace flag

/// Reports of freed slots in one round of the ring.
inline constexpr uint32_t kCreditsPerRing = 4;

/// Equal on both ends.
struct RingShape {
  uint32_t slots = 32;  ///< power of two
  uint32_t slot_bytes = 16384;
  uint32_t readers = 1;
  uint32_t wide_slots = 0;  ///< behind the others; power of two, at most slots; 0: none
  /// Behind these: slots that both ranks write (passed_slots.h). Only those in the ring from the lower rank
  /// to the higher one are used.
  uint32_t passed_slots = 0;
  uint32_t least_passed_bytes = UINT32_MAX;  ///< of a payload in one of them

  size_t cells_bytes() const { return slots * sizeof(Cell); }
  size_t header_bytes() const { return (cells_bytes() + readers * sizeof(Credit) + 4095) / 4096 * 4096; }
  size_t passed_offset() const {
    return header_bytes() + size_t{slots} * slot_bytes + size_t{wide_slots} * kWideSlotBytes;
  }
  /// A multiple of a cell.
  size_t ring_bytes() const {
    const size_t end = passed_offset() + size_t{passed_slots} * slot_bytes;
    return (end + sizeof(Cell) - 1) / sizeof(Cell) * sizeof(Cell);
  }
};

}  // namespace tutti
