// Hierarchical all-to-all: the ranks of a host put their blocks for one rank of another host together, so
// that one message between hosts carries them all. Good for short blocks: few messages between hosts, and the
// same bytes there. Every block for another host also moves once inside the sender's host.
//
// For every rank of another host, one rank of this host is the agent: that rank's counterpart
// (algorithms/hosts.h). The agent collects its host's blocks in scratch and sends them on at once. Ranks take
// the other hosts in one order, in batches in which every rank is agent at most once. All ranks of a batch
// send before any waits.
#include <algorithm>

#include "algorithms/builder.h"
#include "algorithms/generators.h"
#include "algorithms/hosts.h"

namespace tutti::generators {
namespace {

class HierarchicalAllToAll {
 public:
  HierarchicalAllToAll(const Request& request, const Facts& facts, uint32_t rank)
      : rank_(rank),
        hosts_(request, facts),
        host_(hosts_.host_of(rank)),
        local_allow_(request.in_place ? Allow::kCopy : Allow::kReference),
        builder_(request, rank) {
    // An agent sends all its blocks before it receives any, so a link must hold those of one receiver.
    const uint32_t blocks = hosts_.count() > 1 ? hosts_.most_ranks() : 0;
    builder_.scratch_chunks(blocks).slots_needed(std::max(1u, blocks));
  }

  Plan make() {
    // Nothing is received into the output before all of the input has left: in place they are one buffer.
    for (uint32_t i = 1; i < hosts_.count(); ++i) send_to_host((host_ + i) % hosts_.count());
    exchange_inside();
    for (uint32_t i = 1; i < hosts_.count(); ++i)
      receive_from_host((host_ + hosts_.count() - i) % hosts_.count());
    return builder_.take();
  }

 private:
  std::span<const uint32_t> local_ranks() const { return hosts_.ranks(host_); }

  /// Calls body(number, ranks) for each run of consecutive ranks of a host: the number of the first, and the
  /// ranks. One step carries a run's blocks, because they lie next to each other in the receiver's output.
  template <class Body>
  void each_run(uint32_t host, const Body& body) const {
    const std::span<const uint32_t> ranks = hosts_.ranks(host);
    uint32_t first = 0;
    for (uint32_t i = 1; i <= ranks.size(); ++i) {
      if (i < ranks.size() && ranks[i] == ranks[i - 1] + 1) continue;
      body(first, Chunks{ranks[first], i - first});
      first = i;
    }
  }

  void send_to_host(uint32_t host) {
    const std::span<const uint32_t> receivers = hosts_.ranks(host);
    const size_t batch = local_ranks().size();
    for (size_t first = 0; first < receivers.size(); first += batch) {
      const auto now = receivers.subspan(first, std::min(batch, receivers.size() - first));
      for (const uint32_t receiver : now) {
        const uint32_t agent = hosts_.counterpart(host_, receiver);
        if (agent != rank_) send_input(receiver, agent);
      }
      for (const uint32_t receiver : now) {
        if (hosts_.counterpart(host_, receiver) == rank_) forward(receiver);
      }
    }
  }

  void send_input(uint32_t block, uint32_t peer) {
    builder_.step({block, 1}, {input({block, 1})}, {to(peer, local_allow_)});
  }

  /// Collects this host's blocks for `receiver`, and sends them.
  void forward(uint32_t receiver) {
    for (uint32_t i = 0; i < local_ranks().size(); ++i) {
      const uint32_t peer = local_ranks()[i];
      const End block = peer == rank_ ? input({receiver, 1}) : from(peer, local_allow_);
      builder_.step({receiver, 1}, {block}, {scratch({i, 1})});
    }
    each_run(host_, [&](uint32_t first, Chunks run) {
      // The next batch overwrites scratch.
      builder_.step(run, {scratch({first, run.count})}, {to(receiver, Allow::kCopy)});
    });
  }

  void exchange_inside() {
    const uint32_t size = hosts_.size(host_);
    const auto other = [&](uint32_t i) { return local_ranks()[(hosts_.number(rank_) + i) % size]; };
    for (uint32_t i = 1; i < size; ++i) send_input(other(i), other(i));
    builder_.step({rank_, 1}, {input({rank_, 1})}, {output({rank_, 1})});
    for (uint32_t i = size - 1; i > 0; --i)
      builder_.step({other(i), 1}, {from(other(i), local_allow_)}, {output({other(i), 1})});
  }

  void receive_from_host(uint32_t host) {
    const uint32_t agent = hosts_.counterpart(host, rank_);
    each_run(host,
             [&](uint32_t, Chunks run) { builder_.step(run, {from(agent, Allow::kCopy)}, {output(run)}); });
  }

  uint32_t rank_;
  Hosts hosts_;
  uint32_t host_;
  Allow local_allow_;
  Builder builder_;
};

/// Whether a link holds a block of each rank of a host. Does not allocate.
bool fits_slots(const Facts& facts) {
  if (facts.host_of.empty()) return true;
  for (uint32_t host = 0; host < facts.host_count; ++host) {
    if (std::count(facts.host_of.begin(), facts.host_of.end(), host) > facts.slots) return false;
  }
  return true;
}

}  // namespace

bool supports_hierarchical_all_to_all(const Request& request, const Facts& facts) {
  return knows_hosts(request, facts) && fits_slots(by_groups(request, facts));
}

/// Hierarchical all-to-all. Blocks may differ in size: a chunk of scratch holds one.
/// Shapes: input and output are [P * count] of T; in place allowed.
/// Cost: 1 latency inside a host and 1 between hosts. On H hosts of k ranks, a rank sends (H-1)(k-1) + k-1
/// messages inside its host, and H-1 messages of k blocks to other hosts; about 2P + H k steps.
/// Scratch: k chunks.
/// Errors: none of its own.
/// Source: the node-aware all-to-all of Traeff, "Improved MPI all-to-all communication on a Giganet SMP
/// cluster", 2002, with an agent for each receiver in place of one leader.
Plan make_hierarchical_all_to_all(const Request& request, const Facts& facts, uint32_t rank) {
  return HierarchicalAllToAll(request, by_groups(request, facts), rank).make();
}

}  // namespace tutti::generators
