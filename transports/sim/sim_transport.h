// The simulator as a transport, for ranks of one process. For tests and tools: the library's registry does
// not list it.
//
// Transports with the same epoch share one network, and the epoch is the seed. Time passes only in
// progress(), so a rank never sleeps. A connection copies between its owner's rings and the SimNetwork's.
// Tests of plans use the SimNetwork directly, for its published rings, its exact end and its faults.
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
  struct World;

  SimTransport(const TransportOptions& options, std::shared_ptr<World> world);
  /// Peers without a finish() see a torn connection.
  ~SimTransport() override;

  const TransportTraits& traits() const override { return kSimTraits; }
  std::optional<LinkCost> reach(const RankDescription& a, const RankDescription& b) const override;
  Result<Connection*> connect(PeerHandover peer) override;
  bool progress() override;
  /// Always true: time passes in progress().
  bool arm_wait(std::vector<pollfd>& polls) override;

 private:
  class Joined;

  TransportOptions options_;
  std::shared_ptr<World> world_;
  std::vector<std::unique_ptr<Joined>> connections_;
};

}  // namespace tutti
