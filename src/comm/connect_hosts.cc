// Creating a communicator: the connections to ranks of other hosts.
#include <iterator>

#include "comm/builder.h"

namespace tutti {
namespace {

// Data connections between two ranks have channels from 0 on; this is the one of their control connection.
constexpr uint32_t kControlChannel = kMaxConnections;

}  // namespace

/// Connects to every rank of other hosts: some connections for data, one for control.
Status CommunicatorBuilder::connect_hosts(Bootstrap& bootstrap, const std::vector<RankFacts>& facts) {
  if (host_count_ == 1) return Status::ok();
  const uint32_t connections = process_.config().connections;
  std::vector<DataRequest> requests;
  for (uint32_t peer = 0; peer < rank_count_; ++peer) {
    if (host_of_[peer] == host_of_[rank_]) continue;
    for (uint32_t i = 0; i < connections; ++i) requests.push_back({peer, i, facts[peer].data});
    requests.push_back({peer, kControlChannel, facts[peer].data});
  }
  auto sockets = bootstrap.connect(requests);
  TUTTI_TRY(sockets.status());
  std::vector<NetworkConnections::Peer> peers;
  for (size_t i = 0; i < requests.size(); i += connections + 1) {
    NetworkConnections::Peer& peer = peers.emplace_back();
    peer.rank = requests[i].peer;
    peer.is_near = facts[peer.rank].machine == facts[rank_].machine;
    const auto start = sockets->begin() + static_cast<std::ptrdiff_t>(i);
    const auto control = start + static_cast<std::ptrdiff_t>(connections);
    std::move(start, control, std::back_inserter(peer.sockets));
    control_peers_.push_back({requests[i].peer, std::move(*control)});
  }
  NetworkOptions options{.rank_count = rank_count_,
                         .shape = shape_.peer_ring(),
                         .epoch = epoch_of(bootstrap.id()),
                         .silence_ms = process_.config().heartbeat_ms};
  if (process_.config().tls) {
    options.tls = {.rank = rank_,
                   .key = bootstrap.id().key,
                   .deadline_ns = bootstrap.deadline_ns(),
                   .bootstrap_fd = bootstrap.descriptor(),
                   .check = [&bootstrap] { return bootstrap.check(); }};
  }
  auto remote = NetworkConnections::open(std::move(peers), options);
  TUTTI_TRY(remote.status());
  network_ = std::move(*remote);
  return Status::ok();
}

}  // namespace tutti
