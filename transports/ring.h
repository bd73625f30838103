// Ring: the memory of a link, in one declaration for host and device.
//
// A message has a cell, one cache line: a flag word and 56 bytes. A small payload travels in the cell, so
// that a small message costs one line transfer. A larger payload lies in the slot of the same number, or
// stays where the payload is and travels as a reference. The flag word holds the message's number, a
// signature of the call and the payload's bytes. The reader knows all three beforehand. One compare tells
// whether the message has arrived, and the first message shows a call that does not match. The reader returns
// slots by a counter in a line of its own.
//
// Kernels include this header. The words are plain: host threads access them through core/shared_word.h,
// kernels through engine/cuda/device.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

inline constexpr size_t kLineBytes = 64;
inline constexpr uint32_t kInlineBytes = 56;

/// How a message's payload is carried.
enum class Carriage : uint8_t {
  kInline = 0,
  kSlot = 1,
  kReference = 2,  ///< an address that the reader can load from; 0: it has been stored in the reader's buffer
  kPull = 3,       ///< an address of the writer's process, which the reader asks the system to copy from
};

struct alignas(kLineBytes) Cell {
  uint64_t word;
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(Cell) == kLineBytes);

/// A counter alone in its line.
struct alignas(kLineBytes) Credit {
  uint64_t released;
  uint32_t can_pull;  ///< 1: the reader has shown that it can read the writer's process
};
static_assert(sizeof(Credit) == kLineBytes);

/// What a reference says of a message that the writer has stored in the readers' buffers: see ExposedBuffer.
inline constexpr uint64_t kWrittenDirectly = 0;

/// The part of a buffer that lies in registered memory, from the buffer's beginning on.
struct Reach {
  uint64_t location;  ///< of the beginning, as engine/cuda/program.h numbers locations; 0: not in registered
                      ///< memory
  uint64_t bytes;
};

/// A rank's receive buffer during one call: the rank's peers may store their results in the buffer until the
/// rank has read the last message of that call. Only the owner writes this struct.
struct alignas(kLineBytes) ExposedBuffer {
  uint64_t call;     ///< the sequence number of the collective; written last
  uint64_t address;  ///< for peers that share the owner's memory: of its process, or on its device
  Reach reach;       ///< for peers on other devices
  /// For peers in other processes of the host: 1: in the symmetric heap, which they have mapped.
  uint32_t in_heap;
};
static_assert(sizeof(ExposedBuffer) == kLineBytes);

/// The flag word: number (24 bits) | signature (16) | bytes (22) | carriage (2).
namespace flag {
inline constexpr uint64_t kNumberMask = (1ull << 24) - 1;
inline constexpr uint64_t kCarriageShift = 62;
inline constexpr uint64_t kAgreedMask = (1ull << kCarriageShift) - 1;
inline constexpr uint64_t kMaxBytes = (1ull << 22) - 1;

/// `number` counts messages of the link from 0; a fresh cell (word 0) matches no number.
constexpr uint64_t make(uint64_t number, uint16_t signature, uint64_t bytes) {
  return ((number + 1) & kNumberMask) | (static_cast<uint64_t>(signature) << 24) | (bytes << 40);
}
constexpr Carriage carriage(uint64_t word) {
  return static_cast<Carriage>(word >> kCarriageShift);
}
constexpr uint16_t signature(uint64_t word) {
  return static_cast<uint16_t>(word >> 24);
}
constexpr uint64_t bytes(uint64_t word) {
  return (word >> 40) & kMaxBytes;
}
}  // namespace flag

/// How often a reader tells the writer of freed slots while the ring goes round once.
inline constexpr uint32_t kCreditsPerRing = 4;

/// The shape of a ring; equal on all ranks of a communicator.
struct RingShape {
  uint32_t slots = 32;  ///< power of two
  uint32_t slot_bytes = 16384;
  uint32_t readers = 1;

  size_t cells_bytes() const { return slots * sizeof(Cell); }
  size_t header_bytes() const { return (cells_bytes() + readers * sizeof(Credit) + 4095) / 4096 * 4096; }
  size_t ring_bytes() const { return header_bytes() + static_cast<size_t>(slots) * slot_bytes; }
};

}  // namespace tutti
