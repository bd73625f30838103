// A build without the headers of libibverbs.
#include <utility>

#include "transports/rdma/rdma_transport.h"

namespace tutti::rdma {
namespace {

class NoRdma final : public Transport {
 public:
  const TransportTraits& traits() const override { return kRdmaTraits; }
  std::optional<LinkCost> reach(const RankDescription& /*a*/, const RankDescription& /*b*/) const override {
    return std::nullopt;
  }
  Result<Connection*> connect(PeerHandover /*peer*/) override {
    return Status(Code::kUnsupported, "this build has no RDMA");
  }
  bool progress() override { return false; }
  bool arm_wait(std::vector<pollfd>& /*polls*/) override { return false; }
};

constexpr const char* kWhy = "this build has no RDMA: install libibverbs-dev and build again";

}  // namespace

Result<std::unique_ptr<Transport>> open_rdma_transport(const TransportOptions& options) {
  if (options.config.transport == "rdma")
    return Status(Code::kUnsupported, std::string("TUTTI_TRANSPORT is rdma, and ") + kWhy);
  return std::unique_ptr<Transport>(std::make_unique<NoRdma>());
}

Result<std::vector<PortAddress>> list_ports(const Config& /*config*/) {
  return Status(Code::kUnsupported, kWhy);
}

}  // namespace tutti::rdma
