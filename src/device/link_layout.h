// LinkLayout: where things lie in the device memory that a rank shares with its peers. A pure function of the
// number of ranks and the shape of their links.
//
// The memory begins with what must be zero at first: the exposed buffer, the cells and credits of all rings,
// the mailboxes. The slots of the rings follow. Multicast memory holds slots only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/device_rank.h"
#include "engine/cuda/bind.h"
#include "engine/cuda/program.h"
#include "transports/ring.h"

namespace tutti {

class LinkLayout {
 public:
  LinkLayout(uint32_t rank_count, const DeviceShape& shape) : ranks_(rank_count), shape_(shape) {}

  RingShape ring() const { return {.slots = shape_.slots, .slot_bytes = shape_.slot_bytes}; }
  /// A ring in multicast memory, where all readers together have one set of slots.
  RingShape multicast_ring() const {
    return {.slots = shape_.multicast_slots, .slot_bytes = shape_.slot_bytes};
  }
  /// Rings from a rank to each peer: first those of plans, then those of messages.
  uint32_t rings() const { return shape_.stripes + shape_.message_parts; }
  /// The ring of a link, if each stripe of the plan has `channels` rings.
  uint32_t ring_of(cuda::LinkName name, uint32_t channels) const {
    return name.channel == kMessageChannel ? shape_.stripes + name.stripe
                                           : name.stripe * channels + name.channel;
  }
  /// The place in the rank's tables of links. They have places for links to the rank itself too.
  uint32_t link_index(uint32_t peer, uint32_t ring) const { return ring * ranks_ + peer; }
  uint32_t link_count() const { return rings() * ranks_; }

  /// With the spare ones.
  size_t slots_bytes(uint32_t slots) const {
    return size_t{slots + shape_.spare_slots()} * shape_.slot_bytes;
  }
  /// The cells and the credit of a ring in the memory of `owner`, who writes it.
  size_t cells_at(uint32_t owner, uint32_t reader, uint32_t ring) const {
    return kStartBytes + number(owner, reader, ring) * header_bytes(shape_.slots);
  }
  size_t slots_at(uint32_t owner, uint32_t reader, uint32_t ring) const {
    return zeroed_bytes() + number(owner, reader, ring) * slots_bytes(shape_.slots);
  }
  /// The writer's mailbox in each rank's memory.
  size_t mailbox_at(uint32_t writer) const { return cells_end() + size_t{writer} * kMailboxStride; }
  size_t zeroed_bytes() const { return aligned(multicast_cells_at(0) + multicast_cells_bytes()); }
  size_t bytes() const { return zeroed_bytes() + ring_count() * slots_bytes(shape_.slots); }

  uint32_t multicast_link_count() const { return 2 * shape_.multicast_stripes * ranks_; }
  /// The links of multicast rings follow the others.
  uint32_t multicast_link(uint32_t peer, uint32_t stripe, cuda::Multicast use) const {
    return (2 * stripe + static_cast<uint32_t>(use)) * ranks_ + peer;
  }
  size_t multicast_cells_at(uint32_t multicast_link) const {
    return mailbox_at(shape_.short_bytes > 0 ? ranks_ : 0) +
           multicast_link * header_bytes(shape_.multicast_slots);
  }
  /// The slots, in multicast memory, from which `owner` collects or in which it publishes.
  size_t multicast_slots_at(uint32_t owner, uint32_t stripe, cuda::Multicast use) const {
    const size_t ring = (size_t{owner} * shape_.multicast_stripes + stripe) * 2 + static_cast<uint32_t>(use);
    return ring * slots_bytes(shape_.multicast_slots);
  }
  size_t multicast_bytes() const { return multicast_link_count() * slots_bytes(shape_.multicast_slots); }

 private:
  static constexpr size_t kStartBytes = 4096;  ///< with the ExposedBuffer
  /// A multiple of a cell, because cells lie behind the mailboxes.
  static constexpr size_t kMailboxStride =
      (cuda::kMailboxBytes + sizeof(Cell) - 1) / sizeof(Cell) * sizeof(Cell);
  /// The credit takes the place of a cell, so that the next ring's cells are aligned.
  static size_t header_bytes(uint32_t slots) { return (slots + size_t{1}) * sizeof(Cell); }
  static size_t aligned(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }
  size_t ring_count() const { return size_t{rings()} * (ranks_ - 1); }
  size_t number(uint32_t owner, uint32_t reader, uint32_t ring) const {
    return size_t{ring} * (ranks_ - 1) + (reader < owner ? reader : reader - 1);
  }
  size_t cells_end() const { return kStartBytes + ring_count() * header_bytes(shape_.slots); }
  size_t multicast_cells_bytes() const {
    return multicast_link_count() * header_bytes(shape_.multicast_slots);
  }

  uint32_t ranks_;
  DeviceShape shape_;
};

}  // namespace tutti
