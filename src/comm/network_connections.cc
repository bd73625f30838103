#include "comm/network_connections.h"

#include <poll.h>

#include <algorithm>
#include <ctime>
#include <span>
#include <utility>

#include "core/clock.h"
#include "engine/links.h"

namespace tutti {
namespace {

/// Closes the transports that join no peer, so that no turn polls them.
void keep_used(NetworkConnections::Transports& transports, std::vector<NetworkConnections::Peer>& peers) {
  NetworkConnections::Transports used;
  for (size_t i = 0; i < transports.size(); ++i) {
    const auto joins = [&](const NetworkConnections::Peer& peer) { return peer.transport == i; };
    if (std::ranges::none_of(peers, joins)) continue;
    // Peers with smaller numbers have theirs already: used.size() <= i.
    for (NetworkConnections::Peer& peer : peers) {
      if (joins(peer)) peer.transport = used.size();
    }
    used.push_back(std::move(transports[i]));
  }
  transports = std::move(used);
}

}  // namespace

Result<std::unique_ptr<NetworkConnections>> NetworkConnections::open(Transports transports,
                                                                     std::vector<Peer> peers,
                                                                     const RingShape& shape,
                                                                     uint32_t rank_count,
                                                                     const SetUpWatch& watch) {
  std::unique_ptr<NetworkConnections> links(new NetworkConnections);
  keep_used(transports, peers);
  links->transports_ = std::move(transports);
  if (links->transports_.size() == 1) links->only_ = links->transports_[0].get();
  links->index_of_.resize(rank_count);
  for (Peer& peer : peers) TUTTI_TRY(links->connect(std::move(peer), shape));
  for (const auto& transport : links->transports_) TUTTI_TRY(transport->complete(watch));
  return links;
}

Status NetworkConnections::connect(Peer peer, const RingShape& shape) {
  Transport& transport = *transports_[peer.transport];
  auto rings = PeerRings::make(peer.rank, shape, kLinkChannels, transport.traits());
  TUTTI_TRY(rings.status());
  auto memory = transport.register_memory(rings->base(), rings->bytes(), MemoryUse::kRings);
  TUTTI_TRY(memory.status());
  index_of_[peer.rank] = remotes_.size();
  Remote& remote = *remotes_.emplace_back(std::make_unique<Remote>());
  remote = {.rank = peer.rank,
            .transport = peer.transport,
            .transport_name = peer.transport_name,
            .rings = std::move(*rings),
            .memory = *memory};
  const std::vector<ChannelRings> channels = remote.rings.channels();
  auto connection = transport.connect({.rank = peer.rank,
                                       .is_near = peer.is_near,
                                       .rings = channels,
                                       .memory = remote.memory,
                                       .sockets = std::move(peer.sockets),
                                       .address = peer.address});
  TUTTI_TRY(connection.status());
  remote.connection = *connection;
  return Status::ok();
}

NetworkConnections::~NetworkConnections() {
  for (uint32_t number = 1; number <= buffers_.size(); ++number) deregister_buffer(number);
  for (const auto& remote : remotes_) transports_[remote->transport]->deregister_memory(remote->memory);
}

Result<uint32_t> NetworkConnections::register_buffer(std::byte* address, uint64_t bytes) {
  uint32_t number = 1;
  while (number <= buffers_.size() && buffers_[number - 1].address != nullptr) ++number;
  if (number > buffers_.size()) buffers_.emplace_back();
  Buffer& buffer = buffers_[number - 1];
  buffer.handles.resize(transports_.size());
  for (size_t i = 0; i < transports_.size(); ++i) {
    if (!transports_[i]->traits().reads_registered) continue;
    auto handle = transports_[i]->register_memory(address, bytes, MemoryUse::kBuffer);
    if (!handle) {
      buffer.address = address;
      deregister_buffer(number);
      return handle.status();
    }
    buffer = {.address = address, .bytes = bytes, .handles = std::move(buffer.handles)};
    buffer.handles[i] = *handle;
  }
  return buffer.address != nullptr ? number : 0;
}

void NetworkConnections::deregister_buffer(uint32_t number) {
  Buffer& buffer = buffers_[number - 1];
  if (buffer.address == nullptr) return;
  for (size_t i = 0; i < transports_.size(); ++i) {
    if (buffer.handles[i].value != 0) transports_[i]->deregister_memory(buffer.handles[i]);
  }
  buffer = {};
}

bool NetworkConnections::is_registered(const void* address, uint64_t bytes) const {
  const auto* const start = static_cast<const std::byte*>(address);
  return std::ranges::any_of(buffers_, [&](const Buffer& one) {
    return one.address != nullptr && start >= one.address && bytes <= one.bytes &&
           start - one.address <= static_cast<ptrdiff_t>(one.bytes - bytes);
  });
}

Result<MemoryHandle> NetworkConnections::register_device_memory(const DeviceSpan& span) {
  if (transports_.size() == 1) return transports_[0]->register_device_memory(span);
  return Status(Code::kUnsupported,
                "several transports join the ranks, and only RDMA reaches the memory of GPUs");
}

bool NetworkConnections::reads_registered() const {
  return std::ranges::any_of(transports_, [](const auto& one) { return one->traits().reads_registered; });
}

bool NetworkConnections::advance_all() {
  bool moved = false;
  for (const auto& transport : transports_) moved |= transport->progress();
  return moved;
}

std::optional<uint32_t> NetworkConnections::undrained_peer() const {
  for (const auto& remote : remotes_) {
    if (remote->connection->state() == PeerState::kOpen && !remote->connection->drained())
      return remote->rank;
  }
  return std::nullopt;
}

std::optional<uint32_t> NetworkConnections::torn_peer(
    const std::function<bool(uint32_t peer)>& counts) const {
  for (const auto& remote : remotes_) {
    if (remote->connection->state() == PeerState::kTorn && counts(remote->rank)) return remote->rank;
  }
  return std::nullopt;
}

std::string NetworkConnections::explain() const {
  constexpr size_t kMostPeers = 4;
  std::string text;
  for (const auto& remote : std::span(remotes_).first(std::min(remotes_.size(), kMostPeers))) {
    const std::string route = remote->connection->route();
    add_to_list(text, format("rank %u over %s", remote->rank, remote->transport_name) +
                          (route.empty() ? "" : " (" + route + ")"));
  }
  if (remotes_.size() > kMostPeers) add_to_list(text, format("%zu more", remotes_.size() - kMostPeers));
  return text;
}

std::optional<uint32_t> NetworkConnections::unread() const {
  for (const auto& remote : remotes_) {
    for (uint32_t channel = 0; channel < kLinkChannels; ++channel) {
      if (remote->rings.recv(channel).has_arrived()) return remote->rank;
    }
  }
  return std::nullopt;
}

void NetworkConnections::sleep(uint64_t ns) {
  polls_.clear();
  for (const auto& transport : transports_) {
    if (transport->arm_wait(polls_)) return;
  }
  const timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  ppoll(polls_.data(), polls_.size(), &time, nullptr);  // returning early does no harm
}

void NetworkConnections::withdraw() {
  for (const auto& remote : remotes_) {
    remote->rings.clear_posted_receives();
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
  // Read what still comes: closing a socket with unread data loses what is on its way to the peer.
  while (!all_received() && goes_on()) {
    if (!advance()) sleep(kLookNs);
  }
}

bool NetworkConnections::all_received() const {
  return std::all_of(remotes_.begin(), remotes_.end(), [](const auto& remote) {
    return remote->connection->state() != PeerState::kOpen || remote->connection->unconfirmed_bytes() == 0;
  });
}

}  // namespace tutti
