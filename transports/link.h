// Link: one ordered path of slots from a writing rank to one or more reading ranks.
//
// A link is a ring in memory that both sides can reach. Each message has a cell, one cache line: a flag word
// and 56 bytes, in which small payloads travel, so that a small message costs one line transfer. Larger
// payloads lie in the slot of the same number, or stay where they are and travel as a reference. The
// flag word holds the message's number, a signature of the call and the payload's bytes; the reader knows
// all three beforehand, so one compare tells "arrived", and a call that does not match is found on the first
// message. The reader returns slots by a counter in a line of its own, which the writer reads only
// when it has run out of slots.
//
// Transports differ in where the ring lies and who moves it: shared memory is the ring itself; a network
// transport connections a local ring to and from its sockets.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

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
  std::atomic<uint64_t> word;
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(Cell) == kLineBytes);

/// A counter alone in its line.
struct alignas(kLineBytes) Credit {
  std::atomic<uint64_t> released;
  std::atomic<uint32_t> can_pull;  ///< 1: the reader has shown that it can read the writer's process
};

/// What a reference says of a message that the writer has stored in the readers' buffers: see ExposedBuffer.
inline constexpr uint64_t kWrittenDirectly = 0;

/// Where a rank's receive buffer lies while it is in one call: an offer to its peers to store their results
/// there, good until the rank has read the last message of that call. Written by its owner alone.
struct alignas(kLineBytes) ExposedBuffer {
  std::atomic<uint64_t> call;     ///< the sequence number of the collective; written last
  std::atomic<uint64_t> address;  ///< in the owner's process
  std::atomic<uint32_t> in_heap;  ///< 1: in the symmetric heap, which peers in other processes have mapped
};

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

/// The writing end. Used by one thread at a time.
struct SendLink {
  Cell* cells = nullptr;
  Credit* credits = nullptr;  ///< one per reader
  std::byte* slots = nullptr;
  uint32_t slot_mask = 0;
  uint32_t slot_bytes = 0;
  uint32_t reader_count = 0;
  uint32_t self_reader = UINT32_MAX;  ///< a published ring has an unused credit at the writer's own index
  uint32_t peer = 0;                  ///< rank; for a published ring the writer itself
  bool same_process = false;
  bool readers_pull = false;    ///< all readers have shown that they can pull
  uint64_t next = 0;            ///< number of the next message
  uint64_t limit = 0;           ///< messages below this number have a slot
  uint64_t last_reference = 0;  ///< messages below this number carry references that must come back

  static SendLink at(std::byte* ring, const RingShape& shape) {
    SendLink link;
    link.cells = reinterpret_cast<Cell*>(ring);
    link.credits = reinterpret_cast<Credit*>(ring + shape.cells_bytes());
    link.slots = ring + shape.header_bytes();
    link.slot_mask = shape.slots - 1;
    link.slot_bytes = shape.slot_bytes;
    link.reader_count = shape.readers;
    link.limit = shape.slots;
    return link;
  }

  Cell& cell() const { return cells[next & slot_mask]; }
  std::byte* slot() const { return slots + (next & slot_mask) * static_cast<size_t>(slot_bytes); }

  /// The least number of messages that every reader has given back.
  uint64_t released() const {
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < reader_count; ++i) {
      if (i == self_reader) continue;
      const uint64_t value = credits[i].released.load(std::memory_order_acquire);
      least = value < least ? value : least;
    }
    return least;
  }
  /// The reader that has given back least: whom a writer without slots waits for.
  uint32_t slowest_reader() const {
    if (reader_count == 1) return peer;
    uint32_t slowest = self_reader == 0 ? 1 : 0;
    for (uint32_t i = slowest + 1; i < reader_count; ++i) {
      if (i != self_reader && credits[i].released.load(std::memory_order_acquire) <
                                  credits[slowest].released.load(std::memory_order_acquire)) {
        slowest = i;
      }
    }
    return slowest;
  }
  /// Whether message `next` has a slot.
  bool can_write() {
    if (next < limit) [[likely]]
      return true;
    limit = released() + slot_mask + 1;
    return next < limit;
  }
  /// Where the payload of `bytes` goes; only when can_write().
  std::byte* span(uint64_t bytes) const { return bytes <= kInlineBytes ? cell().payload : slot(); }

  void commit(uint16_t signature, uint64_t bytes) {
    const Carriage carriage = bytes <= kInlineBytes ? Carriage::kInline : Carriage::kSlot;
    publish(flag::make(next, signature, bytes), carriage);
  }
  /// carriage: kReference or kPull.
  void commit_reference(uint16_t signature, uint64_t bytes, const void* address, Carriage carriage) {
    std::memcpy(cell().payload, &address, sizeof(address));
    publish(flag::make(next, signature, bytes), carriage);
    last_reference = next;
  }
  /// The bytes are already where every reader wants them.
  void commit_direct_write(uint16_t signature, uint64_t bytes) {
    const uint64_t nowhere = kWrittenDirectly;
    std::memcpy(cell().payload, &nowhere, sizeof(nowhere));
    publish(flag::make(next, signature, bytes), Carriage::kReference);
  }
  bool can_pull() {
    if (readers_pull) return true;
    for (uint32_t i = 0; i < reader_count; ++i) {
      if (i != self_reader && credits[i].can_pull.load(std::memory_order_relaxed) == 0) return false;
    }
    readers_pull = true;
    return true;
  }
  bool references_returned() { return last_reference == 0 || released() >= last_reference; }

 private:
  void publish(uint64_t word, Carriage carriage) {
    cell().word.store(word | (static_cast<uint64_t>(carriage) << flag::kCarriageShift),
                      std::memory_order_release);
    ++next;
  }
};

/// Where a reader wants the payloads of its next messages, one after the other: a transport that can
/// deliver straight into memory does, and publishes them as references to that very place. The memory may be
/// written until the last of these messages has been read, or the offer was withdrawn (Connection::withdraw).
struct PostedReceive {
  uint64_t first = 0;  ///< number of the message whose payload begins at `address`
  std::byte* address = nullptr;
  uint64_t bytes = 0;        ///< of all messages of the offer; 0: nothing is offered
  uint64_t slice_bytes = 1;  ///< of every message but the last one

  /// Where the payload of a message lies; null where the offer does not hold a message of that size there.
  std::byte* place(uint64_t number, uint64_t message_bytes) const {
    const uint64_t index = number - first;  // wraps to a huge one before the first
    if (index >= (bytes + slice_bytes - 1) / slice_bytes) return nullptr;
    const uint64_t start = index * slice_bytes;
    const uint64_t expected = bytes - start < slice_bytes ? bytes - start : slice_bytes;
    return message_bytes == expected ? address + start : nullptr;
  }
};

/// The reading end. Used by one thread at a time.
struct RecvLink {
  const Cell* cells = nullptr;
  Credit* credit = nullptr;
  const std::byte* slots = nullptr;
  uint32_t slot_mask = 0;
  uint32_t slot_bytes = 0;
  uint32_t peer = 0;  ///< rank
  /// Added to an address that the writer refers to, to reach the same memory here (modulo 2^64).
  uint64_t reference_offset = 0;
  uint32_t credit_mask = 0;     ///< credits are given back every credit_mask + 1 messages
  int pull_pid = 0;             ///< the writer's process, when it can be pulled from
  std::byte* bounce = nullptr;  ///< bounce_bytes, for what is pulled and then reduced
  uint64_t bounce_bytes = 0;
  const std::byte* pulled = nullptr;  ///< where message `next` lies, when it has been pulled ahead
  uint64_t pulled_end = 0;            ///< messages below this number have been pulled
  PostedReceive* offer = nullptr;     ///< null: the transport takes no offers
  uint64_t next = 0;                  ///< number of the next message

  static RecvLink at(std::byte* ring, const RingShape& shape, uint32_t reader) {
    RecvLink link;
    link.cells = reinterpret_cast<const Cell*>(ring);
    link.credit = reinterpret_cast<Credit*>(ring + shape.cells_bytes()) + reader;
    link.slots = ring + shape.header_bytes();
    link.slot_mask = shape.slots - 1;
    link.slot_bytes = shape.slot_bytes;
    link.credit_mask = shape.slots < kCreditsPerRing ? 0 : shape.slots / kCreditsPerRing - 1;
    return link;
  }

  const Cell& cell(uint64_t ahead = 0) const { return cells[(next + ahead) & slot_mask]; }
  uint64_t word(uint64_t ahead = 0) const { return cell(ahead).word.load(std::memory_order_acquire); }

  /// The address in the message whose word was seen: carriage kReference or kPull.
  uint64_t address(uint64_t ahead = 0) const {
    uint64_t value = 0;
    std::memcpy(&value, cell(ahead).payload, sizeof(value));
    return value;
  }
  /// The payload of the message whose word was seen; not of one that must be pulled.
  const std::byte* span(uint64_t word) const {
    switch (flag::carriage(word)) {
      case Carriage::kInline: return cell().payload;
      case Carriage::kSlot: return slots + (next & slot_mask) * static_cast<size_t>(slot_bytes);
      case Carriage::kReference:
      case Carriage::kPull: break;
    }
    // The writer's address, moved into this process's mapping of the same memory.
    return reinterpret_cast<const std::byte*>(address() + reference_offset);
  }
  /// Gives back the slot of the message whose word was seen. The writer hears of slots a quarter of the ring
  /// late, so that a stream of messages moves the credit's line seldom; a plan needs half the ring at most.
  /// Of references it hears when the last one that was pulled together has been used.
  void release(uint64_t word) {
    ++next;
    const bool refers = flag::carriage(word) >= Carriage::kReference;
    if (refers ? next >= pulled_end : (next & credit_mask) == 0)
      credit->released.store(next, std::memory_order_release);
  }
};

}  // namespace tutti
