#include "plan/fold.h"

#include <algorithm>
#include <bit>

#include "core/hash.h"

namespace tutti {
namespace {

/// Whether two plans are equal but for their peers: same_peer(of_first, of_second) compares these.
template <class SamePeer>
bool are_alike(const Plan& first, const Plan& second, const SamePeer& same_peer) {
  const auto ends_match = [&](const End& a, const End& b) {
    if (a.kind != b.kind || a.channel != b.channel || a.chunk_count != b.chunk_count) return false;
    return a.kind != EndKind::kLink || same_peer(a.peer, b.peer);
  };
  // A step waits for its sources in any order; its messages leave in the order of its sinks.
  const auto sources_match = [&](const std::vector<End>& a, const std::vector<End>& b) {
    return a.size() == b.size() && std::ranges::all_of(a, [&](const End& end) {
             return std::ranges::any_of(b, [&](const End& other) { return ends_match(end, other); });
           });
  };
  const auto sinks_match = [&](const std::vector<End>& a, const std::vector<End>& b) {
    const auto is_buffer = [](const End& end) {
      return end.kind == EndKind::kOutput || end.kind == EndKind::kScratch;
    };
    const auto next = [&](const std::vector<End>& ends, size_t at) {
      while (at < ends.size() && is_buffer(ends[at])) ++at;
      return at;
    };
    if (a.size() != b.size() || std::ranges::count_if(a, is_buffer) != std::ranges::count_if(b, is_buffer))
      return false;
    for (size_t i = next(a, 0), j = next(b, 0); i < a.size(); i = next(a, i + 1), j = next(b, j + 1)) {
      if (!ends_match(a[i], b[j])) return false;
    }
    return true;
  };
  const auto steps_match = [&](const Step& a, const Step& b) {
    return a.chunk_count == b.chunk_count && sources_match(a.sources, b.sources) &&
           sinks_match(a.sinks, b.sinks);
  };
  return std::ranges::equal(first.lanes, second.lanes, [&](const Lane& a, const Lane& b) {
    return std::ranges::equal(a.steps, b.steps, steps_match);
  });
}

/// A lane's messages in any order, as a sum of hashes of each: whether sent, chunks, channel, peer. Other
/// messages have the same sum with a chance of 2^-64.
template <class Peer>
uint64_t messages_of(const Lane& lane, const Peer& peer) {
  uint64_t sum = 0;
  for (const Step& step : lane.steps) {
    const auto add = [&](const End& end, bool sent) {
      if (end.kind != EndKind::kLink) return;
      const uint64_t way = (uint64_t{end.channel} << 1 | (sent ? 1 : 0)) + 1;
      sum += mix_bits(mix_bits(uint64_t{peer(end.peer)} << 32 | step.chunk_count) ^ way);
    };
    for (const End& end : step.sources) add(end, false);
    for (const End& end : step.sinks) add(end, true);
  }
  return sum;
}

/// As are_alike, but steps may come in any order.
template <class Peer>
bool send_alike(const Plan& first, const Plan& second, const Peer& peer) {
  return std::ranges::equal(first.lanes, second.lanes, [&](const Lane& a, const Lane& b) {
    const auto same = [](uint32_t rank) { return rank; };
    return a.steps.size() == b.steps.size() && messages_of(a, peer) == messages_of(b, same);
  });
}

/// Whether the plans of hosts of `size` ranks each are alike, as far as four hosts tell.
bool hosts_are_alike(const PlanMaker& maker, uint32_t size, HostShift shift, Likeness likeness,
                     std::vector<Plan>& first_host) {
  const uint32_t hosts = maker.rank_count / size;
  for (uint32_t rank = 0; rank < size; ++rank) {
    if (first_host.size() == rank) first_host.push_back(maker.plan_of(rank));
    const Plan& first = first_host[rank];
    for (const uint32_t host : {1u, hosts / 2, hosts - 1}) {
      const Plan second = maker.plan_of(host * size + rank);
      const auto peer = [&](uint32_t of_first) {
        return shifted(of_first, host, maker.rank_count, size, shift);
      };
      const auto same_peer = [&](uint32_t a, uint32_t b) { return peer(a) == b; };
      if (likeness == Likeness::kSteps ? !are_alike(first, second, same_peer)
                                       : !send_alike(first, second, peer))
        return false;
    }
  }
  return true;
}

}  // namespace

uint32_t shifted(uint32_t peer, uint32_t host, uint32_t rank_count, uint32_t ranks_per_host,
                 HostShift shift) {
  const uint32_t peer_host = peer / ranks_per_host;
  const uint32_t hosts = rank_count / ranks_per_host;
  const uint32_t other = shift == HostShift::kAdd ? (peer_host + host) % hosts : peer_host ^ host;
  return other * ranks_per_host + peer % ranks_per_host;
}

uint32_t ranks_per_host(std::span<const uint32_t> host_of) {
  if (host_of.empty() || host_of.back() == 0) return 0;
  const size_t hosts = size_t{host_of.back()} + 1;
  const size_t size = host_of.size() / hosts;
  if (size * hosts != host_of.size()) return 0;
  for (size_t rank = 0; rank < host_of.size(); ++rank) {
    if (host_of[rank] != rank / size) return 0;
  }
  return static_cast<uint32_t>(size);
}

std::optional<HostShift> find_shift(const PlanMaker& maker, uint32_t ranks_per_host,
                                    std::vector<Plan>& first_host, Likeness likeness) {
  if (ranks_per_host == 0 || maker.rank_count / ranks_per_host < 4) return std::nullopt;
  if (hosts_are_alike(maker, ranks_per_host, HostShift::kAdd, likeness, first_host)) return HostShift::kAdd;
  const bool can_xor = std::has_single_bit(maker.rank_count / ranks_per_host);
  if (can_xor && hosts_are_alike(maker, ranks_per_host, HostShift::kXor, likeness, first_host))
    return HostShift::kXor;
  return std::nullopt;
}

}  // namespace tutti
