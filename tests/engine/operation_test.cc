// Goal: however an operation is bound, in one piece or in rounds, slices and chunks, its result is the same,
// and it sends exactly the messages that its geometry asks for. Method: one plan run over links of different
// shapes in the sim transport; the number of messages tells how the engine cut the call. What the messages
// carry is checked by Workload.
#include "engine/operation.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "tests/engine/raw_links.h"
#include "tests/sim/workload.h"
#include "tests/support/failing_allocations.h"
#include "tests/support/placements.h"

namespace tutti::test {
namespace {

struct Shape {
  uint32_t slots;
  uint32_t slot_bytes;
};

RunSpec make_spec(Collective collective, const char* algorithm, uint32_t ranks, uint64_t block_bytes,
                  Shape shape) {
  RunSpec spec;
  spec.algorithm = find_algorithm(collective, algorithm);
  spec.request = {.collective = collective,
                  .rank_count = ranks,
                  .block_bytes = block_bytes,
                  .type = DataType::kUint32,
                  .op = ReduceOp::kSum};
  spec.facts = {.can_publish = false, .slots = shape.slots / 2, .slot_bytes = shape.slot_bytes};
  spec.sim = {.rank_count = ranks, .seed = 11, .slots = shape.slots, .slot_bytes = shape.slot_bytes};
  return spec;
}

/// Runs it; every rank's output. `messages`: how many each rank sent.
std::vector<std::vector<std::byte>> run(const RunSpec& spec, std::vector<uint64_t>* messages = nullptr) {
  SimCluster cluster(spec.sim);
  Workload workload(spec);
  workload.start(cluster);
  const std::vector<Outcome> outcomes = cluster.run([&](uint32_t rank) { workload.on_done(cluster, rank); });
  EXPECT_EQ(workload.failure(), "") << describe(spec);
  EXPECT_TRUE(workload.complete()) << describe(spec) << ": " << describe(outcomes);
  std::vector<std::vector<std::byte>> outputs;
  for (uint32_t rank = 0; rank < spec.request.rank_count; ++rank) {
    outputs.push_back(workload.last_output(rank));
    if (messages != nullptr) messages->push_back(cluster.network().messages_sent(rank));
  }
  return outputs;
}

TEST(OperationTest, TheShortPathAndRoundsOfSlicesGiveTheSameResult) {
  // A slot that holds the whole message takes the short path; small slots take the general one, in many
  // rounds.
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective == Collective::kBarrier) continue;
    const std::string name(algorithm.name);
    for (const uint32_t ranks : {2u, 4u, 5u, 8u}) {
      for (const uint64_t bytes : {1000u, 2000u}) {
        const RunSpec whole = make_spec(algorithm.collective, name.c_str(), ranks, bytes, {16, 16384});
        RunSpec cut = make_spec(algorithm.collective, name.c_str(), ranks, bytes, {4, 128});
        cut.facts = whole.facts;  // the same plans
        if (!algorithm.supports(whole.request, whole.facts)) continue;
        if (algorithm.make(whole.request, whole.facts, 0).slots_needed > 2) continue;
        EXPECT_EQ(run(whole), run(cut)) << describe(whole);
      }
    }
  }
}

TEST(OperationTest, AMessageIsCutIntoSlices) {
  struct Cut {
    uint64_t bytes;
    uint64_t messages;
  };
  for (const Cut& cut :
       {Cut{4, 1}, Cut{56, 1}, Cut{60, 1}, Cut{64, 1}, Cut{68, 2}, Cut{128, 2}, Cut{6400, 100}}) {
    std::vector<uint64_t> messages;
    run(make_spec(Collective::kBroadcast, "direct", 2, cut.bytes, {4, 64}), &messages);
    EXPECT_EQ(messages, (std::vector<uint64_t>{cut.messages, 0})) << cut.bytes << " bytes";
  }
}

TEST(OperationTest, AdjacentChunksTravelAsOnePieceWhereTheyFitIntoOneRound) {
  // Recursive doubling sends 1, then 2 blocks. Two blocks fit into one slot: two messages.
  std::vector<uint64_t> messages;
  run(make_spec(Collective::kAllGather, "recursive_doubling", 4, 64, {8, 128}), &messages);
  EXPECT_EQ(messages, std::vector<uint64_t>(4, 2));
  // Many rounds: each block by itself, 50 slices each.
  messages.clear();
  run(make_spec(Collective::kAllGather, "recursive_doubling", 4, 6400, {8, 128}), &messages);
  EXPECT_EQ(messages, std::vector<uint64_t>(4, 3 * 50));
}

TEST(OperationTest, EmptyChunksSendNothing) {
  // One element on five ranks: four of the five chunks are empty, and nobody sends a message for them.
  std::vector<uint64_t> messages;
  run(make_spec(Collective::kAllReduce, "ring", 5, 4, {8, 128}), &messages);
  uint64_t all = 0;
  for (const uint64_t count : messages) all += count;
  EXPECT_EQ(all, 2u * 4u);
}

TEST(OperationTest, BlocksOfDifferentSizeAreNotMerged) {
  RunSpec spec = make_spec(Collective::kAllGather, "recursive_doubling", 4, 64, {8, 128});
  spec.request.variable_counts = true;
  spec.block_counts = {16, 0, 3, 5};
  std::vector<uint64_t> messages;
  run(spec, &messages);
  // Steps: own block, then two blocks; the empty block of rank 1 is no message.
  EXPECT_EQ(messages, (std::vector<uint64_t>{2, 1, 3, 3}));
}

TEST(OperationTest, AnOperationCanBeRunAgainAndAgain) {
  RunSpec spec = make_spec(Collective::kAllReduce, "ring", 3, 1000, {4, 128});
  spec.iterations = 40;
  run(spec);
  spec.carriage = Carriage::kReference;
  run(spec);
}

// Goal: a short slice is sent before the rank copies it to its own output, and a longer one behind it is
// written to all sinks again. Method: blocks of 1 slice, and of two whole slices and a short one; plans whose
// steps copy the input, and what they have received, to output and link.
TEST(OperationTest, WhatIsSentFirstIsKeptToo) {
  for (const uint64_t bytes : {8u, 1000u, 2000u, 4092u, 4096u, 9000u}) {
    RunSpec direct = make_spec(Collective::kAllGather, "direct", 2, bytes, {16, 4096});
    direct.iterations = 3;
    run(direct);
    RunSpec ring = make_spec(Collective::kAllGather, "ring", 3, bytes, {16, 4096});
    ring.iterations = 3;
    run(ring);
  }
}

/// The operations of all ranks of a plan over raw rings. Each rank has one buffer and runs in place.
class RawRanks {
 public:
  RawRanks(Collective collective, const char* algorithm, uint32_t ranks, uint64_t bytes, Shape shape)
      : network_({.slots = shape.slots, .slot_bytes = shape.slot_bytes}),
        memory_(ranks, std::vector<std::byte>(bytes)) {
    const RunSpec spec = make_spec(collective, algorithm, ranks, bytes, shape);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      links_.push_back(std::make_unique<RawLinks>(network_, rank));
      const Plan plan = spec.algorithm->make(spec.request, spec.facts, rank);
      operations_.push_back(Operation::bind(
          plan, Geometry::uniform(plan, bytes),
          {.type = DataType::kUint32, .slots = shape.slots, .slot_bytes = shape.slot_bytes}, *links_[rank]));
    }
  }
  Operation& start(uint32_t rank, uint16_t signature = 1) {
    operations_[rank]->start({.input = memory_[rank].data(), .output = memory_[rank].data()}, signature);
    return *operations_[rank];
  }
  const std::vector<std::byte>& memory(uint32_t rank) const { return memory_[rank]; }

 private:
  RawNetwork network_;
  std::vector<std::unique_ptr<RawLinks>> links_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::unique_ptr<Operation>> operations_;
};

// Goal: other calls are found on all paths. Method: 8 bytes in cells, 1000 and 2000 in slots, and
// rounds; one poll, and several.
TEST(OperationTest, ACallOfAnotherSignatureIsAMismatchOnAllPaths) {
  struct Case {
    uint64_t bytes;
    Shape shape;
  };
  for (const Case& one :
       {Case{8, {16, 4096}}, Case{1000, {16, 4096}}, Case{2000, {16, 4096}}, Case{1000, {4, 128}}}) {
    for (const uint32_t polls : {1u, 3u}) {
      RawRanks ranks(Collective::kAllReduce, "recursive_doubling", 2, one.bytes, one.shape);
      Operation& first = ranks.start(0, 100);
      Operation& second = ranks.start(1, 101);
      EXPECT_EQ(first.advance(polls), Progress::kMoved) << one.bytes;
      EXPECT_EQ(second.advance(polls), Progress::kMismatch) << one.bytes;
      EXPECT_EQ(second.obstacle().peer, 0u);
      EXPECT_EQ(flag::signature(second.obstacle().word), 100u);
      EXPECT_EQ(flag::signature(second.obstacle().expected), 101u);
      EXPECT_EQ(ranks.memory(1), std::vector<std::byte>(one.bytes));
    }
  }
}

// Goal: a step with two receivers sends to both or to none. Method: a root runs ahead until the ring of the
// reader that reads nothing is full; the other reader gets no more, and the root names the slow one.
TEST(OperationTest, AStepSendsToNobodyUntilAllItsRingsHaveRoom) {
  for (const uint64_t bytes : {8u, 1000u, 2000u}) {
    RawRanks ranks(Collective::kBroadcast, "direct", 3, bytes, {2, 4096});
    Operation* root = nullptr;
    uint32_t calls = 0;
    while ((root = &ranks.start(0))->advance(3) == Progress::kDone) {
      ++calls;
      EXPECT_EQ(ranks.start(1).advance(3), Progress::kDone) << bytes;
    }
    EXPECT_EQ(calls, 2u) << bytes;
    EXPECT_EQ(root->obstacle().peer, 2u);
    EXPECT_TRUE(root->obstacle().sending);
    EXPECT_EQ(ranks.start(1).advance(3), Progress::kBlocked) << bytes;
    EXPECT_EQ(ranks.start(2).advance(3), Progress::kDone) << bytes;
  }
}

TEST(OperationTest, ABlockedOperationNamesPeerStepAndDirection) {
  RawRanks ranks(Collective::kBroadcast, "direct", 2, 640, {2, 64});
  Operation& root = ranks.start(0);
  Operation& reader = ranks.start(1);
  EXPECT_EQ(reader.advance(10), Progress::kBlocked);
  EXPECT_EQ(reader.obstacle().peer, 0u);
  EXPECT_FALSE(reader.obstacle().sending);
  EXPECT_EQ(root.advance(10), Progress::kMoved);
  EXPECT_EQ(root.advance(10), Progress::kBlocked);
  EXPECT_EQ(root.obstacle().peer, 1u);
  EXPECT_TRUE(root.obstacle().sending);
}

/// The call of a rank of two, bound to links that nothing travels on.
std::unique_ptr<Operation> bind_alone(Collective collective, const char* algorithm, uint32_t rank,
                                      uint64_t bytes) {
  RawNetwork network({.slots = 4, .slot_bytes = 64});
  RawLinks links(network, rank);
  const RunSpec spec = make_spec(collective, algorithm, 2, bytes, {4, 64});
  const Plan plan = spec.algorithm->make(spec.request, spec.facts, rank);
  return Operation::bind(plan, Geometry::uniform(plan, bytes),
                         {.type = DataType::kUint32, .slots = 4, .slot_bytes = 64}, links);
}

TEST(OperationTest, KnowsWhetherItReceives) {
  EXPECT_FALSE(bind_alone(Collective::kBroadcast, "direct", 0, 64)->receives());
  EXPECT_TRUE(bind_alone(Collective::kBroadcast, "direct", 1, 64)->receives());
  EXPECT_TRUE(bind_alone(Collective::kAllGather, "direct", 0, 64)->receives());
}

// Goal: what one rank copies in a call that is pulled, for the least time that pulling takes. A root copies
// nothing, but its readers do.
TEST(OperationTest, KnowsHowManyBytesAreCopiedWherePulled) {
  constexpr uint64_t kBytes = 256;
  const auto copied = [](Collective collective, const char* algorithm, uint32_t rank) {
    return bind_alone(collective, algorithm, rank, kBytes)->least_pulled_bytes();
  };
  EXPECT_EQ(copied(Collective::kBroadcast, "direct", 0), kBytes);
  EXPECT_EQ(copied(Collective::kBroadcast, "direct", 1), kBytes);
  EXPECT_EQ(copied(Collective::kAllGather, "direct", 0), kBytes);
  EXPECT_EQ(copied(Collective::kAllReduce, "direct_one_shot", 0), kBytes);
}

// Goal: a call that tries how to write its results begins each time anew, and so is not short: on the short
// path it stayed in one trial for as long as it was repeated.
TEST(OperationTest, CallsWithTrialsOfResultsAreNotShort) {
  RawNetwork network({.slots = 4, .slot_bytes = 1024});
  RawLinks links(network, 0);
  const RunSpec spec = make_spec(Collective::kAllGather, "direct", 2, 512, {4, 1024});
  const Plan plan = spec.algorithm->make(spec.request, spec.facts, 0);
  const auto is_short = [&](uint64_t streaming_bytes) {
    return Operation::bind(
               plan, Geometry::uniform(plan, 512),
               {.message_bytes = 1024, .streaming_bytes = streaming_bytes, .slots = 4, .slot_bytes = 1024},
               links)
        ->is_short();
  };
  EXPECT_TRUE(is_short(1025));
  EXPECT_FALSE(is_short(1024));
}

// Goal: a call that has begun allocates nothing, however it was bound: what a worker's thread threw would end
// the process. Method: two ranks whose slices travel by reference, so that each link notes its first one.
TEST(OperationTest, RunsWithoutMemory) {
  constexpr uint64_t kBytes = 512;
  const Placement apart = place_contiguous({1, 1});
  const BindOptions options{.type = DataType::kUint32, .reference_bytes = 1, .slots = 4, .slot_bytes = 512};
  std::vector<std::byte> sent(kBytes);
  std::vector<std::byte> got(kBytes);
  const auto messages = [&](uint32_t rank) {
    return std::vector<Message>{{.buffer = sent.data(), .bytes = kBytes, .peer = 1 - rank, .sending = true},
                                {.buffer = got.data(), .bytes = kBytes, .peer = 1 - rank}};
  };
  using Bind = std::function<std::unique_ptr<Operation>(uint32_t rank, LinkTable & links)>;
  const Bind by_plan = [&](uint32_t rank, LinkTable& links) {
    const RunSpec spec = make_spec(Collective::kAllToAll, "direct", 2, kBytes / 2, {4, 512});
    const Plan plan = spec.algorithm->make(spec.request, spec.facts, rank);
    auto operation = Operation::bind(plan, Geometry::uniform(plan, kBytes / 2), options, links);
    operation->start({.input = sent.data(), .output = got.data()}, 1);
    return operation;
  };
  const Bind by_messages = [&](uint32_t rank, LinkTable& links) {
    auto operation = Operation::bind_messages(messages(rank), options, links);
    operation->start({}, 0);
    return operation;
  };
  const Bind by_blocks = [&](uint32_t rank, LinkTable& links) {
    const Request request{.collective = Collective::kAllToAll, .rank_count = 2, .variable_counts = true};
    const Plan plan =
        find_algorithm(Collective::kAllToAll, "hierarchical")->make(request, apart.facts(2), rank);
    // These blocks are longer, so they travel as messages.
    auto operation = Operation::bind_blocks(plan, kBytes / 2, options, links);
    operation->set_blocks(messages(rank), 1);
    operation->start({}, 0);
    return operation;
  };
  for (const Bind& bind : {by_plan, by_messages, by_blocks}) {
    RawNetwork network({.slots = 4, .slot_bytes = 512});
    RawLinks links[2] = {RawLinks(network, 0), RawLinks(network, 1)};
    const std::unique_ptr<Operation> operations[2] = {bind(0, links[0]), bind(1, links[1])};
    Progress ends[2] = {};
    {
      const FailingAllocations shortage(0, UINT64_MAX);
      for (int turn = 0; turn < 100; ++turn) ends[turn % 2] = operations[turn % 2]->advance(1);
    }
    EXPECT_EQ(ends[0], Progress::kDone);
    EXPECT_EQ(ends[1], Progress::kDone);
  }
}

}  // namespace
}  // namespace tutti::test
