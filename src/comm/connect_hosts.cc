// CommunicatorBuilder: the connections to ranks of other hosts.
#include <cstring>
#include <iterator>
#include <span>
#include <string>

#include "comm/builder.h"
#include "comm/card_order.h"
#include "comm/transport_addresses.h"
#include "engine/links.h"
#include "net/crypto.h"
#include "transports/registry.h"

namespace tutti {
namespace {

// Data connections use the channels from 0.
constexpr uint32_t kControlChannel = kMaxConnections;
using Address = std::vector<std::byte>;

RankDescription describe_rank(uint32_t rank, const RankFacts& facts, std::span<const std::byte> address) {
  RankDescription description{.rank = rank, .host = facts.host, .machine = facts.machine, .address = address};
  static_assert(sizeof(description.process) <= sizeof(facts.process));
  std::memcpy(&description.process, facts.process.data(), sizeof(description.process));
  return description;
}

/// The transports between hosts, and the addresses of all ranks.
struct NetworkSide {
  std::vector<const TransportEntry*> entries;
  NetworkConnections::Transports transports;
  std::vector<std::vector<Address>> addresses;  ///< by transport, then by rank
  std::string names;                            ///< for messages
};

/// Blocks until all ranks have opened theirs. Errors: as network_transports, TransportEntry::open and
/// Bootstrap::share.
Result<NetworkSide> open_transports(Bootstrap& setup, const TransportOptions& options) {
  auto entries = network_transports(options.config);
  TUTTI_TRY(entries.status());
  NetworkSide side{.entries = *entries, .transports = {}, .addresses = {}, .names = {}};
  for (const TransportEntry* entry : *entries) {
    auto transport = entry->open(options);
    TUTTI_TRY(transport.status());
    auto addresses = share_addresses([&setup](std::span<const std::byte> blob) { return setup.share(blob); },
                                     **transport, options.rank_count);
    TUTTI_TRY(addresses.status());
    side.transports.push_back(std::move(*transport));
    side.addresses.push_back(std::move(*addresses));
    add_to_list(side.names, entry->name);
  }
  return side;
}

/// Both ranks find the same transport. Errors: kInvalidArgument if there is none.
Result<size_t> choose_for(const NetworkSide& side, const std::vector<RankFacts>& facts, uint32_t rank,
                          uint32_t peer) {
  std::vector<std::optional<LinkCost>> costs;
  for (size_t i = 0; i < side.transports.size(); ++i) {
    costs.push_back(side.transports[i]->reach(describe_rank(rank, facts[rank], side.addresses[i][rank]),
                                              describe_rank(peer, facts[peer], side.addresses[i][peer])));
  }
  const std::optional<size_t> chosen = choose_transport(costs);
  if (chosen) return *chosen;
  return Status(
      Code::kInvalidArgument,
      format("no transport joins rank %u and rank %u, which are on different hosts; tried: %s. Unset "
             "TUTTI_TRANSPORT, or name a transport that both hosts have",
             rank, peer, side.names.c_str()));
}

}  // namespace

/// The cheapest transport for data, and a socket for control.
Status CommunicatorBuilder::connect_hosts(Bootstrap& bootstrap, const std::vector<RankFacts>& facts) {
  if (host_count_ == 1) return Status::ok();
  parts_->exchange = std::make_unique<SocketExchange>(process_.control(), rank_count_);
  RingShape shape = shape_.peer_ring();
  shape.wide_slots = 0;
  shape.passed_slots = 0;
  const TransportOptions options{.rank = rank_,
                                 .rank_count = rank_count_,
                                 .shape = shape,
                                 .channels = kLinkChannels,
                                 .epoch = epoch_of(bootstrap.id()),
                                 .config = process_.config(),
                                 .derive_key =
                                     [key = bootstrap.id().key](const std::string& label) {
                                       return authenticate(key, std::as_bytes(std::span(label)));
                                     },
                                 .heap = &process_.heap(),
                                 .order_cards = card_order(process_, facts, rank_),
                                 .renewal = parts_->exchange.get()};
  auto side = open_transports(bootstrap, options);
  TUTTI_TRY(side.status());
  std::vector<DataRequest> requests;
  std::vector<NetworkConnections::Peer> peers;
  for (uint32_t peer = 0; peer < rank_count_; ++peer) {
    if (host_of_[peer] == host_of_[rank_]) continue;
    auto chosen = choose_for(*side, facts, rank_, peer);
    TUTTI_TRY(chosen.status());
    peers.push_back({.rank = peer,
                     .transport = *chosen,
                     .is_near = facts[peer].machine == facts[rank_].machine,
                     .address = side->addresses[*chosen][peer],
                     .transport_name = side->entries[*chosen]->name});
    const uint32_t sockets = side->transports[*chosen]->socket_count();
    for (uint32_t i = 0; i < sockets; ++i) requests.push_back({peer, i, facts[peer].data});
    requests.push_back({peer, kControlChannel, facts[peer].data});
  }
  auto sockets = bootstrap.connect(requests);
  TUTTI_TRY(sockets.status());
  auto next = sockets->begin();
  for (NetworkConnections::Peer& peer : peers) {
    const auto control = next + side->transports[peer.transport]->socket_count();
    std::move(next, control, std::back_inserter(peer.sockets));
    control_peers_.push_back({peer.rank, std::move(*control)});
    next = control + 1;
  }
  auto remote = NetworkConnections::open(
      std::move(side->transports), std::move(peers), options.shape, rank_count_,
      {.deadline_ns = bootstrap.deadline_ns(), .descriptor = bootstrap.descriptor(), .check = [&bootstrap] {
         return bootstrap.check();
       }});
  TUTTI_TRY(remote.status());
  network_ = std::move(*remote);
  return Status::ok();
}

}  // namespace tutti
