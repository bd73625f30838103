// What plans cost: steps, bytes and latencies of each algorithm are what its docstring says.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <numeric>

#include "algorithms/algorithm.h"
#include "algorithms/choice.h"
#include "plan/graph.h"
#include "plan/price.h"
#include "tests/algorithms/make_plans.h"
#include "tests/support/placements.h"

namespace tutti {
namespace {

struct Cost {
  size_t steps = 0;        ///< of the rank with most
  size_t sent_chunks = 0;  ///< of the rank with most; a publication counts once
  size_t latencies = 0;    ///< messages on the longest chain of messages
};

Cost measure(const std::vector<Plan>& plans) {
  Cost cost;
  for (const Plan& plan : plans) {
    size_t steps = 0;
    size_t sent = 0;
    for (const Lane& lane : plan.lanes) {
      steps += lane.steps.size();
      for (const Step& step : lane.steps) {
        const auto links = std::count_if(step.sinks.begin(), step.sinks.end(), [](const End& sink) {
          return sink.kind == EndKind::kLink || sink.kind == EndKind::kPublish;
        });
        sent += static_cast<size_t>(links) * step.chunk_count;
      }
    }
    cost.steps = std::max(cost.steps, steps);
    cost.sent_chunks = std::max(cost.sent_chunks, sent);
  }
  const auto graph = PlanGraph::build(plans);
  EXPECT_TRUE(graph.is_ok()) << graph.status().text();
  if (!graph) return cost;
  std::vector<size_t> depth(graph->events().size(), 0);
  for (const uint32_t event : graph->order()) {
    if (event > graph->lane_begin(graph->events()[event].lane)) depth[event] = depth[event - 1];
    for (const GraphMessage& message : graph->received(event))
      depth[event] = std::max(depth[event], depth[message.sender] + 1);
    cost.latencies = std::max(cost.latencies, depth[event]);
  }
  return cost;
}

uint32_t log2_up(uint32_t p) {
  return static_cast<uint32_t>(std::bit_width(p - 1));
}

using Formula = std::function<size_t(uint32_t p)>;

struct Row {
  Collective collective;
  const char* algorithm;
  std::vector<uint32_t> ranks;
  // Null: the docstring gives no formula for these rank counts.
  Formula steps;
  Formula sent_chunks;  ///< messages where a chunk is the message, blocks where it is a block
  Formula latencies;
  Facts facts = {};
};

const Formula kOne = [](uint32_t) { return 1; };
const Formula kTwo = [](uint32_t) { return 2; };
const Formula kRanks = [](uint32_t p) { return p; };
const Formula kOthers = [](uint32_t p) { return p - 1; };
const Formula kLog = [](uint32_t p) { return log2_up(p); };
const Formula kTwiceLog = [](uint32_t p) { return 2 * log2_up(p); };
const Formula kTwiceOthers = [](uint32_t p) { return 2 * (p - 1); };
const Formula kTwiceLessOne = [](uint32_t p) { return 2 * p - 1; };
const Formula kTwice = [](uint32_t p) { return 2 * p; };
const Formula kRanksPlusOne = [](uint32_t p) { return p + 1; };
const Formula kLogPlusOne = [](uint32_t p) { return log2_up(p) + 1; };
// The depth of a binomial tree.
const Formula kLogDown = [](uint32_t p) { return static_cast<size_t>(std::bit_width(p) - 1); };

const std::vector<uint32_t> kAnyRanks = {2, 3, 5, 8, 13};
const std::vector<uint32_t> kFewRanks = {2, 3, 5, 8};
const std::vector<uint32_t> kPowers = {2, 4, 8, 16};
constexpr Facts kNetwork = {.can_publish = false};
constexpr Facts kSwitch = {.can_publish = false, .can_multicast = true};

std::vector<Row> reduction_rows() {
  using enum Collective;
  return {
      {kAllReduce, "direct_one_shot", kFewRanks, kTwo, kOne, kOne},
      {kAllReduce, "direct_one_shot", kFewRanks, kTwo, kOthers, kOne, kNetwork},
      {kAllReduce,
       "direct_one_shot",
       {10, 16, 20, 64},
       [](uint32_t p) { return 2 + (p + 7) / 8; },
       kOne,
       kOne},
      {kAllReduce, "direct_two_shot", kFewRanks, kTwiceLessOne, kRanks, kTwo},
      {kAllReduce, "direct_two_shot", kFewRanks, kTwiceLessOne, kTwiceOthers, kTwo, kNetwork},
      {kAllReduce, "multicast", kAnyRanks, kTwice, kRanksPlusOne, kTwo, kSwitch},
      {kAllReduce, "ring", kAnyRanks, kTwiceLessOne, kTwiceOthers, kTwiceOthers},
      {kAllReduce, "recursive_doubling", kPowers, kLogPlusOne, kLog, kLog},
      {kAllReduce, "recursive_doubling", {3, 6, 12}, kLog, kLog, kLog},
      {kAllReduce, "recursive_doubling", {7, 15, 31}, kLog, kLog, kLogPlusOne},
      {kAllReduce, "recursive_multiplying_3", {3}, kTwo, kTwo, kOne},
      {kAllReduce,
       "recursive_multiplying_3",
       {9},
       [](uint32_t) { return 3; },
       [](uint32_t) { return 4; },
       kTwo},
      {kAllReduce,
       "recursive_multiplying_4",
       {16},
       [](uint32_t) { return 3; },
       [](uint32_t) { return 6; },
       kTwo},
      {kAllReduce,
       "recursive_halving_doubling",
       {4, 8, 16},
       [](uint32_t p) { return 4 * log2_up(p) - 1; },
       kTwiceOthers,
       kTwiceLog},
      {kAllReduce,
       "double_binary_tree",
       {4, 8, 15, 16, 33},
       [](uint32_t) { return 4; },
       [](uint32_t) { return 4; },
       [](uint32_t p) { return 2 * kLogDown(p); }},

      {kReduce, "direct", kFewRanks, kOne, kOne, kOne},
      {kReduce, "multicast", kAnyRanks, kTwo, kOne, kOne, kSwitch},
      {kReduce, "binomial", kAnyRanks, kLog, kOne, kLogDown},
      {kReduce, "chain", kAnyRanks, kOne, kOne, kOthers},

      {kReduceScatter, "direct", kFewRanks, kRanks, kOthers, kOne},
      {kReduceScatter, "multicast", kAnyRanks, kRanksPlusOne, kRanks, kOne, kSwitch},
      {kReduceScatter, "ring", kAnyRanks, kRanks, kOthers, kOthers},
      {kReduceScatter, "recursive_halving", kPowers, kTwiceLog, kOthers, kLog},
  };
}

std::vector<Row> movement_rows() {
  using enum Collective;
  return {
      {kBroadcast, "direct", kAnyRanks, kOne, kOne, kOne},
      {kBroadcast, "direct", kFewRanks, kOne, kOthers, kOne, kNetwork},
      {kBroadcast, "multicast", kAnyRanks, kOne, kOne, kOne, kSwitch},
      {kBroadcast, "binomial", kAnyRanks, kOne, kLog, kLogDown},
      {kBroadcast, "chain", kAnyRanks, kOne, kOne, kOthers},

      {kAllGather, "direct", kAnyRanks, kRanks, kOne, kOne},
      {kAllGather, "multicast", kAnyRanks, kRanks, kOne, kOne, kSwitch},
      {kAllGather, "ring", kAnyRanks, kRanks, kOthers, kOthers},
      {kAllGather, "recursive_doubling", kPowers, kTwiceLog, kOthers, kLog},
      {kAllGather, "bruck", kPowers, nullptr, kOthers, kLog},
      {kAllGather, "bruck", kAnyRanks, nullptr, kOthers, kLog},

      {kAllToAll, "direct", kAnyRanks, kTwiceLessOne, kOthers, kOne},
      {kAllToAll, "pairwise", kPowers, kTwiceLessOne, kOthers, kOthers},
      {kAllToAll, "pairwise", {3, 5, 13}, kTwiceLessOne, kOthers, nullptr},
      {kAllToAll, "bruck", kPowers, nullptr, [](uint32_t p) { return p / 2 * log2_up(p); }, kLog},

      {kGather, "direct", kAnyRanks, kRanks, kOne, kOne},
      {kGather, "binomial", kAnyRanks, nullptr, nullptr, kLogDown},
      {kScatter, "direct", kAnyRanks, kRanks, kOthers, kOne},
      {kScatter, "binomial", kAnyRanks, nullptr, kOthers, kLogDown},

      {kBarrier, "direct", kFewRanks, kTwo, kOne, kOne},
      {kBarrier, "dissemination", kAnyRanks, kLogPlusOne, kLog, kLog},
  };
}

void check(const Row& row) {
  const Algorithm* algorithm = find_algorithm(row.collective, row.algorithm);
  ASSERT_NE(algorithm, nullptr) << row.algorithm;
  for (const uint32_t ranks : row.ranks) {
    const Request request{.collective = row.collective, .rank_count = ranks};
    const std::string name = describe(*algorithm, request);
    ASSERT_TRUE(algorithm->supports(request, row.facts)) << name;
    const Cost cost = measure(make_plans(*algorithm, request, row.facts));
    EXPECT_EQ(cost.steps, row.steps ? row.steps(ranks) : cost.steps) << name;
    EXPECT_EQ(cost.sent_chunks, row.sent_chunks ? row.sent_chunks(ranks) : cost.sent_chunks) << name;
    EXPECT_EQ(cost.latencies, row.latencies ? row.latencies(ranks) : cost.latencies) << name;
  }
}

// Goal: nobody makes an algorithm dearer, or its docstring wrong, without noticing.
TEST(CostTest, ReductionsCostTheStepsBytesAndLatenciesThatTheirDocstringsState) {
  for (const Row& row : reduction_rows()) check(row);
}

TEST(CostTest, MovementsCostTheStepsBytesAndLatenciesThatTheirDocstringsState) {
  for (const Row& row : movement_rows()) check(row);
}

/// What a plan costs where a host's ranks are few steps apart and hosts are far.
struct NetworkCost {
  std::vector<uint64_t> sent_chunks;      ///< by host, to other hosts
  std::vector<uint64_t> received_chunks;  ///< by host, from other hosts
  std::vector<uint64_t> rank_chunks;      ///< by rank, to other hosts
  std::vector<uint64_t> rank_messages;    ///< by rank, to other hosts
  size_t latencies = 0;                   ///< messages between hosts on the longest chain of these
};

NetworkCost measure_network(const std::vector<Plan>& plans, const test::Placement& placement) {
  NetworkCost cost;
  cost.sent_chunks.resize(placement.host_count);
  cost.received_chunks.resize(placement.host_count);
  cost.rank_chunks.resize(placement.rank_count());
  cost.rank_messages.resize(placement.rank_count());
  const auto graph = PlanGraph::build(plans);
  EXPECT_TRUE(graph.is_ok()) << graph.status().text();
  if (!graph) return cost;
  std::vector<size_t> depth(graph->events().size(), 0);
  for (const uint32_t event : graph->order()) {
    const GraphEvent& at = graph->events()[event];
    const uint32_t host = placement.host_of[at.rank];
    if (event > graph->lane_begin(at.lane)) depth[event] = depth[event - 1];
    for (const GraphMessage& message : graph->received(event)) {
      const GraphEvent& sender = graph->events()[message.sender];
      const uint32_t from = placement.host_of[sender.rank];
      depth[event] = std::max(depth[event], depth[message.sender] + (from != host ? 1 : 0));
      if (from == host) continue;
      cost.sent_chunks[from] += at.step->chunk_count;
      cost.received_chunks[host] += at.step->chunk_count;
      cost.rank_chunks[sender.rank] += at.step->chunk_count;
      ++cost.rank_messages[sender.rank];
    }
    cost.latencies = std::max(cost.latencies, depth[event]);
  }
  return cost;
}

const std::vector<test::Placement>& even_placements() {
  static const std::vector<test::Placement> kPlacements = {
      test::place_contiguous({2, 2}),    test::place_contiguous({4, 4}),       test::place_cyclic(2, 4),
      test::place_contiguous({3, 3, 3}), test::place_contiguous({1, 1, 1, 1}), test::place_cyclic(8, 8)};
  return kPlacements;
}

NetworkCost measure_hierarchical(Collective collective, const char* name, const test::Placement& placement) {
  const Request request{.collective = collective, .rank_count = placement.rank_count(), .root = 1};
  const Algorithm* algorithm = find_algorithm(collective, name);
  EXPECT_NE(algorithm, nullptr) << name;
  if (algorithm == nullptr) return {};
  return measure_network(make_plans(*algorithm, request, placement.facts()), placement);
}

uint64_t sum(const std::vector<uint64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), uint64_t{0});
}

// Goal: each byte crosses the network only as often as it must, all ranks of a host share that, and the
// network's latency is paid as seldom as can be. Chunks: of an all_reduce a P-th of the message, else a
// block.
TEST(CostTest, HierarchicalAlgorithmsSendNoMoreOverTheNetworkThanTheyMust) {
  using enum Collective;
  for (const test::Placement& placement : even_placements()) {
    const uint64_t hosts = placement.host_count;
    const uint64_t ranks = placement.rank_count() / hosts;
    const NetworkCost all_reduce = measure_hierarchical(kAllReduce, "hierarchical", placement);
    // 2n(H-1)/H of a host, with n of Hk chunks; a k-th of that of a rank.
    EXPECT_EQ(all_reduce.sent_chunks, std::vector<uint64_t>(hosts, 2 * ranks * (hosts - 1)))
        << placement.name;
    EXPECT_EQ(all_reduce.received_chunks, all_reduce.sent_chunks) << placement.name;
    EXPECT_EQ(all_reduce.rank_chunks, std::vector<uint64_t>(hosts * ranks, 2 * (hosts - 1)))
        << placement.name;
    EXPECT_EQ(all_reduce.latencies, 2u) << placement.name;
    for (const auto& half : {measure_hierarchical(kReduceScatter, "hierarchical", placement),
                             measure_hierarchical(kAllGather, "hierarchical", placement)}) {
      EXPECT_EQ(half.sent_chunks, std::vector<uint64_t>(hosts, ranks * (hosts - 1))) << placement.name;
      EXPECT_EQ(half.rank_chunks, std::vector<uint64_t>(hosts * ranks, hosts - 1)) << placement.name;
      EXPECT_EQ(half.latencies, 1u) << placement.name;
    }
  }
}

TEST(CostTest, HierarchicalAlgorithmsOfUnevenHostsSendNoMoreOverTheNetworkThanTheyMust) {
  using enum Collective;
  for (const test::Placement& placement : test::uneven_placements()) {
    const uint64_t hosts = placement.host_count;
    std::vector<uint64_t> ranks(hosts, 0);
    for (const uint32_t host : placement.host_of) ++ranks[host];
    const NetworkCost scatter = measure_hierarchical(kReduceScatter, "hierarchical", placement);
    const NetworkCost gather = measure_hierarchical(kAllGather, "hierarchical", placement);
    const NetworkCost all_reduce = measure_hierarchical(kAllReduce, "hierarchical", placement);
    for (uint32_t host = 0; host < hosts; ++host) {
      EXPECT_EQ(scatter.sent_chunks[host], placement.rank_count() - ranks[host]) << placement.name;
      EXPECT_EQ(scatter.received_chunks[host], ranks[host] * (hosts - 1)) << placement.name;
      EXPECT_EQ(gather.sent_chunks[host], ranks[host] * (hosts - 1)) << placement.name;
      EXPECT_EQ(gather.received_chunks[host], placement.rank_count() - ranks[host]) << placement.name;
      EXPECT_EQ(all_reduce.sent_chunks[host], scatter.sent_chunks[host] + gather.sent_chunks[host])
          << placement.name;
    }
  }
}

// Goal: the farther apart groups are, the less ranks send between them. Method: 24 ranks in pairs, four pairs
// a host, three hosts; what leaves the hosts, and what leaves the pairs. A chunk is a 24th of the message.
TEST(CostTest, EachLevelPassesOnlySumsToTheNext) {
  for (const bool in_turns : {false, true}) {
    const test::Placement placement = test::place_levels({2, 4, 3}, in_turns);
    const Request request{.collective = Collective::kAllReduce, .rank_count = 24};
    const Algorithm* algorithm = find_algorithm(Collective::kAllReduce, "hierarchical_levels");
    ASSERT_NE(algorithm, nullptr);
    const std::vector<Plan> plans = make_plans(*algorithm, request, placement.facts());
    const NetworkCost hosts = measure_network(plans, placement);
    EXPECT_EQ(hosts.rank_chunks, std::vector<uint64_t>(24, 4));
    EXPECT_EQ(hosts.latencies, 2u);
    test::Placement pairs = placement;
    pairs.host_of = placement.levels[0];
    pairs.host_count = 12;
    const NetworkCost between_pairs = measure_network(plans, pairs);
    EXPECT_EQ(between_pairs.rank_chunks, std::vector<uint64_t>(24, 4 + 2 * 3 * 3));
    // Pairs exchange once for each host, one exchange after the other.
    EXPECT_EQ(between_pairs.latencies, 2u * 3);
  }
}

// Goal: all_to_all between hosts takes one message from each rank to each other host, if the receiver's
// blocks lie next to each other, and no byte more than must travel.
TEST(CostTest, HierarchicalAllToAllSendsFewMessagesBetweenHosts) {
  for (const test::Placement& placement : even_placements()) {
    const uint64_t hosts = placement.host_count;
    const uint64_t ranks = placement.rank_count() / hosts;
    const NetworkCost cost = measure_hierarchical(Collective::kAllToAll, "hierarchical", placement);
    EXPECT_EQ(cost.rank_chunks, std::vector<uint64_t>(hosts * ranks, (hosts - 1) * ranks)) << placement.name;
    EXPECT_EQ(cost.latencies, 1u) << placement.name;
    const bool is_contiguous = placement.name.starts_with("contiguous");
    EXPECT_EQ(cost.rank_messages,
              std::vector<uint64_t>(hosts * ranks, (hosts - 1) * (is_contiguous ? 1 : ranks)))
        << placement.name;
  }
}

TEST(CostTest, LeadersSendOneMessageAPairOfHosts) {
  using enum Collective;
  for (const test::Placement& placement : even_placements()) {
    const uint64_t hosts = placement.host_count;
    const NetworkCost all_reduce = measure_hierarchical(kAllReduce, "hierarchical_leaders", placement);
    EXPECT_EQ(all_reduce.sent_chunks, std::vector<uint64_t>(hosts, hosts - 1)) << placement.name;
    EXPECT_EQ(all_reduce.latencies, 1u) << placement.name;
    EXPECT_EQ(measure_hierarchical(kBarrier, "hierarchical", placement).latencies, 1u) << placement.name;
    for (const Collective collective : {kReduce, kBroadcast}) {
      const NetworkCost binomial = measure_hierarchical(collective, "hierarchical_binomial", placement);
      EXPECT_EQ(sum(binomial.sent_chunks), hosts - 1) << placement.name;
      EXPECT_LE(binomial.latencies, log2_up(placement.host_count)) << placement.name;
      // The message in k pieces, each of which one rank of a host sends on.
      const uint64_t ranks = placement.rank_count() / hosts;
      const NetworkCost chain = measure_hierarchical(collective, "hierarchical_chain", placement);
      EXPECT_EQ(sum(chain.sent_chunks), ranks * (hosts - 1)) << placement.name;
      EXPECT_LE(*std::ranges::max_element(chain.sent_chunks), ranks) << placement.name;
      EXPECT_LE(*std::ranges::max_element(chain.received_chunks), ranks) << placement.name;
      EXPECT_LE(*std::ranges::max_element(chain.rank_chunks), 1u) << placement.name;
      EXPECT_EQ(chain.latencies, hosts - 1) << placement.name;
    }
  }
  // More hosts than one step can reduce: recursive doubling and dissemination.
  const test::Placement many = test::place_contiguous(std::vector<uint32_t>(16, 2));
  EXPECT_EQ(measure_hierarchical(kAllReduce, "hierarchical_leaders", many).latencies, 4u);
  EXPECT_EQ(measure_hierarchical(kBarrier, "hierarchical", many).latencies, 4u);
}

// Goal: on 2 hosts of 4 ranks what the table picks is priced below every flat algorithm for long messages,
// and for no length far above the best of them. (Flat trees over ranks in blocks may be as good for few
// bytes, and prices know no slices.)
TEST(CostTest, HierarchicalBeatsFlatOnTwoHostsOfFourRanks) {
  for (const test::Placement& placement : {test::place_contiguous({4, 4}), test::place_cyclic(2, 4)}) {
    const Facts facts = placement.facts();
    for (const Collective collective :
         {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather, Collective::kReduce,
          Collective::kBroadcast, Collective::kBarrier}) {
      for (uint64_t bytes = 8; bytes <= uint64_t{16} << 20; bytes *= 8) {
        const Request request{.collective = collective, .rank_count = 8, .block_bytes = bytes};
        const auto price = [&](const Algorithm& algorithm) {
          const auto result = price_plans(make_plans(algorithm, request, facts), bytes,
                                          {.cores = 4, .host_of = placement.host_of});
          EXPECT_TRUE(result.is_ok()) << result.status().text();
          return result ? result->microseconds : 0;
        };
        const Algorithm* chosen = ChoiceTable::built_in().choose(request, facts);
        ASSERT_TRUE(test::is_hierarchical(*chosen)) << chosen->name;
        const double most = bytes >= uint64_t{1} << 20 ? 1 : 1.15;
        for (const Algorithm& flat : algorithms()) {
          if (flat.collective != collective || test::is_hierarchical(flat)) continue;
          if (!flat.supports(request, facts)) continue;
          EXPECT_LT(price(*chosen), most * price(flat))
              << describe(flat, request) << ", " << bytes << " bytes, " << placement.name;
        }
      }
    }
  }
}

// Where hosts of one rank wait for each other, one of them used to be priced for ever.
TEST(CostTest, EveryPlanHasAPriceWhereverRanksAre) {
  std::vector<test::Placement> placements = test::uneven_placements();
  placements.insert(placements.end(), even_placements().begin(), even_placements().end());
  placements.push_back(test::place_contiguous({1, 1, 1}));
  for (const test::Placement& placement : placements) {
    if (placement.rank_count() > 16) continue;
    for (const Algorithm& algorithm : algorithms()) {
      for (const uint32_t cores : {1u, 2u, 8u}) {
        const Request request{.collective = algorithm.collective,
                              .rank_count = placement.rank_count(),
                              .root = placement.rank_count() - 1,
                              .block_bytes = 52};
        if (!algorithm.supports(request, placement.facts())) continue;
        const auto price = price_plans(make_plans(algorithm, request, placement.facts()), 52,
                                       {.cores = cores, .host_of = placement.host_of});
        ASSERT_TRUE(price.is_ok()) << describe(algorithm, request) << ": " << price.status().text();
        EXPECT_LT(price->microseconds, 1e5) << describe(algorithm, request) << ", " << placement.name;
      }
    }
  }
}

}  // namespace
}  // namespace tutti
