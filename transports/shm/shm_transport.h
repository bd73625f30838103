// Shared memory as a transport: ranks of one host, whose rings lie in memory that both have mapped.
//
// The rings themselves are the way: the engine of one rank writes and the engine of the other reads the same
// memory. A connection has nothing to move. The owner of the segments (src/comm) keeps their life, and binds
// the links of most peers without a connection object, since a ring there may have many readers.
#pragma once

#include <memory>
#include <vector>

#include "transports/transport.h"

namespace tutti {

inline constexpr TransportTraits kShmTraits{
    .needs_shared_rings = true, .reads_references = false, .watches_peer = false, .wakes_waits = false};

Result<std::unique_ptr<Transport>> open_shm_transport(const TransportOptions& options);

/// The rings of a PeerHandover lie in mapped memory: the peer's incoming ring is this rank's outgoing ring.
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
