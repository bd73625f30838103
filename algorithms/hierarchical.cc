// Hierarchical: one plan for shared memory inside hosts and the network between hosts. Hosts reduce before
// they send, and pass arrived data on inside. So as few bytes as possible cross the network, and all ranks of
// a host share the work.
//
// For every block each host has one agent: on the owner's host the owner, elsewhere the owner's counterpart
// (algorithms/hosts.h). Agents reduce their host's operands straight into the message to the owner. The owner
// reduces these messages in the order of hosts, and sends the result to the agents. The agents pass the
// result on as it arrives.
//
// Ranks of a host take the blocks in one order, in batches in which every rank is agent once. All ranks of a
// batch send before any waits, so one message on each link is enough. Ranks begin with the next host's blocks
// and end with their own, so the network works from the first batch on.
//
// Long messages are cut into parts with one lane each. While one lane waits for the network, another works
// inside the host.
#include <algorithm>

#include "algorithms/builder.h"
#include "algorithms/generators.h"
#include "algorithms/hosts.h"

namespace tutti::generators {
namespace {

/// The step that completes a block sends the block to the ranks from which the step receives.
constexpr uint32_t kAllReduceSlots = 2;

class Hierarchical {
 public:
  Hierarchical(const Request& request, const Facts& facts, uint32_t rank)
      : collective_(request.collective),
        rank_(rank),
        hosts_(request, facts),
        host_(hosts_.host_of(rank)),
        lanes_(lanes_of(owned_bytes(request), facts)),
        result_allow_(collective_ == Collective::kAllReduce ? Allow::kDirectWrite : Allow::kReference),
        builder_(request, rank) {
    const bool is_all_reduce = collective_ == Collective::kAllReduce;
    scratch_chunks_ = std::max(Builder::tree_scratch_chunks(hosts_.most_ranks()),
                               Builder::tree_scratch_chunks(hosts_.count()));
    if (collective_ == Collective::kAllGather) scratch_chunks_ = 0;
    builder_.chunks_per_block(lanes_ * (is_all_reduce ? request.rank_count : 1))
        .scratch_chunks(lanes_ * scratch_chunks_)
        .slots_needed(is_all_reduce ? kAllReduceSlots : 1)
        .canonical(hosts_are_canonical(facts));
  }

  Plan make() {
    for (lane_ = 0; lane_ < lanes_; ++lane_) {
      builder_.next_lane();
      if (collective_ != Collective::kAllGather) reduce_for_others();
      complete_own();
      if (collective_ != Collective::kReduceScatter) gather();
    }
    return builder_.take();
  }

 private:
  /// The lane's part of a rank's block.
  Chunks chunk(uint32_t owner) const { return {owner * lanes_ + lane_, 1}; }
  /// The lane's part of a buffer of one block.
  Chunks only_chunk() const { return {lane_, 1}; }
  End own_input() const { return input(collective_ == Collective::kAllGather ? only_chunk() : chunk(rank_)); }
  End own_output() const {
    return output(collective_ == Collective::kReduceScatter ? only_chunk() : chunk(rank_));
  }

  End send_to(uint32_t peer, Allow allow) const { return to(peer, allow, static_cast<uint8_t>(lane_)); }
  End receive_from(uint32_t peer) const { return from(peer, Allow::kReference, static_cast<uint8_t>(lane_)); }

  std::span<const uint32_t> local_ranks() const { return hosts_.ranks(host_); }
  std::vector<End> to_local_peers() const {
    std::vector<End> sinks;
    const uint32_t size = hosts_.size(host_);
    for (uint32_t i = 1; i < size; ++i) {
      sinks.push_back(send_to(local_ranks()[(hosts_.number(rank_) + i) % size], result_allow_));
    }
    return sinks;
  }

  /// Calls body(owners) for batches of a host's ranks. In a batch every rank of this host is agent for one
  /// owner.
  template <class Body>
  void each_batch(uint32_t host, const Body& body) const {
    const std::span<const uint32_t> owners = hosts_.ranks(host);
    const size_t batch = local_ranks().size();
    for (size_t first = 0; first < owners.size(); first += batch) {
      body(owners.subspan(first, std::min(batch, owners.size() - first)));
    }
  }
  template <class Body>
  void each_other_host(const Body& body) const {
    for (uint32_t i = 1; i < hosts_.count(); ++i) body((host_ + i) % hosts_.count());
  }

  /// Sends this rank's operands to this host's agents.
  void send_operands(std::span<const uint32_t> owners) {
    for (const uint32_t owner : owners) {
      const uint32_t agent = hosts_.counterpart(host_, owner);
      if (agent == rank_) continue;
      builder_.step(chunk(owner), {input(chunk(owner))}, {send_to(agent, Allow::kReference)});
    }
  }

  void reduce_local(uint32_t owner, std::vector<End> sinks, bool is_complete) {
    const auto operand = [&](uint32_t number) {
      const uint32_t peer = local_ranks()[number];
      return peer == rank_ ? input(chunk(owner)) : receive_from(peer);
    };
    builder_.reduce_in_order(chunk(owner),
                             {.count = hosts_.size(host_),
                              .end = operand,
                              .scratch_first = lane_ * scratch_chunks_,
                              .finish = is_complete},
                             std::move(sinks));
  }

  /// Sends this host's sums of other hosts' blocks to their owners.
  void reduce_for_others() {
    // A host with one rank sends its input. Other hosts send a sum that is in no buffer.
    const Allow allow = hosts_.size(host_) == 1 ? Allow::kReference : Allow::kCopy;
    each_other_host([&](uint32_t host) {
      each_batch(host, [&](std::span<const uint32_t> owners) {
        send_operands(owners);
        for (const uint32_t owner : owners) {
          if (hosts_.counterpart(host_, owner) == rank_) reduce_local(owner, {send_to(owner, allow)}, false);
        }
      });
    });
  }

  /// Completes this rank's block, and sends the block to the output and to all its readers.
  void complete_own() {
    std::vector<End> readers;
    if (collective_ != Collective::kReduceScatter) {
      each_other_host(
          [&](uint32_t host) { readers.push_back(send_to(hosts_.counterpart(host, rank_), result_allow_)); });
      const std::vector<End> peers = to_local_peers();
      readers.insert(readers.end(), peers.begin(), peers.end());
    }
    std::vector<End> sinks = take_readers(readers, kMaxStepSinks - 1);
    sinks.insert(sinks.begin(), own_output());
    if (collective_ == Collective::kAllGather) {
      builder_.step(chunk(rank_), {own_input()}, std::move(sinks));
    } else {
      send_operands(local_ranks());
      reduce_own(std::move(sinks));
    }
    builder_.spread(chunk(rank_), own_output(), readers);
  }

  void reduce_own(std::vector<End> sinks) {
    if (hosts_.count() == 1) return reduce_local(rank_, std::move(sinks), true);
    End own = own_input();
    if (hosts_.size(host_) > 1) {
      own = own_output();
      reduce_local(rank_, {own}, false);
    }
    const auto operand = [&](uint32_t host) {
      return host == host_ ? own : receive_from(hosts_.counterpart(host, rank_));
    };
    builder_.reduce_in_order(
        chunk(rank_),
        {.count = hosts_.count(), .end = operand, .scratch_first = lane_ * scratch_chunks_, .finish = true},
        std::move(sinks));
  }

  /// Receives all other results: an agent receives from the owner and passes the result on; other ranks
  /// receive from their agent.
  void gather() {
    receive(local_ranks());
    each_other_host([&](uint32_t host) {
      each_batch(host, [&](std::span<const uint32_t> owners) {
        for (const uint32_t owner : owners) {
          if (hosts_.counterpart(host_, owner) == rank_) hand_on(owner);
        }
        receive(owners);
      });
    });
  }

  void hand_on(uint32_t owner) {
    std::vector<End> readers = to_local_peers();
    std::vector<End> sinks = take_readers(readers, kMaxStepSinks - 1);
    sinks.insert(sinks.begin(), output(chunk(owner)));
    builder_.step(chunk(owner), {receive_from(owner)}, std::move(sinks));
    builder_.spread(chunk(owner), output(chunk(owner)), readers);
  }

  void receive(std::span<const uint32_t> owners) {
    for (const uint32_t owner : owners) {
      const uint32_t agent = hosts_.counterpart(host_, owner);
      if (agent == rank_) continue;
      builder_.step(chunk(owner), {receive_from(agent)}, {output(chunk(owner))});
    }
  }

  Collective collective_;
  uint32_t rank_;
  Hosts hosts_;
  uint32_t host_;
  uint32_t lanes_;
  uint32_t lane_ = 0;
  uint32_t scratch_chunks_ = 0;  ///< of a lane
  /// Each rank stores as many results for other ranks as it receives from them. If the ranks have sent
  /// operands before, the receivers' exposed buffers are open by then.
  Allow result_allow_;
  Builder builder_;
};

}  // namespace

bool supports_hierarchical(const Request& request, const Facts& facts) {
  return knows_hosts(request, facts) &&
         (!request.reproducible || is_legal(request, hosts_are_canonical(by_groups(request, facts))));
}

bool supports_hierarchical_all_reduce(const Request& request, const Facts& facts) {
  return facts.slots >= kAllReduceSlots && supports_hierarchical(request, facts);
}

/// Hierarchical all-reduce: reduce-scatter inside the hosts, all-reduce between counterparts by direct
/// exchanges, all-gather inside the hosts.
/// Shapes: input and output are [count] of T; in place allowed; the last chunks may be short or empty.
/// Cost: on H hosts of k ranks, 2 latencies inside a host and 2 between hosts. A host sends and receives
/// 2(H-1)/H of the message, each rank 1/k of that. Up to 8 hosts of at most 8 ranks, a rank has 2P + 1 - [H=1
/// or k=1] steps in each lane if its result has 7 readers or fewer.
/// Scratch: as direct one-shot over the ranks of a host, or over the hosts, for each lane.
/// Association: canonical if the hosts are parts of the canonical tree (hosts_are_canonical).
/// Errors: none of its own.
/// Source: the two-level algorithm of Traeff & Hunold, "Decomposing MPI collectives for exploiting multi-lane
/// communication", 2020, with direct exchanges on both levels.
Plan make_hierarchical_all_reduce(const Request& request, const Facts& facts, uint32_t rank) {
  return Hierarchical(request, by_groups(request, facts), rank).make();
}

/// Hierarchical reduce-scatter: reduce-scatter inside the hosts, then between counterparts. Blocks may differ
/// in size.
/// Shapes: input is [P * count], output [count] of T; in place allowed.
/// Cost: 1 latency inside a host and 1 between hosts; a host sends one block for every rank of another host.
/// Scratch: as hierarchical all-reduce.
/// Association: as hierarchical all-reduce.
/// Errors: none of its own.
/// Source: the first half of hierarchical all-reduce.
Plan make_hierarchical_reduce_scatter(const Request& request, const Facts& facts, uint32_t rank) {
  return Hierarchical(request, by_groups(request, facts), rank).make();
}

/// Hierarchical all-gather: all-gather between counterparts, and inside the hosts as blocks arrive. Blocks
/// may differ in size.
/// Shapes: input is [count], output [P * count] of T; in place allowed.
/// Cost: 1 latency between hosts and 1 inside a host; a host sends each of its blocks once to every other
/// host.
/// Scratch: none.
/// Errors: none of its own.
/// Source: the second half of hierarchical all-reduce.
Plan make_hierarchical_all_gather(const Request& request, const Facts& facts, uint32_t rank) {
  return Hierarchical(request, by_groups(request, facts), rank).make();
}

}  // namespace tutti::generators
