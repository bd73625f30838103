// LinkTable: the ends of one rank's links, by peer and channel. Used by binding, never on the short path.
#pragma once

#include <cstdint>

#include "plan/plan.h"
#include "transports/link.h"

namespace tutti {

/// Sends and receives have a channel behind those of plans.
inline constexpr uint32_t kMessageChannel = kPlanChannels;
inline constexpr uint32_t kLinkChannels = kPlanChannels + 1;

/// A peer's ExposedBuffer, and how this rank reaches the peer's memory.
struct PeerExposedBuffer {
  const ExposedBuffer* buffer = nullptr;
  uint64_t reference_offset = 0;  ///< add to an address in the peer's symmetric heap
  bool same_process = false;

  /// The peer's receive buffer in call number `call`; null while this rank cannot write there.
  std::byte* open(uint64_t call) const {
    if (buffer == nullptr || load_shared(buffer->call, std::memory_order_acquire) != call) return nullptr;
    const uint64_t address = load_shared(buffer->address, std::memory_order_relaxed);
    if (same_process) return reinterpret_cast<std::byte*>(address);
    if (load_shared(buffer->in_heap, std::memory_order_relaxed) == 0) return nullptr;
    return reinterpret_cast<std::byte*>(address + reference_offset);
  }
};

/// Each further stripe has its own plan channels, behind those of the first.
inline constexpr uint32_t channels_of_stripes(uint32_t stripes) {
  return kLinkChannels + (stripes - 1) * kPlanChannels;
}
inline constexpr uint32_t channel_of_stripe(uint32_t stripe, uint32_t channel) {
  return stripe == 0 ? channel : channels_of_stripes(stripe) + channel;
}

class LinkTable {
 public:
  virtual ~LinkTable() = default;
  /// The links live as long as the table. `channel` < kLinkChannels.
  virtual SendLink* send_link(uint32_t peer, uint32_t channel) = 0;
  virtual RecvLink* recv_link(uint32_t peer, uint32_t channel) = 0;
  virtual SendLink* publish_link() = 0;
  virtual RecvLink* published_by(uint32_t peer) = 0;
  /// Never open unless memory is shared.
  virtual PeerExposedBuffer exposed_buffer(uint32_t /*peer*/) { return {}; }
};

}  // namespace tutti
