#include "topology/walk.h"

#include <algorithm>
#include <limits>

#include "plan/graph.h"

namespace tutti::topology {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kCardsMax = 64;
constexpr uint32_t kGroupBit = 62;  // of the keys of links; there are four groups

}  // namespace

Walk::Walk(Routes& routes, const WalkOptions& options)
    : routes_(routes), options_(options), server_of_arc_(2 * routes.graph().edges().size(), kNone) {
  for (uint32_t rank = 0; rank < options.ranks && !on_gpu(); ++rank) add_memory(rank);
  if (options.shift) find_switches();
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
    const bool refers = options_.by_reference && !is_between_hosts && may_refer(step, end);
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
  const auto [known, is_new] = link_of_key_.try_emplace(key, static_cast<uint32_t>(links_.size()));
  if (is_new) {
    links_.emplace_back();
    TUTTI_TRY(find_way(from, to, channel, links_.back()));
  }
  return known->second;
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
  link.first_hop = static_cast<uint32_t>(hops_.size());
  link.is_network = host_of(from) != host_of(to);
  link.is_socket =
      !link.is_network && !options_.host_of.empty() && options_.host_of[from] != options_.host_of[to];
  link.is_collected = channel == kCollectChannel;
  if (position_of(from) == position_of(to)) return {};
  std::vector<uint32_t> arcs;
  if (!routes_.add_route(position_of(from), position_of(to), arcs)) {
    return {Code::kInvalidArgument, format("nothing joins rank %u and rank %u", from, to)};
  }
  if (options_.shift && link.is_network) {
    add_folded(to, arcs, link);
    return {};
  }
  for (const uint32_t arc : arcs) {
    const uint32_t shared = channel == kCollectChannel ? arcs.back() : arcs.front();
    add_hop(arc, port_share(channel, arc == shared), link);
    const Edge& edge = routes_.graph().edge(arc / 2);
    const uint32_t end = arc % 2 == 0 ? edge.b : edge.a;
    if (link.own_hops == 0 && routes_.graph().node(end).kind == NodeKind::kFabric)
      link.own_hops = link.hop_count;
  }
  if (link.own_hops == 0) link.own_hops = link.hop_count;
  return {};
}

void Walk::add_hop(uint32_t arc, double factor, WalkLink& link) {
  const uint32_t server = server_of(arc);
  hops_.push_back({server, static_cast<float>(factor)});
  ++link.hop_count;
  link.latency_us += servers_[server].latency_us;
}

/// The first host's own links, then the network as all hosts use it, then the links of the receiver's host,
/// which are the first host's as well: another host sends to the first one at the same time.
void Walk::add_folded(uint32_t to, const std::vector<uint32_t>& arcs, WalkLink& link) {
  const Graph& graph = routes_.graph();
  const Routes::Host& first = routes_.hosts()[0];
  const Routes::Host& other = routes_.hosts()[host_of(to)];
  const auto position = [](const std::vector<uint32_t>& sorted, uint32_t value) {
    return static_cast<size_t>(std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin());
  };
  uint32_t out = kNoNode;
  bool arrived = false;
  for (const uint32_t arc : arcs) {
    const Edge& edge = graph.edge(arc / 2);
    const uint32_t from_node = arc % 2 == 0 ? edge.a : edge.b;
    const uint32_t to_node = arc % 2 == 0 ? edge.b : edge.a;
    const bool from_fabric = graph.node(from_node).kind == NodeKind::kFabric;
    const bool to_fabric = graph.node(to_node).kind == NodeKind::kFabric;
    if (from_fabric && to_fabric) continue;
    if (to_fabric) {
      add_hop(arc, 1, link);
      link.own_hops = link.hop_count;
      out = from_node;
    } else if (from_fabric) {
      arrived = true;
      add_middle(out, to_node, host_of(to), link);
      const uint32_t card = first.nodes[position(other.nodes, to_node)];
      for (const Link& up : graph.links_of(card)) {
        if (graph.node(up.other).kind != NodeKind::kFabric) continue;
        add_hop(2 * up.edge + (graph.edge(up.edge).a == up.other ? 0 : 1), 1, link);
        break;
      }
    } else if (arrived) {
      add_hop(2 * first.edges[position(other.edges, arc / 2)] + arc % 2, 1, link);
    } else {
      add_hop(arc, 1, link);
    }
  }
}

/// Every host sends a message from its card like `out` to the card like `in` of the host that is `host` away.
/// Of the links that are alike the one with the most messages counts.
void Walk::add_middle(uint32_t out, uint32_t in, uint32_t host, WalkLink& link) {
  const auto number = [&](const Routes::Host& of, uint32_t node) {
    for (uint32_t i = 0; i < of.shape->nics.size(); ++i) {
      if (of.nodes[of.shape->nics[i]] == node) return i;
    }
    return 0u;
  };
  const uint32_t from_card = number(routes_.hosts()[0], out);
  const uint32_t to_card = number(routes_.hosts()[host], in);
  const auto& from = switch_of_card_[from_card];
  const auto& to = switch_of_card_[to_card];
  const auto hosts = static_cast<uint32_t>(from.size());
  double latency_us = 0;
  uint32_t run = 0;  // neighbours that send alike
  for (uint32_t i = 0; i < hosts; i += run) {
    const uint32_t j = *options_.shift == HostShift::kAdd ? (i + host) % hosts : i ^ host;
    run = std::min({alike_from_[from_card][i], alike_from_[to_card][j], neighbours(i, host)});
    if (from[i] == to[j]) continue;
    auto& way = between_[size_t{from[i]} * switches_.size() + to[j]];
    if (way == nullptr) way = &routes_.between_switches(switches_[from[i]], switches_[to[j]]);
    if (way->size() > 64) continue;
    double way_us = 0;
    for (const uint32_t arc : *way) {
      if (load_[arc] == 0) loaded_.push_back(arc);
      load_[arc] += run;
      way_us += static_cast<double>(routes_.graph().edge(arc / 2).latency_ns.value) / 1000;
    }
    latency_us = std::max(latency_us, way_us);
  }
  const uint32_t first_new = static_cast<uint32_t>(hops_.size());
  for (const uint32_t arc : loaded_) {
    const uint32_t server = server_like(arc);
    const auto factor = static_cast<float>(load_[arc]);
    load_[arc] = 0;
    auto same = std::find_if(hops_.begin() + first_new, hops_.end(),
                             [&](const Hop& hop) { return hop.server == server; });
    if (same == hops_.end()) {
      hops_.push_back({server, factor});
      ++link.hop_count;
    } else {
      same->factor = std::max(same->factor, factor);
    }
  }
  loaded_.clear();
  link.latency_us += latency_us;
}

/// How many hosts from `host` on send to hosts that stand next to each other, too.
uint32_t Walk::neighbours(uint32_t host, uint32_t shift) const {
  const uint32_t hosts = options_.rank_count / options_.ranks;
  if (*options_.shift == HostShift::kAdd) return hosts - (host + shift) % hosts;
  const uint32_t block = shift & -shift;  // the lower bits of host and partner are equal
  return block - host % block;
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

uint32_t Walk::server_like(uint32_t arc) {
  if (server_like_arc_[arc] != kNone) return server_like_arc_[arc];
  const Edge& edge = routes_.graph().edge(arc / 2);
  const uint32_t from = arc % 2 == 0 ? edge.a : edge.b;
  const uint32_t to = arc % 2 == 0 ? edge.b : edge.a;
  const auto [known, is_new] =
      server_of_kind_.try_emplace({cards_of_[from], cards_of_[to], edge.bytes_per_s.value}, 0);
  if (is_new) known->second = server_of(arc);
  return server_like_arc_[arc] = known->second;
}

/// Which switch each card of each used host is joined to.
void Walk::find_switches() {
  const size_t hosts = options_.rank_count / options_.ranks;
  const Graph& graph = routes_.graph();
  std::map<uint32_t, uint32_t> index;
  cards_of_.assign(graph.nodes().size(), 0);
  load_.assign(2 * graph.edges().size(), 0);
  server_like_arc_.assign(2 * graph.edges().size(), kNone);
  for (uint32_t card = 0; card < routes_.hosts()[0].shape->nics.size(); ++card) {
    auto& of_hosts = switch_of_card_.emplace_back();
    for (size_t host = 0; host < hosts; ++host) {
      const Routes::Host& at = routes_.hosts()[host];
      const uint32_t node = routes_.switch_of(at.nodes[at.shape->nics[card]]);
      const auto [known, is_new] = index.try_emplace(node, static_cast<uint32_t>(switches_.size()));
      if (is_new) switches_.push_back(node);
      of_hosts.push_back(known->second);
      if (node != kNoNode) cards_of_[node] |= uint64_t{1} << card % kCardsMax;
    }
    auto& alike = alike_from_.emplace_back(hosts, 1);
    for (size_t host = hosts - 1; host-- > 0;) {
      if (of_hosts[host] == of_hosts[host + 1]) alike[host] = alike[host + 1] + 1;
    }
  }
  between_.assign(switches_.size() * switches_.size(), nullptr);
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

std::string Walk::kind_of(uint32_t server) const {
  const Server& at = servers_[server];
  if (at.arc == kNone) return "memory of a gpu";
  const Graph& graph = routes_.graph();
  const Edge& edge = graph.edge(at.arc / 2);
  const Node& from = graph.node(at.arc % 2 == 0 ? edge.a : edge.b);
  const Node& to = graph.node(at.arc % 2 == 0 ? edge.b : edge.a);
  return format("%s from %s to %s", std::string(kind_name(edge.kind)).c_str(),
                std::string(kind_name(from.kind)).c_str(), std::string(kind_name(to.kind)).c_str());
}

}  // namespace tutti::topology
