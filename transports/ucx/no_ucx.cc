// A build without the headers of UCX.
#include <utility>

#include "transports/ucx/ucx_transport.h"

namespace tutti::ucx {
namespace {

class NoUcx final : public Transport {
 public:
  const TransportTraits& traits() const override { return kUcxTraits; }
  std::optional<LinkCost> reach(const RankDescription& /*a*/, const RankDescription& /*b*/) const override {
    return std::nullopt;
  }
  Result<Connection*> connect(PeerHandover /*peer*/) override {
    return Status(Code::kUnsupported, "this build has no UCX");
  }
  bool progress() override { return false; }
  bool arm_wait(std::vector<pollfd>& /*polls*/) override { return false; }
};

}  // namespace

Result<std::unique_ptr<Transport>> open_ucx_transport(const TransportOptions& options) {
  if (options.config.transport == "ucx")
    return Status(Code::kUnsupported,
                  "TUTTI_TRANSPORT is ucx, and this build has no UCX: install libucx-dev and build again");
  return std::unique_ptr<Transport>(std::make_unique<NoUcx>());
}

}  // namespace tutti::ucx
