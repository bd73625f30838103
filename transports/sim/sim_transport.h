// The simulator as a transport: joins ranks of one process over a SimNetwork, whose delays come from a seed.
//
// All transports of a process with the same epoch share one network, and the epoch is the seed. Virtual time
// passes only in progress(), so a rank never sleeps. The face adds rings to the network's own: a connection
// copies between the owner's rings and the SimNetwork. Tests of plans use the SimNetwork directly, because
// they also need its published rings, its exact end ("nothing can ever happen again") and its faults.
//
// Tests and tools use this transport. The library's registry does not list it.
#pragma once

#include <memory>
#include <vector>

#include "transports/registry.h"
#include "transports/transport.h"

namespace tutti {

inline constexpr TransportTraits kSimTraits{};

Result<std::unique_ptr<Transport>> open_sim_transport(const TransportOptions& options);

inline constexpr TransportEntry kSimTransport{"sim", &kSimTraits, open_sim_transport, nullptr};

class SimTransport final : public Transport {
 public:
  struct World;  ///< what all ranks of one epoch share

  SimTransport(const TransportOptions& options, std::shared_ptr<World> world);
  /// Peers to which this rank has not said finish() see a torn connection.
  ~SimTransport() override;

  const TransportTraits& traits() const override { return kSimTraits; }
  std::optional<LinkCost> reach(const RankDescription& a, const RankDescription& b) const override;
  Result<Connection*> connect(PeerHandover peer) override;
  bool progress() override;
  /// Always true: time passes in progress().
  bool arm_wait(std::vector<pollfd>& polls) override;

 private:
  class Joined;  ///< the connection

  TransportOptions options_;
  std::shared_ptr<World> world_;
  std::vector<std::unique_ptr<Joined>> connections_;
};

}  // namespace tutti
