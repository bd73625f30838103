#include "transports/peer_rings.h"

#include <algorithm>
#include <utility>

namespace tutti {

Result<PeerRings> PeerRings::make(uint32_t peer, const RingShape& shape, uint32_t channels,
                                  const TransportTraits& traits) {
  PeerRings rings;
  rings.ring_bytes_ = shape.ring_bytes();
  auto memory = map_plain(2 * channels * rings.ring_bytes_);
  TUTTI_TRY(memory.status());
  rings.memory_ = std::move(*memory);
  rings.posted_.resize(channels);
  for (uint32_t i = 0; i < channels; ++i) {
    std::byte* outgoing = rings.memory_.base() + 2 * i * rings.ring_bytes_;
    SendLink& send = rings.send_.emplace_back(SendLink::at(outgoing, shape));
    RecvLink& recv = rings.recv_.emplace_back(RecvLink::at(outgoing + rings.ring_bytes_, shape, 0));
    send.peer = recv.peer = peer;
    send.same_process = traits.reads_references;
    send.reads_registered = traits.reads_registered;
    if (traits.fills_posted_receives) recv.offer = &rings.posted_[i];
  }
  return rings;
}

void PeerRings::clear_posted_receives() {
  std::fill(posted_.begin(), posted_.end(), PostedReceive());
}

std::vector<ChannelRings> PeerRings::channels() const {
  std::vector<ChannelRings> channels;
  for (size_t i = 0; i < posted_.size(); ++i) {
    std::byte* outgoing = memory_.base() + 2 * i * ring_bytes_;
    channels.push_back({.outgoing = outgoing, .incoming = outgoing + ring_bytes_, .offer = &posted_[i]});
  }
  return channels;
}

}  // namespace tutti
