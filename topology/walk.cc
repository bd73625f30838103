#include "topology/walk.h"

#include <algorithm>
#include <limits>

#include "plan/graph.h"

namespace tutti::topology {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kGroupBit = 62;  // of the keys of links; there are four groups

Status not_joined(uint32_t from, uint32_t to) {
  return {Code::kInvalidArgument, format("nothing joins rank %u and rank %u", from, to)};
}

}  // namespace

Walk::Walk(Routes& routes, const WalkOptions& options)
    : routes_(routes), options_(options), server_of_arc_(2 * routes.graph().edges().size(), kNone) {
  for (uint32_t rank = 0; rank < options.ranks && !on_gpu(); ++rank) add_memory(rank);
  out_of_.resize(routes.ranks().size());
  in_to_.resize(routes.ranks().size());
}

Status Walk::add(const Plan& plan) {
  const uint64_t cut = plan.chunks_per_block;
  largest_chunk_bytes_ = std::max(largest_chunk_bytes_, (options_.block_bytes + cut - 1) / cut);
  slots_needed_ = std::max(slots_needed_, plan.slots_needed);
  for (group_ = 0; group_ < options_.groups; ++group_) {
    for (const Lane& lane : plan.lanes) TUTTI_TRY(add_lane(plan, lane));
  }
  ++added_;
  return {};
}

Status Walk::add_lane(const Plan& plan, const Lane& lane) {
  if (on_gpu()) add_blocks();
  lanes_.push_back({.rank = added_,
                    .memory = on_gpu() ? static_cast<uint32_t>(memory_.size() - 1) : added_,
                    .first_step = static_cast<uint32_t>(steps_.size())});
  for (const Step& step : lane.steps) TUTTI_TRY(add_step(plan, step));
  lanes_.back().step_count = static_cast<uint32_t>(steps_.size()) - lanes_.back().first_step;
  return {};
}

/// The stripes of the lane's group.
uint32_t Walk::stripes() const {
  return options_.stripes / options_.groups + (group_ < options_.stripes % options_.groups ? 1 : 0);
}

/// The blocks of a lane on a GPU.
void Walk::add_blocks() {
  Memory& memory = memory_.emplace_back();
  memory.to.push_back({static_cast<uint32_t>(servers_.size()), 1});
  memory.from = memory.to;
  servers_.push_back({.rank = added_, .us_per_byte = 1 / (options_.stripe_bytes_per_us * stripes())});
}

uint64_t Walk::step_bytes(const Plan& plan, const Step& step) const {
  const uint64_t cut = plan.chunks_per_block;
  const uint64_t longer = options_.block_bytes % cut;  // chunks of a block that have one byte more
  const auto before = [&](uint64_t chunk) {
    return chunk / cut * options_.block_bytes + chunk % cut * (options_.block_bytes / cut) +
           std::min(chunk % cut, longer);
  };
  return before(uint64_t{step.first_chunk} + step.chunk_count) - before(step.first_chunk);
}

Status Walk::add_step(const Plan& plan, const Step& step) {
  WalkStep walked{.bytes = step_bytes(plan, step),
                  .first_end = static_cast<uint32_t>(ends_.size()),
                  .chunks = static_cast<uint16_t>(std::max(1u, step.chunk_count)),
                  .stripes = stripes()};
  TUTTI_TRY(add_ends(plan, step, walked));
  steps_.push_back(walked);
  return {};
}

/// The links that the step reads and writes, and what it moves in its rank's memory. A core reads the
/// messages of its host where their senders left them. A GPU's messages lie in its own memory, and it stores
/// to its peers'.
Status Walk::add_ends(const Plan& plan, const Step& step, WalkStep& walked) {
  const auto lane = static_cast<uint32_t>(lanes_.size() - 1);
  for (const End& end : step.sources) {
    ++walked.sources;
    if (end.kind == EndKind::kCollect) {
      TUTTI_TRY(add_collected(plan, walked));
      continue;
    }
    if (end.kind != EndKind::kLink) {
      ++walked.memory_reads;
      walked.buffer_reads += end.kind == EndKind::kScratch ? 0 : 1;
      continue;
    }
    const auto number = link(end.peer, plan.rank, end.channel);
    TUTTI_TRY(number.status());
    links_[*number].reader = lane;
    ends_.push_back(*number);
    ++walked.reads;
    if (on_gpu() || links_[*number].is_between_hosts()) ++walked.memory_reads;
  }
  bool all_refer = walked.reads == 0;
  for (const End& end : step.sinks) {
    const bool publishes = end.kind == EndKind::kPublish;
    if (!publishes && end.kind != EndKind::kLink) {
      ++walked.memory_writes;
      walked.buffer_writes += end.kind == EndKind::kScratch ? 0 : 1;
      all_refer = false;
      continue;
    }
    bool is_between_hosts = false;
    const uint32_t last = publishes ? options_.rank_count : end.peer + 1;
    for (uint32_t to = publishes ? 0 : end.peer; to < last; ++to) {
      if (publishes && to == plan.rank) continue;
      const auto number = link(plan.rank, to, publishes ? kPublishChannel : end.channel);
      TUTTI_TRY(number.status());
      links_[*number].writer = lane;
      is_between_hosts = links_[*number].is_between_hosts();
      if (is_between_hosts && group_ == 0) network_bytes_ += walked.bytes;
      ends_.push_back(*number);
      ++walked.writes;
    }
    const bool refers = options_.by_reference && !is_between_hosts && may_refer(step);
    all_refer = all_refer && refers;
    if (!refers) ++walked.memory_writes;
    if (!refers && !is_between_hosts) ++walked.slot_writes;
  }
  if (all_refer) walked.memory_reads = walked.buffer_reads = 0;
  return {};
}

/// One load from the switch, which reads what all ranks contributed.
Status Walk::add_collected(const Plan& plan, WalkStep& walked) {
  for (uint32_t from = 0; from < options_.rank_count; ++from) {
    const auto number = link(from, plan.rank, kCollectChannel);
    TUTTI_TRY(number.status());
    links_[*number].reader = static_cast<uint32_t>(lanes_.size() - 1);
    ends_.push_back(*number);
    ++walked.reads;
  }
  ++walked.memory_reads;
  return {};
}

/// Both ends of a message find the same link. Folded, the sender is the one on the first host that does the
/// same.
Result<uint32_t> Walk::link(uint32_t from, uint32_t to, uint8_t channel) {
  if (options_.shift) {
    const uint32_t hosts = options_.rank_count / options_.ranks;
    const uint32_t host = from / options_.ranks;
    const uint32_t back = *options_.shift == HostShift::kAdd ? (hosts - host) % hosts : host;
    to = shifted(to, back, options_.rank_count, options_.ranks, *options_.shift);
    from %= options_.ranks;
  }
  const uint64_t key =
      (uint64_t{group_} << kGroupBit) | (uint64_t{from} << 36) | (uint64_t{to} << 8) | channel;
  const auto [number, is_new] = link_of_key_.number(key);
  if (is_new) {
    links_.emplace_back();
    TUTTI_TRY(find_way(from, to, channel, links_.back()));
  }
  return number;
}

/// How much of a message a port between a rank and the switch carries. The switch reduces the messages to a
/// collector to one, and makes those of a publisher from one; either way the rank itself is served too.
/// `is_shared`: the collector's or the publisher's own port.
double Walk::port_share(uint8_t channel, bool is_shared) const {
  const bool is_multicast = channel == kCollectChannel || (channel == kPublishChannel && on_gpu());
  if (!is_multicast) return 1;
  return (is_shared ? 1.0 : options_.rank_count) / (options_.rank_count - 1);
}

Status Walk::find_way(uint32_t from, uint32_t to, uint8_t channel, WalkLink& link) {
  link.is_network = host_of(from) != host_of(to);
  link.is_socket =
      !link.is_network && !options_.host_of.empty() && options_.host_of[from] != options_.host_of[to];
  link.is_collected = channel == kCollectChannel;
  if (position_of(from) == position_of(to)) return {};
  if (link.is_network) return find_network_way(from, to, link);
  std::vector<uint32_t> arcs;
  if (!routes_.add_route(position_of(from), position_of(to), arcs)) return not_joined(from, to);
  link.own = add_hops(arcs);
  const uint32_t shared = channel == kCollectChannel ? link.own.count - 1 : 0;
  for (uint32_t i = 0; i < link.own.count; ++i)
    hops_[link.own.first + i].factor = static_cast<float>(port_share(channel, i == shared));
  add_latency(link.own, link);
  return {};
}

/// Folded, the receiver's links are the first host's as well: another host sends to the first one at the same
/// time.
Status Walk::find_network_way(uint32_t from, uint32_t to, WalkLink& link) {
  if (!options_.shift && routes_.meet_elsewhere(position_of(from), position_of(to))) {
    std::vector<uint32_t> arcs;
    if (!routes_.add_route(position_of(from), position_of(to), arcs)) return not_joined(from, to);
    link.own = add_hops(arcs);
    add_latency(link.own, link);
    return {};
  }
  const bool is_joined =
      find_end(true, from, link.own) &&
      (options_.shift ? find_folded_middle(from, to, link) : find_middle(from, to, link)) &&
      find_end(false, options_.shift ? to % options_.ranks : to, link.last);
  if (!is_joined) return not_joined(from, to);
  add_latency(link.last, link);
  return {};
}

/// Between a rank and the network.
bool Walk::find_end(bool is_out, uint32_t rank, HopRange& way) {
  const uint32_t place = position_of(rank);
  HopRange& known = (is_out ? out_of_ : in_to_)[place];
  if (known.count == 0) {
    std::vector<uint32_t> arcs;
    if (!(is_out ? routes_.add_way_out(place, arcs) : routes_.add_way_in(place, arcs))) return false;
    known = add_hops(arcs);
  }
  way = known;
  return true;
}

bool Walk::find_middle(uint32_t from, uint32_t to, WalkLink& link) {
  add_latency(link.own, link);
  const uint32_t first = routes_.switch_of_rank(position_of(from));
  const uint32_t last = routes_.switch_of_rank(position_of(to));
  if (last == kNoNode) return false;
  if (first == last) return true;
  const auto [number, is_new] = number_of_switches_.number(uint64_t{first} << 32 | last);
  if (is_new) middles_.push_back(add_hops(routes_.between_switches(first, last)));
  link.between = middles_[number];
  add_latency(link.between, link);
  return link.between.count > 0;
}

/// The network as all hosts use it.
bool Walk::find_folded_middle(uint32_t from, uint32_t to, WalkLink& link) {
  add_latency(link.own, link);
  if (routes_.nic_of()[position_of(to)] == kNoNode) return false;
  FoldedNetwork& network = routes_.folded(options_.rank_count / options_.ranks);
  const FoldedNetwork::Way& way =
      network.way(routes_, *options_.shift, card_of(from), card_of(to), host_of(to));
  link.between = {.first = static_cast<uint32_t>(hops_.size()), .count = way.load_count};
  server_of_kind_.resize(network.kind_count(), kNone);
  for (const FoldedNetwork::Load& load : network.loads_of(way)) {
    uint32_t& server = server_of_kind_[load.kind];
    if (server == kNone) server = server_of(load.arc);
    hops_.push_back({server, load.messages});
  }
  link.latency_us += way.latency_us;
  return way.is_joined;
}

/// The number of a rank's card among those of its host.
uint32_t Walk::card_of(uint32_t rank) const {
  const Routes::Host& host = routes_.hosts()[host_of(rank)];
  const uint32_t card = host.shape->nic_of[position_of(rank) - host.first_rank];
  const auto& nics = host.shape->nics;
  return static_cast<uint32_t>(std::find(nics.begin(), nics.end(), card) - nics.begin());
}

HopRange Walk::add_hops(std::span<const uint32_t> arcs) {
  const auto first = static_cast<uint32_t>(hops_.size());
  for (const uint32_t arc : arcs) hops_.push_back({server_of(arc), 1});
  return {.first = first, .count = static_cast<uint32_t>(arcs.size())};
}

void Walk::add_latency(const HopRange& hops, WalkLink& link) const {
  for (const Hop& hop : hops_of(hops)) link.latency_us += servers_[hop.server].latency_us;
}

uint32_t Walk::server_of(uint32_t arc) {
  if (server_of_arc_[arc] != kNone) return server_of_arc_[arc];
  const Edge& edge = routes_.graph().edge(arc / 2);
  const auto is_core = [&](uint32_t node) { return routes_.graph().node(node).kind == NodeKind::kCore; };
  server_of_arc_[arc] = static_cast<uint32_t>(servers_.size());
  servers_.push_back({.arc = arc,
                      .us_per_byte = 1e6 / static_cast<double>(edge.bytes_per_s.value),
                      .latency_us = static_cast<double>(edge.latency_ns.value) / 1000,
                      .is_cores_own = is_core(edge.a) || is_core(edge.b)});
  return server_of_arc_[arc];
}

void Walk::add_memory(uint32_t rank) {
  Memory& memory = memory_.emplace_back();
  const Graph& graph = routes_.graph();
  const Routes::Host& host = routes_.hosts()[host_of(rank)];
  const uint32_t core = routes_.ranks()[position_of(rank)];
  const uint32_t numa = graph.around(core, NodeKind::kNuma);
  const auto position = [&](uint32_t node) {
    return static_cast<uint32_t>(std::lower_bound(host.nodes.begin(), host.nodes.end(), node) -
                                 host.nodes.begin());
  };
  std::vector<uint32_t> arcs;
  if (numa != kNoNode) (void)routes_.add_inside(host, position(core), position(numa), arcs);
  if (arcs.empty() && !graph.links_of(core).empty()) {
    const Link& up = graph.links_of(core)[0];
    arcs.push_back(2 * up.edge + (graph.edge(up.edge).a == core ? 0 : 1));
  }
  for (const uint32_t arc : arcs) {
    memory.from.push_back({server_of(arc), 1});
    memory.to.push_back({server_of(arc ^ 1), 1});
  }
  std::reverse(memory.to.begin(), memory.to.end());
}

Status Walk::finish() const {
  for (const WalkLink& link : links_) {
    if (link.reader == kNone || link.writer == kNone)
      return {Code::kInvalidArgument, "a message is sent and never received, or received and never sent"};
  }
  return {};
}

std::string Walk::name_of(uint32_t server) const {
  const Graph& graph = routes_.graph();
  const Server& at = servers_[server];
  if (at.arc == kNone) return "memory of " + graph.node(routes_.ranks()[position_of(at.rank)]).name;
  const Edge& edge = graph.edge(at.arc / 2);
  const uint32_t from = at.arc % 2 == 0 ? edge.a : edge.b;
  const uint32_t to = at.arc % 2 == 0 ? edge.b : edge.a;
  return std::string(kind_name(edge.kind)) + " " + graph.node(from).name + " -> " + graph.node(to).name;
}

Walk::Kinds Walk::kinds_of(uint32_t server) const {
  const uint32_t arc = servers_[server].arc;
  if (arc == kNone) return std::nullopt;
  const Graph& graph = routes_.graph();
  const Edge& edge = graph.edge(arc / 2);
  const Node& from = graph.node(arc % 2 == 0 ? edge.a : edge.b);
  const Node& to = graph.node(arc % 2 == 0 ? edge.b : edge.a);
  return std::tuple(edge.kind, from.kind, to.kind);
}

std::string Walk::kind_of(uint32_t server) const {
  const Kinds kinds = kinds_of(server);
  if (!kinds) return "memory of a gpu";
  const auto& [link, from, to] = *kinds;
  return format("%s from %s to %s", std::string(kind_name(link)).c_str(),
                std::string(kind_name(from)).c_str(), std::string(kind_name(to)).c_str());
}

}  // namespace tutti::topology
