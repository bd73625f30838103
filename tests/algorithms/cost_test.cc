// What plans cost: steps, bytes and latencies of each algorithm are what its docstring says.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>

#include "algorithms/algorithm.h"
#include "plan/graph.h"
#include "tests/algorithms/make_plans.h"

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
const Formula kLogPlusOne = [](uint32_t p) { return log2_up(p) + 1; };
// The depth of a binomial tree.
const Formula kLogDown = [](uint32_t p) { return static_cast<size_t>(std::bit_width(p) - 1); };

const std::vector<uint32_t> kAnyRanks = {2, 3, 5, 8, 13};
const std::vector<uint32_t> kFewRanks = {2, 3, 5, 8};
const std::vector<uint32_t> kPowers = {2, 4, 8, 16};
constexpr Facts kNetwork = {.can_publish = false};

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
      {kReduce, "binomial", kAnyRanks, kLog, kOne, kLogDown},
      {kReduce, "chain", kAnyRanks, kOne, kOne, kOthers},

      {kReduceScatter, "direct", kFewRanks, kRanks, kOthers, kOne},
      {kReduceScatter, "ring", kAnyRanks, kRanks, kOthers, kOthers},
      {kReduceScatter, "recursive_halving", kPowers, kTwiceLog, kOthers, kLog},
  };
}

std::vector<Row> movement_rows() {
  using enum Collective;
  return {
      {kBroadcast, "direct", kAnyRanks, kOne, kOne, kOne},
      {kBroadcast, "direct", kFewRanks, kOne, kOthers, kOne, kNetwork},
      {kBroadcast, "binomial", kAnyRanks, kOne, kLog, kLogDown},
      {kBroadcast, "chain", kAnyRanks, kOne, kOne, kOthers},

      {kAllGather, "direct", kAnyRanks, kRanks, kOne, kOne},
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

}  // namespace
}  // namespace tutti
