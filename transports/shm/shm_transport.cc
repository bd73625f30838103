#include "transports/shm/shm_transport.h"

#include <utility>

namespace tutti {
namespace {

/// A committed message is in the peer's memory at once. Nothing is on its way, and nothing can be lost.
class ShmConnection final : public Connection {
 public:
  bool advance() override { return false; }
  void advance_fully() override {}
  bool drained() const override { return true; }
  uint64_t unconfirmed_bytes() const override { return 0; }
  PeerState state() const override { return PeerState::kOpen; }
  const Status& status() const override { return status_; }
  void withdraw() override {}
  void finish() override {}

 private:
  Status status_;
};

}  // namespace

Result<std::unique_ptr<Transport>> open_shm_transport(const TransportOptions& /*options*/) {
  return std::unique_ptr<Transport>(std::make_unique<ShmTransport>());
}

std::optional<LinkCost> ShmTransport::reach(const RankDescription& a, const RankDescription& b) const {
  if (a.host != b.host) return std::nullopt;
  // As in src/plan/price.h: measured on 2 cores of an EPYC (Zen 5).
  return LinkCost{.latency_us = 0.06, .bytes_per_us = 20000};
}

Result<Connection*> ShmTransport::connect(PeerHandover /*peer*/) {
  connections_.push_back(std::make_unique<ShmConnection>());
  return connections_.back().get();
}

}  // namespace tutti
