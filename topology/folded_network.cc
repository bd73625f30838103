#include "topology/folded_network.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "topology/routes.h"

namespace tutti::topology {
namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kCardsMax = 64;
constexpr size_t kArcsMax = 64;  // of a way that counts
/// Neighbouring distances meet the same pairs of switches, which then lie in the cache.
constexpr uint32_t kFoundAtOnce = 64;

/// How many hosts from `host` on have partners that stand next to each other, too.
uint32_t neighbours(HostShift shift, uint32_t hosts, uint32_t host, uint32_t partner, uint32_t distance) {
  if (shift == HostShift::kAdd) return hosts - partner;
  if (distance == 0) return hosts - host;
  const uint32_t block = distance & -distance;  // the lower bits of host and partner are equal
  return block - host % block;
}

}  // namespace

FoldedNetwork::FoldedNetwork(const Routes& routes, uint32_t hosts)
    : hosts_(hosts),
      cards_(static_cast<uint32_t>(routes.hosts()[0].shape->nics.size())),
      cards_of_(routes.graph().nodes().size(), 0),
      number_of_(size_t{2} * cards_ * cards_),
      kind_of_arc_(2 * routes.graph().edges().size(), kNone),
      messages_(2 * routes.graph().edges().size(), 0) {
  std::map<uint32_t, uint32_t> index;
  for (uint32_t card = 0; card < cards_; ++card) {
    auto& of_hosts = switch_of_card_.emplace_back();
    for (uint32_t host = 0; host < hosts; ++host) {
      const Routes::Host& at = routes.hosts()[host];
      const uint32_t node = routes.switch_of(at.nodes[at.shape->nics[card]]);
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
}

const FoldedNetwork::Way& FoldedNetwork::way(Routes& routes, HostShift shift, uint32_t from_card,
                                             uint32_t to_card, uint32_t host) {
  auto& numbers =
      number_of_[((shift == HostShift::kAdd ? 0 : cards_) + size_t{from_card}) * cards_ + to_card];
  if (numbers.empty()) numbers.assign(hosts_, kNone);
  if (numbers[host] == kNone) {
    const uint32_t first = host - host % kFoundAtOnce;
    for (uint32_t next = first; next < std::min(first + kFoundAtOnce, hosts_); ++next) {
      numbers[next] = static_cast<uint32_t>(ways_.size());
      ways_.push_back(find(routes, shift, from_card, to_card, next));
    }
  }
  return ways_[numbers[host]];
}

FoldedNetwork::Way FoldedNetwork::find(Routes& routes, HostShift shift, uint32_t from_card, uint32_t to_card,
                                       uint32_t host) {
  const auto& from = switch_of_card_[from_card];
  const auto& to = switch_of_card_[to_card];
  Way way{.first_load = static_cast<uint32_t>(loads_.size()), .is_joined = true};
  uint32_t run = 0;  // neighbours that send alike
  for (uint32_t i = 0; i < hosts_; i += run) {
    const uint32_t shifted = i + host < hosts_ ? i + host : i + host - hosts_;
    const uint32_t j = shift == HostShift::kAdd ? shifted : i ^ host;
    run =
        std::min({alike_from_[from_card][i], alike_from_[to_card][j], neighbours(shift, hosts_, i, j, host)});
    if (from[i] == to[j] && switches_[from[i]] != kNoNode) continue;
    const Between& middle = between(routes, from[i], to[j]);
    way.is_joined &= !middle.arcs->empty();
    if (middle.arcs->size() > kArcsMax) continue;
    for (const uint32_t arc : *middle.arcs) {
      if (messages_[arc] == 0) loaded_.push_back(arc);
      messages_[arc] += run;
    }
    way.latency_us = std::max(way.latency_us, middle.latency_us);
  }
  for (const uint32_t arc : loaded_) {
    const uint32_t kind = kind_of(routes, arc);
    const auto messages = static_cast<float>(std::exchange(messages_[arc], 0));
    const auto same = std::find_if(loads_.begin() + way.first_load, loads_.end(),
                                   [&](const Load& load) { return load.kind == kind; });
    if (same == loads_.end()) {
      loads_.push_back({.kind = kind, .arc = arc, .messages = messages});
    } else {
      same->messages = std::max(same->messages, messages);
    }
  }
  loaded_.clear();
  way.load_count = static_cast<uint32_t>(loads_.size()) - way.first_load;
  return way;
}

const FoldedNetwork::Between& FoldedNetwork::between(Routes& routes, uint32_t from, uint32_t to) {
  static const std::vector<uint32_t> kNoArcs;
  const auto [number, is_new] = number_of_pair_.number(uint64_t{from} << 32 | to);
  if (!is_new) return between_[number];
  Between& way = between_.emplace_back(Between{.arcs = &kNoArcs});
  if (switches_[from] == kNoNode || switches_[to] == kNoNode) return way;
  way.arcs = &routes.between_switches(switches_[from], switches_[to]);
  for (const uint32_t arc : *way.arcs) {
    const Edge& edge = routes.graph().edge(arc / 2);
    way.latency_us += static_cast<double>(edge.latency_ns.value) / 1000;
  }
  return way;
}

/// Links are alike if they join switches of the same cards and are equally fast.
uint32_t FoldedNetwork::kind_of(const Routes& routes, uint32_t arc) {
  if (kind_of_arc_[arc] != kNone) return kind_of_arc_[arc];
  const Edge& edge = routes.graph().edge(arc / 2);
  const uint32_t from = arc % 2 == 0 ? edge.a : edge.b;
  const uint32_t to = arc % 2 == 0 ? edge.b : edge.a;
  return kind_of_arc_[arc] =
             kinds_.try_emplace({cards_of_[from], cards_of_[to], edge.bytes_per_s.value}, kind_count())
                 .first->second;
}

}  // namespace tutti::topology
