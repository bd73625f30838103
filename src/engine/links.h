// LinkTable: the ends of one rank's links, by peer and channel. Looked up when a call is bound, never on the
// short path.
#pragma once

#include <cstdint>

#include "plan/plan.h"
#include "transports/link.h"

namespace tutti {

/// Besides the channels of plans, the one that sends and receives have for themselves.
inline constexpr uint32_t kMessageChannel = kPlanChannels;
inline constexpr uint32_t kLinkChannels = kPlanChannels + 1;

/// Each further stripe of an operation has plan channels of its own, behind those of the first.
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
};

}  // namespace tutti
