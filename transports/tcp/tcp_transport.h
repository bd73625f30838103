// TcpTransport: one rank's TCP connections to all its peers, with TLS if Config::tls is set.
#pragma once

#include <memory>
#include <vector>

#include "transports/registry.h"
#include "transports/tcp/secure_streams.h"
#include "transports/tcp/tcp_connection.h"
#include "transports/transport.h"

namespace tutti::tcp {

inline constexpr TransportTraits kTcpTraits{
    .fills_posted_receives = true,
    // 32 KiB were 9 to 15 % faster than 16 KiB at 2 MiB, and as fast at 256 KiB. 64 KiB halve credits, writes
    // and messages: 2 to 4 % more from 2 MiB on (docs/performance.md).
    .slot_bytes = 65536,
    // A copy into a cold slot costs more than waiting for the network: a round trip of 4 KiB takes 6.7 us
    // with the copy and 5.7 us without. Broadcasts of 256 and 512 bytes gain 2 to 3 %.
    .reference_bytes = 256,
    .prefers_whole_slots = true,
};

Result<std::unique_ptr<Transport>> open_tcp_transport(const TransportOptions& options);
std::vector<AgreedSetting> tcp_settings(const Config& config);

class TcpTransport final : public Transport {
 public:
  /// `secure`: null if data is not encrypted.
  TcpTransport(const TransportOptions& options, std::unique_ptr<SecureStreams> secure);

  const TransportTraits& traits() const override { return kTcpTraits; }
  uint32_t socket_count() const override { return options_.config.connections; }
  std::optional<LinkCost> reach(const RankDescription& a, const RankDescription& b) const override;
  Result<Connection*> connect(PeerHandover peer) override;
  Status complete(const SetUpWatch& watch) override;
  bool progress() override;
  bool arm_wait(std::vector<pollfd>& polls) override;

 private:
  Result<std::unique_ptr<Stream>> open_stream(uint32_t peer, uint32_t index, FileDescriptor socket);

  TransportOptions options_;
  std::unique_ptr<SecureStreams> secure_;  ///< null if data is not encrypted
  uint32_t arrivals_ = 0;                  ///< data frames from all peers
  std::vector<std::unique_ptr<TcpConnection>> connections_;
};

}  // namespace tutti::tcp
