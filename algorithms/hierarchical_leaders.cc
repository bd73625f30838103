// Hierarchical through leaders: a leader on each host collects its host's operands. The leaders run a flat
// algorithm, and each leader sends the result to its host's ranks. In each phase two hosts exchange one
// message, for any number of ranks. Good for few bytes.
//
// The leaders' steps come from the flat algorithm's plan for as many ranks as hosts. Peers become leaders,
// and the input becomes the host's sum in scratch.
#include <algorithm>

#include "algorithms/builder.h"
#include "algorithms/generators.h"
#include "algorithms/hosts.h"

namespace tutti::generators {
namespace {

using Make = Plan (*)(const Request& request, const Facts& facts, uint32_t rank);

/// The request that the leaders serve among themselves.
Request between_hosts(const Request& request, const Facts& facts) {
  Request between = request;
  between.rank_count = facts.host_of.empty() ? 1 : facts.host_count;
  between.root = has_root(request.collective) && !facts.host_of.empty() ? facts.host_of[request.root] : 0;
  return between;
}

Facts network(const Facts& facts) {
  return {.can_publish = false,
          .host_count = facts.host_count,
          .cores = facts.cores,
          .slots = facts.slots,
          .slot_bytes = facts.slot_bytes};
}

class Leaders {
 public:
  Leaders(const Request& request, const Facts& facts, uint32_t rank, Make between)
      : collective_(request.collective),
        rank_(rank),
        hosts_(request, facts),
        host_(hosts_.host_of(rank)),
        root_(has_root(request.collective) ? request.root : 0),
        builder_(request, rank) {
    bool is_canonical = hosts_are_canonical(facts);
    if (hosts_.count() > 1) {
      between_ = between(between_hosts(request, facts), network(facts), host_);
      is_canonical = is_canonical && between_.association == PlanAssociation::kCanonical;
    }
    sum_ = between_.scratch_chunks + Builder::tree_scratch_chunks(hosts_.most_ranks());
    builder_.scratch_chunks(collects() ? sum_ + 1 : 0)
        .slots_needed(between_.slots_needed)
        .canonical(is_canonical);
  }

  Plan make() {
    if (rank_ != leader(host_)) {
      // Only the result overwrites the input, so the input may travel by reference.
      const uint32_t ours = leader(host_);
      if (collects()) builder_.step(kAll, {input(kAll)}, {to(ours, Allow::kReference)});
      if (hands_out()) builder_.step(kAll, {from(ours, Allow::kReference)}, {output(kAll)});
    } else if (hosts_.count() == 1) {
      stay();
    } else {
      meet();
    }
    return builder_.take();
  }

 private:
  static constexpr Chunks kAll{0, 1};

  uint32_t leader(uint32_t host) const { return hosts_.counterpart(host, root_); }
  std::span<const uint32_t> members() const { return hosts_.ranks(host_); }
  bool collects() const { return collective_ != Collective::kBroadcast; }
  bool hands_out() const { return collective_ != Collective::kReduce; }

  /// Reduces the host's operands to the sinks.
  void collect(std::vector<End> sinks, bool is_complete) {
    const auto operand = [&](uint32_t number) {
      const uint32_t member = members()[number];
      return member == rank_ ? input(kAll) : from(member, Allow::kReference);
    };
    builder_.reduce_in_order(kAll,
                             {.count = hosts_.size(host_),
                              .end = operand,
                              .scratch_first = between_.scratch_chunks,
                              .finish = is_complete},
                             std::move(sinks));
  }

  /// Adds as many readers of the result to `sinks` as fit, and returns the remaining readers.
  std::vector<End> add_readers(std::vector<End>& sinks) const {
    std::vector<End> readers;
    for (const uint32_t member : members()) {
      if (hands_out() && member != rank_) readers.push_back(to(member, Allow::kReference));
    }
    const std::vector<End> first = take_readers(readers, kMaxStepSinks - sinks.size());
    sinks.insert(sinks.end(), first.begin(), first.end());
    return readers;
  }

  /// With one host, the leader alone does the work.
  void stay() {
    std::vector<End> sinks{output(kAll)};
    const std::vector<End> later = add_readers(sinks);
    if (collects()) {
      collect(std::move(sinks), true);
    } else {
      builder_.step(kAll, {input(kAll)}, std::move(sinks));
    }
    builder_.spread(kAll, output(kAll), later);
  }

  /// Runs the leaders' algorithm on the host's sum.
  void meet() {
    const bool has_sum = collects() && members().size() > 1;
    if (has_sum) collect({scratch({sum_, 1})}, false);
    std::vector<Step> steps = std::move(between_.lanes.at(0).steps);
    for (Step& step : steps) move_to_leaders(step, has_sum);
    // The last step moves the result.
    const std::vector<End> later = add_readers(steps.back().sinks);
    for (Step& step : steps) {
      const Chunks data{step.first_chunk, step.chunk_count};
      if (step.finish) {
        builder_.finish(data, std::move(step.sources), std::move(step.sinks));
      } else {
        builder_.step(data, std::move(step.sources), std::move(step.sinks));
      }
    }
    builder_.spread(kAll, output(kAll), later);
  }

  void move_to_leaders(Step& step, bool has_sum) const {
    for (End& source : step.sources) {
      if (source.kind == EndKind::kLink) source.peer = leader(source.peer);
      if (source.kind == EndKind::kInput && has_sum) source = scratch({sum_, 1});
    }
    // The next round overwrites scratch.
    const bool copies_sum = step.sources.size() == 1 && step.sources[0].kind == EndKind::kScratch;
    for (End& sink : step.sinks) {
      if (sink.kind != EndKind::kLink) continue;
      sink.peer = leader(sink.peer);
      if (copies_sum) sink.reference_ok = sink.direct_write_ok = false;
    }
  }

  Collective collective_;
  uint32_t rank_;
  Hosts hosts_;
  uint32_t host_;
  uint32_t root_;
  Plan between_;
  uint32_t sum_ = 0;  ///< the scratch chunk of the host's sum
  Builder builder_;
};

/// The leaders' flat all-reduce: one phase if one step can reduce all their messages.
Plan make_between_all_reduce(const Request& request, const Facts& facts, uint32_t host) {
  const bool one_phase =
      request.rank_count <= kMaxStepSources || !supports_recursive_doubling(request, facts);
  return (one_phase ? make_direct_one_shot : make_recursive_doubling_all_reduce)(request, facts, host);
}

Plan make_between_barrier(const Request& request, const Facts& facts, uint32_t host) {
  const bool one_phase = request.rank_count <= kMaxStepSources;
  return (one_phase ? make_direct_one_shot : make_dissemination_barrier)(request, facts, host);
}

}  // namespace

/// Hierarchical all-reduce through leaders: a direct one-shot among up to 8 leaders, else recursive doubling.
/// Shapes: input and output are [count] of T; in place allowed.
/// Cost: 2 latencies inside a host and 1 between hosts (above 8 hosts log2 H, and as recursive doubling). A
/// leader sends H-1 messages to other hosts (log2 H above 8 hosts). Up to 8 hosts of at most 8 ranks, a
/// leader has 3 steps and other ranks 2.
/// Scratch: the host's sum; as direct one-shot over the ranks of a host and over the hosts.
/// Association: canonical if the hosts are parts of the canonical tree (hosts_are_canonical) and the leaders'
/// algorithm is canonical.
/// Errors: none of its own.
/// Source: the leader-based collectives of Traeff, "Improved MPI all-to-all communication on a Giganet SMP
/// cluster", 2002, and of MPICH and Open MPI.
Plan make_hierarchical_leaders_all_reduce(const Request& request, const Facts& facts, uint32_t rank) {
  return Leaders(request, by_groups(request, facts), rank, make_between_all_reduce).make();
}

/// Hierarchical barrier: as the all-reduce, but with dissemination above 8 hosts.
/// Shapes: input and output are [1] of uint8; in place allowed.
/// Cost: 2 latencies inside a host and 1 between hosts (above 8 hosts ceil(log2 H)).
/// Scratch: as the all-reduce.
/// Errors: none of its own.
/// Source: as the all-reduce.
Plan make_hierarchical_barrier(const Request& request, const Facts& facts, uint32_t rank) {
  return Leaders(request, by_groups(request, facts), rank, make_between_barrier).make();
}

/// Hierarchical reduce with a binomial tree of leaders. The root leads its host.
/// Shapes: input and (at the root) output are [count] of T; in place at the root allowed.
/// Cost: 1 latency inside a host and floor(log2 H) between hosts; every host but the root's sends the message
/// once.
/// Scratch: the host's sum; as direct one-shot over the ranks of a host; as binomial reduce.
/// Association: canonical if the hosts are parts of the canonical tree (hosts_are_canonical).
/// Errors: none of its own.
/// Source: as the all-reduce.
Plan make_hierarchical_binomial_reduce(const Request& request, const Facts& facts, uint32_t rank) {
  return Leaders(request, by_groups(request, facts), rank, make_binomial_reduce).make();
}

/// Hierarchical broadcast with a binomial tree of leaders. The root leads its host.
/// Shapes: input (at the root) and output are [count] of T; in place at the root allowed.
/// Cost: floor(log2 H) latencies between hosts and 1 inside a host. Every host but the root's receives the
/// message once, and the root's host sends it ceil(log2 H) times.
/// Scratch: none.
/// Errors: none of its own.
/// Source: as the all-reduce.
Plan make_hierarchical_binomial_broadcast(const Request& request, const Facts& facts, uint32_t rank) {
  return Leaders(request, by_groups(request, facts), rank, make_binomial_broadcast).make();
}

}  // namespace tutti::generators
