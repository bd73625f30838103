#include "tests/plan/sample_plans.h"

#include <utility>

namespace tutti::test {
namespace {

End buffer(EndKind kind, uint32_t first, uint32_t count) {
  return {.kind = kind, .first_chunk = first, .chunk_count = count};
}

/// The collective's plans with everything but the steps.
PlanSet plans_of(Collective collective, uint32_t rank_count, const std::string& algorithm,
                 PlanAssociation association) {
  PlanSet plans = empty_plans(collective, rank_count, algorithm);
  for (Plan& plan : plans) plan.association = association;
  return plans;
}

std::vector<Step>& steps(Plan& plan, size_t lane = 0) {
  return plan.lanes[lane].steps;
}

/// Operands of all ranks in rank order: `own` at `rank`, links from the others.
std::vector<End> in_rank_order(uint32_t rank_count, uint32_t rank, const End& own) {
  std::vector<End> sources;
  for (uint32_t i = 0; i < rank_count; ++i) sources.push_back(i == rank ? own : link(i));
  return sources;
}

}  // namespace

End input(uint32_t first, uint32_t count) {
  return buffer(EndKind::kInput, first, count);
}
End output(uint32_t first, uint32_t count) {
  return buffer(EndKind::kOutput, first, count);
}
End scratch(uint32_t first, uint32_t count) {
  return buffer(EndKind::kScratch, first, count);
}
End link(uint32_t peer, uint8_t channel) {
  return {.kind = EndKind::kLink, .channel = channel, .peer = peer};
}
End published(uint32_t peer) {
  return link(peer, kPublishChannel);
}
End publish() {
  return {.kind = EndKind::kPublish};
}
End collect() {
  return {.kind = EndKind::kCollect};
}
End contribution(uint32_t collector) {
  return link(collector, kCollectChannel);
}
End ref(End end) {
  end.reference_ok = true;
  return end;
}

Step step(std::vector<End> sources, std::vector<End> sinks, uint32_t first_chunk, uint32_t chunk_count) {
  return {std::move(sources), std::move(sinks), first_chunk, chunk_count, false};
}
Step finish(std::vector<End> sources, std::vector<End> sinks, uint32_t first_chunk, uint32_t chunk_count) {
  return {std::move(sources), std::move(sinks), first_chunk, chunk_count, true};
}

PlanSet empty_plans(Collective collective, uint32_t rank_count, const std::string& algorithm) {
  PlanSet plans(rank_count);
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    plans[rank].algorithm = algorithm;
    plans[rank].collective = collective;
    plans[rank].rank_count = rank_count;
    plans[rank].rank = rank;
    plans[rank].lanes.resize(1);
  }
  return plans;
}

PlanSet ring_all_reduce(uint32_t n) {
  PlanSet plans = plans_of(Collective::kAllReduce, n, "ring", PlanAssociation::kAny);
  for (uint32_t rank = 0; rank < n; ++rank) {
    Plan& plan = plans[rank];
    plan.chunks_per_block = n;
    plan.slots_needed = 2;
    const uint32_t next = (rank + 1) % n;
    const uint32_t previous = (rank + n - 1) % n;
    const auto chunk = [&](uint32_t back) { return (rank + 2 * n - back) % n; };
    steps(plan).push_back(step({input(chunk(0))}, {ref(link(next))}, chunk(0)));
    for (uint32_t i = 1; i + 1 < n; ++i) {
      steps(plan).push_back(step({link(previous), input(chunk(i))}, {link(next)}, chunk(i)));
    }
    steps(plan).push_back(
        finish({link(previous), input(chunk(n - 1))}, {output(chunk(n - 1)), ref(link(next))}, chunk(n - 1)));
    for (uint32_t i = 0; i + 2 < n; ++i) {
      steps(plan).push_back(step({link(previous)}, {output(chunk(i)), ref(link(next))}, chunk(i)));
    }
    steps(plan).push_back(step({link(previous)}, {output(chunk(n - 2))}, chunk(n - 2)));
  }
  return plans;
}

PlanSet one_shot_all_reduce(uint32_t n) {
  PlanSet plans = plans_of(Collective::kAllReduce, n, "one_shot", PlanAssociation::kCanonical);
  for (uint32_t rank = 0; rank < n; ++rank) {
    std::vector<End> sources;
    for (uint32_t i = 0; i < n; ++i) sources.push_back(i == rank ? input(0) : published(i));
    steps(plans[rank]).push_back(step({input(0)}, {publish()}, 0));
    steps(plans[rank]).push_back(finish(sources, {output(0)}, 0));
  }
  return plans;
}

PlanSet collecting_all_reduce(uint32_t n) {
  PlanSet plans = plans_of(Collective::kAllReduce, n, "collecting", PlanAssociation::kAny);
  for (uint32_t rank = 0; rank < n; ++rank) {
    plans[rank].chunks_per_block = n;
    std::vector<Step>& own = steps(plans[rank]);
    for (uint32_t q = 0; q < n; ++q) own.push_back(step({input(q)}, {contribution(q)}, q));
    own.push_back(finish({collect()}, {output(rank), publish()}, rank));
    for (uint32_t q = 0; q < n; ++q) {
      if (q != rank) own.push_back(step({published(q)}, {output(q)}, q));
    }
  }
  return plans;
}

PlanSet doubling_all_reduce(uint32_t n) {
  PlanSet plans = plans_of(Collective::kAllReduce, n, "doubling", PlanAssociation::kCanonical);
  for (uint32_t rank = 0; rank < n; ++rank) {
    Plan& plan = plans[rank];
    plan.scratch_chunks = 1;
    for (uint32_t distance = 1; distance < n; distance *= 2) {
      const uint32_t peer = rank ^ distance;
      const End own = distance == 1 ? input(0) : scratch(0);
      steps(plan).push_back(step({own}, {link(peer)}, 0));
      std::vector<End> sources = rank < peer ? std::vector{own, link(peer)} : std::vector{link(peer), own};
      const bool last = distance * 2 == n;
      steps(plan).push_back(last ? finish(sources, {output(0)}, 0) : step(sources, {scratch(0)}, 0));
    }
  }
  return plans;
}

PlanSet two_lane_all_gather(uint32_t n) {
  PlanSet plans = plans_of(Collective::kAllGather, n, "two_lanes", PlanAssociation::kNone);
  for (uint32_t rank = 0; rank < n; ++rank) {
    Plan& plan = plans[rank];
    plan.chunks_per_block = 2;
    plan.slots_needed = 2;
    plan.lanes.resize(2);
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t ahead = half == 0 ? 1 : n - 1;
      const uint32_t to = (rank + ahead) % n;
      const uint32_t from = (rank + n - ahead) % n;
      const auto channel = static_cast<uint8_t>(half);
      const uint32_t own = rank * 2 + half;
      steps(plan, half).push_back(step({input(half)}, {output(own), ref(link(to, channel))}, own));
      for (uint32_t i = 1; i < n; ++i) {
        const uint32_t chunk = (rank + i * (n - ahead)) % n * 2 + half;
        std::vector<End> sinks{output(chunk)};
        if (i + 1 < n) sinks.push_back(ref(link(to, channel)));
        steps(plan, half).push_back(step({link(from, channel)}, sinks, chunk));
      }
    }
  }
  return plans;
}

PlanSet pairwise_all_to_all(uint32_t n) {
  PlanSet plans = plans_of(Collective::kAllToAll, n, "pairwise", PlanAssociation::kNone);
  for (uint32_t rank = 0; rank < n; ++rank) {
    steps(plans[rank]).push_back(step({input(rank)}, {output(rank)}, rank));
    for (uint32_t i = 1; i < n; ++i) {
      const uint32_t to = (rank + i) % n;
      const uint32_t from = (rank + n - i) % n;
      steps(plans[rank]).push_back(step({input(to)}, {ref(link(to))}, to));
      steps(plans[rank]).push_back(step({link(from)}, {output(from)}, from));
    }
  }
  return plans;
}

PlanSet chain_broadcast(uint32_t n, uint32_t root, uint32_t chunks) {
  PlanSet plans = plans_of(Collective::kBroadcast, n, "chain", PlanAssociation::kNone);
  for (uint32_t rank = 0; rank < n; ++rank) {
    Plan& plan = plans[rank];
    plan.root = root;
    plan.chunks_per_block = chunks;
    const uint32_t position = (rank + n - root) % n;
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      std::vector<End> sinks{output(chunk)};
      if (position + 1 < n) sinks.push_back(ref(link((rank + 1) % n)));
      const End source = position == 0 ? input(chunk) : link((rank + n - 1) % n);
      steps(plan).push_back(step({source}, sinks, chunk));
    }
  }
  return plans;
}

PlanSet star_reduce(uint32_t n, uint32_t root) {
  PlanSet plans = plans_of(Collective::kReduce, n, "star", PlanAssociation::kCanonical);
  for (uint32_t rank = 0; rank < n; ++rank) {
    plans[rank].root = root;
    steps(plans[rank])
        .push_back(rank == root ? finish(in_rank_order(n, rank, input(0)), {output(0)}, 0)
                                : step({input(0)}, {ref(link(root))}, 0));
  }
  return plans;
}

PlanSet star_scatter(uint32_t n, uint32_t root) {
  PlanSet plans = plans_of(Collective::kScatter, n, "star", PlanAssociation::kNone);
  for (uint32_t rank = 0; rank < n; ++rank) {
    plans[rank].root = root;
    if (rank != root) {
      steps(plans[rank]).push_back(step({link(root)}, {output(0)}, rank));
      continue;
    }
    for (uint32_t to = 0; to < n; ++to) {
      steps(plans[rank]).push_back(step({input(to)}, {to == root ? output(0) : ref(link(to))}, to));
    }
  }
  return plans;
}

PlanSet star_gather(uint32_t n, uint32_t root) {
  PlanSet plans = plans_of(Collective::kGather, n, "star", PlanAssociation::kNone);
  for (uint32_t rank = 0; rank < n; ++rank) {
    plans[rank].root = root;
    if (rank != root) {
      steps(plans[rank]).push_back(step({input(0)}, {ref(link(root))}, rank));
      continue;
    }
    for (uint32_t from = 0; from < n; ++from) {
      steps(plans[rank]).push_back(step({from == root ? input(0) : link(from)}, {output(from)}, from));
    }
  }
  return plans;
}

PlanSet direct_reduce_scatter(uint32_t n) {
  PlanSet plans = plans_of(Collective::kReduceScatter, n, "direct", PlanAssociation::kCanonical);
  for (uint32_t rank = 0; rank < n; ++rank) {
    for (uint32_t i = 1; i < n; ++i) {
      const uint32_t to = (rank + i) % n;
      steps(plans[rank]).push_back(step({input(to)}, {ref(link(to))}, to));
    }
    steps(plans[rank]).push_back(finish(in_rank_order(n, rank, input(rank)), {output(0)}, rank));
  }
  return plans;
}

PlanSet dissemination_barrier(uint32_t n) {
  PlanSet plans = plans_of(Collective::kBarrier, n, "dissemination", PlanAssociation::kNone);
  for (uint32_t rank = 0; rank < n; ++rank) {
    plans[rank].scratch_chunks = 1;
    End own = input(0);
    for (uint32_t distance = 1; distance < n; distance *= 2) {
      const End sink = distance * 2 < n ? scratch(0) : output(0);
      steps(plans[rank]).push_back(step({own}, {link((rank + distance) % n)}, 0));
      steps(plans[rank]).push_back(step({link((rank + n - distance) % n), own}, {sink}, 0));
      own = scratch(0);
    }
  }
  return plans;
}

PlanSet bruck_all_gather(uint32_t n) {
  PlanSet plans = plans_of(Collective::kAllGather, n, "bruck", PlanAssociation::kNone);
  for (uint32_t rank = 0; rank < n; ++rank) {
    Plan& plan = plans[rank];
    plan.scratch_chunks = n;
    plan.slots_needed = n;
    steps(plan).push_back(step({input(0)}, {scratch(0)}, rank));
    for (uint32_t have = 1; have < n; have *= 2) {
      const uint32_t count = have * 2 <= n ? have : n - have;
      const uint32_t to = (rank + n - have) % n;
      steps(plan).push_back(step({scratch(0, count)}, {link(to)}, 0, count));
      steps(plan).push_back(step({link((rank + have) % n)}, {scratch(have, count)}, 0, count));
    }
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t block = (rank + i) % n;
      steps(plan).push_back(step({scratch(i)}, {output(block)}, block));
    }
  }
  return plans;
}

std::vector<NamedPlans> all_samples() {
  std::vector<NamedPlans> samples;
  for (const uint32_t n : {2u, 3u, 4u, 5u, 8u}) {
    const std::string of = " of " + std::to_string(n);
    if (n > 2) samples.push_back({"ring all_reduce" + of, ring_all_reduce(n)});
    samples.push_back({"one-shot all_reduce" + of, one_shot_all_reduce(n)});
    samples.push_back({"collecting all_reduce" + of, collecting_all_reduce(n)});
    if ((n & (n - 1)) == 0) samples.push_back({"doubling all_reduce" + of, doubling_all_reduce(n)});
    samples.push_back({"two-lane all_gather" + of, two_lane_all_gather(n)});
    samples.push_back({"pairwise all_to_all" + of, pairwise_all_to_all(n), false});
    for (const uint32_t root : {0u, n - 1}) {
      const std::string from = of + " root " + std::to_string(root);
      samples.push_back({"chain broadcast" + from, chain_broadcast(n, root, 3)});
      samples.push_back({"star reduce" + from, star_reduce(n, root)});
      samples.push_back({"star scatter" + from, star_scatter(n, root)});
      samples.push_back({"star gather" + from, star_gather(n, root)});
    }
    samples.push_back({"direct reduce_scatter" + of, direct_reduce_scatter(n)});
    samples.push_back({"dissemination barrier" + of, dissemination_barrier(n)});
    samples.push_back({"bruck all_gather" + of, bruck_all_gather(n)});
  }
  return samples;
}

}  // namespace tutti::test
