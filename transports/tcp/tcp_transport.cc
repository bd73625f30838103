#include "transports/tcp/tcp_transport.h"

#include <algorithm>
#include <utility>

namespace tutti::tcp {

Result<std::unique_ptr<Transport>> open_tcp_transport(const TransportOptions& options) {
  std::unique_ptr<SecureStreams> secure;
  if (options.config.tls) {
    auto made = SecureStreams::create(options.rank, options.derive_key);
    TUTTI_TRY(made.status());
    secure = std::move(*made);
  }
  return std::unique_ptr<Transport>(std::make_unique<TcpTransport>(options, std::move(secure)));
}

std::vector<AgreedSetting> tcp_settings(const Config& config) {
  return {{"TUTTI_CONNECTIONS", config.connections}, {"TUTTI_TLS", config.tls ? 1u : 0u}};
}

namespace {

/// As long as a peer may be silent, and long enough for some tries.
uint64_t renewal_patience_ms(uint64_t heartbeat_ms) {
  constexpr uint64_t kLeastMs = 2000;
  constexpr uint64_t kWithoutHeartbeatMs = 10'000;
  return heartbeat_ms == 0 ? kWithoutHeartbeatMs : std::max(kLeastMs, heartbeat_ms);
}

}  // namespace

TcpTransport::TcpTransport(const TransportOptions& options, std::unique_ptr<SecureStreams> secure)
    : options_(options), secure_(std::move(secure)) {}

std::optional<LinkCost> TcpTransport::reach(const RankDescription& a, const RankDescription& b) const {
  // 10 Gbit/s Ethernet with a round trip of 40 us, and loopback. Not measured: no transport competes yet.
  constexpr LinkCost kNetwork{.latency_us = 20, .bytes_per_us = 1250};
  constexpr LinkCost kLoopback{.latency_us = 5, .bytes_per_us = 4000};
  return a.machine == b.machine ? kLoopback : kNetwork;
}

Result<Connection*> TcpTransport::connect(PeerHandover peer) {
  std::vector<std::unique_ptr<Stream>> streams;
  for (FileDescriptor& socket : peer.sockets) {
    auto stream = open_stream(peer.rank, static_cast<uint32_t>(streams.size()), std::move(socket));
    TUTTI_TRY(stream.status());
    streams.push_back(std::move(*stream));
    if (secure_ != nullptr) secure_->await(peer.rank, *streams.back());
  }
  TcpOptions connection{.rank = options_.rank,
                        .peer = peer.rank,
                        .shape = options_.shape,
                        .epoch = options_.epoch,
                        .arrivals = &arrivals_};
  connection.renewal = {.sockets = options_.renewal,
                        .open =
                            [this, rank = peer.rank](uint32_t index, FileDescriptor socket) {
                              return open_stream(rank, index, std::move(socket));
                            },
                        .patience_ms = renewal_patience_ms(options_.config.heartbeat_ms)};
  // On one machine, such a write completes only when the peer has read everything in its packet, perhaps in a
  // later call. The kernel copies anyway.
  if (peer.is_near) connection.in_place_bytes = UINT64_MAX;
  const uint64_t silence_ms = options_.config.heartbeat_ms;
  connection.silence_ms = silence_ms > 0 ? silence_ms : UINT64_MAX;
  connections_.push_back(std::make_unique<TcpConnection>(peer.rings, std::move(streams), connection));
  return static_cast<Connection*>(connections_.back().get());
}

Result<std::unique_ptr<Stream>> TcpTransport::open_stream(uint32_t peer, uint32_t index,
                                                          FileDescriptor socket) {
  auto stream = make_socket_stream(std::move(socket), {.keepalive_ms = options_.config.heartbeat_ms});
  if (!stream || secure_ == nullptr) return stream;
  return secure_->wrap(peer, index, std::move(*stream));
}

Status TcpTransport::complete(const SetUpWatch& watch) {
  return secure_ != nullptr ? secure_->shake_hands(watch) : Status::ok();
}

bool TcpTransport::progress() {
  bool moved = false;
  for (const auto& connection : connections_) moved |= connection->advance();
  return moved;
}

bool TcpTransport::arm_wait(std::vector<pollfd>& polls) {
  // A socket stays readable until its bytes are read: nothing is missed before the poll.
  for (const auto& connection : connections_) connection->prepare_wait(polls);
  return false;
}

}  // namespace tutti::tcp
