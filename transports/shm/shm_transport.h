// Shared memory as a transport, for ranks of one host. Both ranks have mapped the rings, so a connection
// moves nothing. src/comm owns the segments. It binds the links of most peers without a connection, because a
// ring there may have several readers.
#pragma once

#include <memory>
#include <vector>

#include "transports/transport.h"

namespace tutti {

inline constexpr TransportTraits kShmTraits{
    .needs_shared_rings = true, .reads_references = false, .watches_peer = false, .wakes_waits = false};

Result<std::unique_ptr<Transport>> open_shm_transport(const TransportOptions& options);

/// The peer's incoming ring is this rank's outgoing ring.
class ShmTransport final : public Transport {
 public:
  const TransportTraits& traits() const override { return kShmTraits; }
  std::optional<LinkCost> reach(const RankDescription& a, const RankDescription& b) const override;
  Result<Connection*> connect(PeerHandover peer) override;
  bool progress() override { return false; }
  bool arm_wait(std::vector<pollfd>& /*polls*/) override { return false; }

 private:
  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace tutti
