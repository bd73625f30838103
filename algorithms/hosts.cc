#include "algorithms/hosts.h"

#include <algorithm>

#include "algorithms/builder.h"

namespace tutti::generators {
namespace {

/// Number of ranks on the hosts before `host`. Hosts must be ranges of ranks.
uint32_t first_rank(std::span<const uint32_t> host_of, uint32_t host) {
  return static_cast<uint32_t>(std::lower_bound(host_of.begin(), host_of.end(), host) - host_of.begin());
}

/// As hosts_are_canonical, for the hosts [begin, end).
bool are_canonical(std::span<const uint32_t> host_of, uint32_t begin, uint32_t end) {
  if (end - begin == 1) return true;
  const uint32_t middle = begin + canonical_split(end - begin);
  const uint32_t first = first_rank(host_of, begin);
  const uint32_t rank_count = first_rank(host_of, end) - first;
  return first_rank(host_of, middle) - first == canonical_split(rank_count) &&
         are_canonical(host_of, begin, middle) && are_canonical(host_of, middle, end);
}

}  // namespace

Hosts::Hosts(const Request& request, const Facts& facts)
    : host_of_(facts.host_of),
      first_(facts.host_of.empty() ? 2 : facts.host_count + 1, 0),
      ranks_(request.rank_count),
      number_(request.rank_count) {
  for (uint32_t rank = 0; rank < request.rank_count; ++rank) number_[rank] = first_[host_of(rank) + 1]++;
  for (uint32_t host = 0; host < count(); ++host) {
    most_ranks_ = std::max(most_ranks_, first_[host + 1]);
    first_[host + 1] += first_[host];
  }
  for (uint32_t rank = 0; rank < request.rank_count; ++rank) {
    ranks_[first_[host_of(rank)] + number_[rank]] = rank;
  }
}

Facts by_groups(const Request& request, const Facts& facts) {
  Facts grouped = facts;
  if (facts.host_count > 1 || facts.levels.empty() || facts.levels.back().size() != request.rank_count)
    return grouped;
  grouped.host_of = facts.levels.back();
  grouped.host_count = *std::max_element(grouped.host_of.begin(), grouped.host_of.end()) + 1;
  return grouped;
}

bool knows_hosts(const Request& request, const Facts& facts) {
  return facts.host_of.empty() ? facts.host_count <= 1 : facts.host_of.size() == request.rank_count;
}

bool hosts_are_canonical(const Facts& facts) {
  const std::span<const uint32_t> host_of = facts.host_of;
  return host_of.empty() ||
         (std::is_sorted(host_of.begin(), host_of.end()) && are_canonical(host_of, 0, facts.host_count));
}

}  // namespace tutti::generators
