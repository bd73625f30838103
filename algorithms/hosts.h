// Hosts: which ranks share a host. For algorithms that work differently inside a host and between hosts.
//
// Ranks are numbered within their host in rank order. Ranks with equal numbers on two hosts are counterparts.
// Hosts may have different numbers of ranks, in any order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace tutti::generators {

class Hosts {
 public:
  /// knows_hosts() must hold. Time and memory are proportional to the rank count.
  Hosts(const Request& request, const Facts& facts);

  uint32_t count() const { return static_cast<uint32_t>(first_.size()) - 1; }
  uint32_t host_of(uint32_t rank) const { return host_of_.empty() ? 0 : host_of_[rank]; }
  /// A host's ranks in ascending order.
  std::span<const uint32_t> ranks(uint32_t host) const {
    return std::span(ranks_).subspan(first_[host], first_[host + 1] - first_[host]);
  }
  uint32_t size(uint32_t host) const { return first_[host + 1] - first_[host]; }
  uint32_t most_ranks() const { return most_ranks_; }
  /// The rank's number within its host.
  uint32_t number(uint32_t rank) const { return number_[rank]; }
  /// The rank of `host` with the number of `rank`, modulo the number of ranks on `host`.
  uint32_t counterpart(uint32_t host, uint32_t rank) const {
    return ranks_[first_[host] + number_[rank] % size(host)];
  }

 private:
  std::span<const uint32_t> host_of_;
  std::vector<uint32_t> first_;   ///< each host's first index in ranks_, then the end
  std::vector<uint32_t> ranks_;   ///< by host
  std::vector<uint32_t> number_;  ///< by rank
  uint32_t most_ranks_ = 1;
};

/// The facts with the largest groups of Facts::levels in the place of hosts. Unchanged if there are several
/// hosts, or no groups of as many ranks as the request's. Every hierarchical algorithm begins with this, so
/// it also works between the caches, NUMA nodes or packages of one host.
Facts by_groups(const Request& request, const Facts& facts);

/// Whether the facts give the host of every rank of the request. Does not allocate.
bool knows_hosts(const Request& request, const Facts& facts);

/// Whether this reduction equals the canonical tree over all ranks: first each host's ranks in rank order,
/// then these sums in the order of hosts, each in its canonical tree. True if the hosts are ranges of ranks
/// at which that tree splits, e.g. of equal powers of two. Does not allocate.
bool hosts_are_canonical(const Facts& facts);

}  // namespace tutti::generators
