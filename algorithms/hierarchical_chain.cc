// Hierarchical chain: broadcast and reduce of long messages, cut into as many pieces as the largest host has
// ranks. In a broadcast each piece goes along a chain of hosts, from counterpart to counterpart, and on each
// host from the counterpart to the other ranks. A reduce goes the opposite way. So a host receives and sends
// the message at most once, and its ranks share that work.
//
// A piece's agent on a host is the rank with the piece's number, modulo the host's ranks. Ranks of a host
// take the pieces in one order, in batches in which every rank is agent once.
#include <algorithm>

#include "algorithms/builder.h"
#include "algorithms/generators.h"
#include "algorithms/hosts.h"

namespace tutti::generators {
namespace {

/// Two hosts can keep their order. Three hosts can if the root is on the last host.
bool host_chain_is_canonical(const Request& request, const Facts& facts) {
  if (!hosts_are_canonical(facts)) return false;
  const uint32_t hosts = facts.host_of.empty() ? 1 : facts.host_count;
  return hosts <= 2 || (hosts == 3 && facts.host_of[request.root] == 2);
}

class HostChain {
 public:
  HostChain(const Request& request, const Facts& facts, uint32_t rank)
      : rank_(rank),
        root_(request.root),
        hosts_(request, facts),
        host_(hosts_.host_of(rank)),
        root_host_(hosts_.host_of(root_)),
        pieces_(hosts_.most_ranks()),
        lanes_(lanes_of(request.block_bytes / pieces_, facts)),
        builder_(request, rank) {
    builder_.chunks_per_block(pieces_ * lanes_);
    if (request.collective == Collective::kReduce) {
      scratch_chunks_ = Builder::tree_scratch_chunks(pieces_) + 1;
      builder_.scratch_chunks(scratch_chunks_ * lanes_).canonical(host_chain_is_canonical(request, facts));
    }
  }

  Plan broadcast() {
    each_batch([&](const std::vector<uint32_t>& pieces) {
      for (const uint32_t piece : pieces) {
        // The root sends each piece to its agent.
        if (rank_ == root_ && agent(host_, piece) != rank_)
          hand_on(piece, input(chunk(piece)), {send_to(agent(host_, piece), Allow::kReference)});
      }
      for (const uint32_t piece : pieces) {
        if (agent(host_, piece) == rank_) spread(piece);
      }
      for (const uint32_t piece : pieces) {
        const uint32_t sender = agent(host_, piece);
        if (rank_ != root_ && sender != rank_)
          builder_.step(chunk(piece), {receive_from(sender, Allow::kReference)}, {output(chunk(piece))});
      }
    });
    return builder_.take();
  }

  Plan reduce() {
    each_batch([&](const std::vector<uint32_t>& pieces) {
      for (const uint32_t piece : pieces) {
        const uint32_t reader = agent(host_, piece);
        if (reader != rank_)
          builder_.step(chunk(piece), {input(chunk(piece))}, {send_to(reader, Allow::kReference)});
      }
      for (const uint32_t piece : pieces) {
        if (agent(host_, piece) == rank_) collect(piece);
      }
      for (const uint32_t piece : pieces) {
        const uint32_t sender = agent(host_, piece);
        if (rank_ == root_ && sender != rank_)
          builder_.step(chunk(piece), {receive_from(sender, Allow::kCopy)}, {output(chunk(piece))});
      }
    });
    return builder_.take();
  }

 private:
  Chunks chunk(uint32_t piece) const { return {piece * lanes_ + lane_, 1}; }
  uint32_t agent(uint32_t host, uint32_t piece) const {
    const std::span<const uint32_t> ranks = hosts_.ranks(host);
    return ranks[piece % ranks.size()];
  }
  uint32_t next_host() const { return (host_ + 1) % hosts_.count(); }
  uint32_t previous_host() const { return (host_ + hosts_.count() - 1) % hosts_.count(); }

  End send_to(uint32_t peer, Allow allow) const { return to(peer, allow, static_cast<uint8_t>(lane_)); }
  End receive_from(uint32_t peer, Allow allow) const {
    return from(peer, allow, static_cast<uint8_t>(lane_));
  }

  /// Calls body(pieces) for batches of pieces, in every lane. In a batch every rank of this host is agent for
  /// at most one piece.
  template <class Body>
  void each_batch(const Body& body) {
    for (lane_ = 0; lane_ < lanes_; ++lane_) {
      builder_.next_lane();
      for_each_piece({0, pieces_}, hosts_.size(host_), [&](Chunks batch) {
        std::vector<uint32_t> pieces(batch.count);
        for (uint32_t i = 0; i < batch.count; ++i) pieces[i] = batch.first + i;
        body(pieces);
      });
    }
  }

  void hand_on(uint32_t piece, const End& source, std::vector<End> readers) {
    std::vector<End> sinks = take_readers(readers, kMaxStepSinks - 1);
    sinks.push_back(output(chunk(piece)));
    builder_.step(chunk(piece), {source}, std::move(sinks));
    builder_.spread(chunk(piece), output(chunk(piece)), readers);
  }

  /// Sends a piece of a broadcast to the next host, and to the ranks of this host that do not have it.
  void spread(uint32_t piece) {
    std::vector<End> readers;
    if (next_host() != root_host_) readers.push_back(send_to(agent(next_host(), piece), Allow::kReference));
    for (const uint32_t peer : hosts_.ranks(host_)) {
      if (peer != rank_ && peer != root_) readers.push_back(send_to(peer, Allow::kReference));
    }
    if (rank_ == root_) return hand_on(piece, input(chunk(piece)), std::move(readers));
    const uint32_t sender = host_ == root_host_ ? root_ : agent(previous_host(), piece);
    hand_on(piece, receive_from(sender, Allow::kReference), std::move(readers));
  }

  /// Reduces a piece: this host's sum and the sum of the hosts before it in the chain.
  void collect(uint32_t piece) {
    const bool is_first = host_ == (root_host_ + 1) % hosts_.count();
    const End sum = scratch({(lane_ + 1) * scratch_chunks_ - 1, 1});
    if (is_first) return reduce_local(piece, result(piece), host_ == root_host_);
    reduce_local(piece, sum, false);
    // The chain begins after the root's host, but two hosts keep their order.
    const bool own_first = hosts_.count() == 2 && host_ == 0;
    std::vector<End> operands =
        in_order(own_first, sum, receive_from(agent(previous_host(), piece), Allow::kCopy));
    if (host_ == root_host_) {
      builder_.finish(chunk(piece), std::move(operands), {result(piece)});
    } else {
      builder_.step(chunk(piece), std::move(operands), {result(piece)});
    }
  }

  /// The sink for the sum of all hosts so far.
  End result(uint32_t piece) const {
    if (rank_ == root_) return output(chunk(piece));
    return send_to(host_ == root_host_ ? root_ : agent(next_host(), piece), Allow::kCopy);
  }

  void reduce_local(uint32_t piece, const End& sink, bool is_complete) {
    const auto operand = [&](uint32_t number) {
      const uint32_t peer = hosts_.ranks(host_)[number];
      return peer == rank_ ? input(chunk(piece)) : receive_from(peer, Allow::kReference);
    };
    builder_.reduce_in_order(chunk(piece),
                             {.count = hosts_.size(host_),
                              .end = operand,
                              .scratch_first = lane_ * scratch_chunks_,
                              .finish = is_complete},
                             {sink});
  }

  uint32_t rank_;
  uint32_t root_;
  Hosts hosts_;
  uint32_t host_;
  uint32_t root_host_;
  uint32_t pieces_;
  uint32_t lanes_;
  uint32_t lane_ = 0;
  uint32_t scratch_chunks_ = 0;  ///< of a lane; the last chunk is the host's sum
  Builder builder_;
};

}  // namespace

bool supports_hierarchical_chain_reduce(const Request& request, const Facts& facts) {
  return knows_hosts(request, facts) &&
         (!request.reproducible ||
          is_legal(request, host_chain_is_canonical(request, by_groups(request, facts))));
}

/// Hierarchical chain reduce.
/// Shapes: input and (at the root) output are [count] of T; in place at the root allowed; cut into as many
/// pieces as the largest host has ranks.
/// Cost: 1 latency inside a host, H-1 between hosts and 1 inside the root's host. Every host but the root's
/// sends the message once, and the root's host receives it once. Each of k ranks moves 1/k of the message.
/// Scratch: the host's sum, and as direct one-shot over the ranks of a host, for each lane.
/// Association: canonical if the hosts are parts of the canonical tree (hosts_are_canonical), for two hosts,
/// and for three hosts with the root on the last.
/// Errors: none of its own.
/// Source: the pipeline of Chan et al. 2007, in the lanes of Traeff & Hunold 2020.
Plan make_hierarchical_chain_reduce(const Request& request, const Facts& facts, uint32_t rank) {
  return HostChain(request, by_groups(request, facts), rank).reduce();
}

/// Hierarchical chain broadcast.
/// Shapes: input (at the root) and output are [count] of T; in place at the root allowed; cut into as many
/// pieces as the largest host has ranks.
/// Cost: 1 latency inside the root's host, H-1 between hosts and 1 inside a host. Every host but the last
/// sends the message once, and every host but the root's receives it once. Each of k ranks moves 1/k of the
/// message.
/// Scratch: none.
/// Errors: none of its own.
/// Source: as hierarchical chain reduce.
Plan make_hierarchical_chain_broadcast(const Request& request, const Facts& facts, uint32_t rank) {
  return HostChain(request, by_groups(request, facts), rank).broadcast();
}

}  // namespace tutti::generators
