#include "comm/network_connections.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "core/clock.h"
#include "engine/links.h"
#include "transports/tcp/tcp_connection.h"

namespace tutti {
Result<std::unique_ptr<NetworkConnections>> NetworkConnections::open(std::vector<Peer> peers,
                                                                     const NetworkOptions& options) {
  std::unique_ptr<NetworkConnections> links(new NetworkConnections);
  links->place_of_.resize(options.rank_count);
  std::unique_ptr<SecureStreams> secure;
  if (options.tls) {
    auto made = SecureStreams::create(*options.tls);
    TUTTI_TRY(made.status());
    secure = std::move(*made);
  }
  for (Peer& peer : peers) {
    links->place_of_[peer.rank] = links->remotes_.size();
    auto remote = links->make(std::move(peer), options, secure.get());
    TUTTI_TRY(remote.status());
    links->remotes_.push_back(std::move(*remote));
  }
  if (secure != nullptr) TUTTI_TRY(secure->shake_hands());
  return links;
}

Result<std::unique_ptr<NetworkConnections::Remote>> NetworkConnections::make(Peer peer,
                                                                             const NetworkOptions& options,
                                                                             SecureStreams* secure) {
  auto remote = std::make_unique<Remote>();
  remote->rank = peer.rank;
  const size_t ring_bytes = options.shape.ring_bytes();
  auto memory = map_plain(2 * kLinkChannels * ring_bytes);
  TUTTI_TRY(memory.status());
  remote->memory = std::move(*memory);
  remote->offers.resize(kLinkChannels);
  std::vector<ChannelRings> channels;
  for (uint32_t i = 0; i < kLinkChannels; ++i) {
    std::byte* outgoing = remote->memory.base() + 2 * i * ring_bytes;
    std::byte* incoming = outgoing + ring_bytes;
    SendLink& send = remote->send.emplace_back(SendLink::at(outgoing, options.shape));
    RecvLink& recv = remote->recv.emplace_back(RecvLink::at(incoming, options.shape, 0));
    send.peer = recv.peer = peer.rank;
    send.same_process = true;  // the connection reads what the link refers to
    recv.offer = &remote->offers[i];
    channels.push_back({.outgoing = outgoing, .incoming = incoming, .offer = recv.offer});
  }
  std::vector<std::unique_ptr<tcp::Stream>> streams;
  for (FileDescriptor& socket : peer.sockets) {
    remote->watched.emplace_back(fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
    if (!remote->watched.back().is_open()) return system_error("fcntl(F_DUPFD_CLOEXEC)", errno);
    auto stream = tcp::make_socket_stream(std::move(socket), {.keepalive_ms = options.silence_ms});
    if (stream && secure != nullptr) {
      stream = secure->wrap(peer.rank, static_cast<uint32_t>(streams.size()), std::move(*stream));
    }
    TUTTI_TRY(stream.status());
    streams.push_back(std::move(*stream));
  }
  tcp::TcpOptions connection{
      .peer = peer.rank, .shape = options.shape, .epoch = options.epoch, .arrivals = &arrivals_};
  // Within one kernel a write without copy is done when the peer has read all that shares a packet with it,
  // which may be in a later call only; and the kernel copies all the same.
  if (peer.is_near) connection.in_place_bytes = UINT64_MAX;
  connection.silence_ms = options.silence_ms > 0 ? options.silence_ms : UINT64_MAX;
  remote->connection = std::make_unique<tcp::TcpConnection>(channels, std::move(streams), connection);
  return remote;
}

bool NetworkConnections::advance() {
  bool moved = false;
  for (const auto& remote : remotes_) moved |= remote->connection->advance();
  return moved;
}

void NetworkConnections::advance_fully(uint32_t peer) {
  Connection& connection = *at(peer).connection;
  // A quiet connection is read again after this.
  polls_.clear();
  connection.prepare_wait(polls_);
  while (connection.advance()) {
  }
}

std::optional<uint32_t> NetworkConnections::undrained_peer() const {
  for (const auto& remote : remotes_) {
    if (remote->connection->state() == PeerState::kOpen && !remote->connection->drained())
      return remote->rank;
  }
  return std::nullopt;
}

void NetworkConnections::sleep(uint64_t ns) {
  polls_.clear();
  for (const auto& remote : remotes_) remote->connection->prepare_wait(polls_);
  const timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  ppoll(polls_.data(), polls_.size(), &time, nullptr);  // an early return only means an early look
}

void NetworkConnections::withdraw() {
  for (const auto& remote : remotes_) {
    std::fill(remote->offers.begin(), remote->offers.end(), PostedReceive());
    remote->connection->withdraw();
  }
}

void NetworkConnections::finish(uint64_t deadline_ns, const std::function<bool()>& is_in_vain) {
  constexpr uint64_t kLookNs = 1'000'000;
  const auto goes_on = [&] { return now_ns() < deadline_ns && !is_in_vain(); };
  while (undrained_peer() && goes_on()) {
    if (!advance()) sleep(kLookNs);
  }
  for (const auto& remote : remotes_) {
    if (remote->connection->state() == PeerState::kOpen && remote->connection->drained())
      remote->connection->finish();
  }
  // What comes now is read: a socket that is closed with something unread costs its peer what is on the way.
  while (!all_received() && goes_on()) {
    if (!advance()) sleep(kLookNs);
  }
}

bool NetworkConnections::all_received() const {
  return std::all_of(remotes_.begin(), remotes_.end(), [this](const auto& remote) {
    return remote->connection->state() != PeerState::kOpen || unsent_bytes(remote->rank) == 0;
  });
}

uint64_t NetworkConnections::unsent_bytes(uint32_t peer) const {
  uint64_t sum = 0;
  for (const FileDescriptor& socket : at(peer).watched) {
    int bytes = 0;
    if (ioctl(socket.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0) sum += static_cast<uint64_t>(bytes);
  }
  return sum;
}

}  // namespace tutti
