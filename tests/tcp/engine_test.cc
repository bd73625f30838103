// Goal: the engine's results over TCP connections are those of the definition, for every collective and
// algorithm. Method: the workload of the simulated tests, between 2 to 4 ranks of one thread that are joined
// by sockets.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/clock.h"
#include "tests/sim/workload.h"
#include "tests/support/scope.h"
#include "tests/tcp/connection_pair.h"

namespace tutti::test {
namespace {

/// One rank's sides, by peer.
class ConnectionLinks final : public LinkTable {
 public:
  SendLink* send_link(uint32_t peer, uint32_t channel) override { return &sides.at(peer)->send(channel); }
  RecvLink* recv_link(uint32_t peer, uint32_t channel) override { return &sides.at(peer)->recv(channel); }
  SendLink* publish_link() override { return nullptr; }
  RecvLink* published_by(uint32_t) override { return nullptr; }

  std::map<uint32_t, std::unique_ptr<Side>> sides;
};

class ConnectionCluster final : public RankSet {
 public:
  ConnectionCluster(const SimOptions& options, Wire wire, uint32_t connections)
      : random_(options.seed), links_(options.rank_count), ranks_(options.rank_count) {
    const RingShape shape{.slots = options.slots, .slot_bytes = options.slot_bytes};
    for (uint32_t low = 0; low < options.rank_count; ++low) {
      for (uint32_t high = low + 1; high < options.rank_count; ++high) {
        StreamPair streams = connect_streams(wire, connections);
        for (const auto& [rank, peer, end] : {std::array{low, high, 0u}, std::array{high, low, 1u}}) {
          auto side = std::make_unique<Side>(peer, shape, kLinkChannels, 0);
          side->connect(std::move(streams.ends[end]), {});
          links_[rank].sides[peer] = std::move(side);
        }
      }
    }
  }

  LinkTable& links(uint32_t rank) override { return links_[rank]; }
  void set_operation(uint32_t rank, std::unique_ptr<Operation> operation) override {
    ranks_[rank] = {.operation = std::move(operation)};
  }
  Operation& operation(uint32_t rank) override { return *ranks_[rank].operation; }
  void restart(uint32_t rank) override { ranks_[rank].done = false; }
  bool has_begun(uint32_t rank) const override { return ranks_[rank].begun; }

  /// Runs until all ranks are done; what went wrong, or empty.
  std::string run(Workload& workload) {
    const uint64_t deadline_ns = deadline_after_ms(60'000);
    for (uint64_t idle = 0; !workload.complete() && workload.failure().empty();) {
      const auto rank = static_cast<uint32_t>(random_.below(ranks_.size()));
      idle = take_turn(rank, workload) ? 0 : idle + 1;
      if (idle > 1000 && now_ns() > deadline_ns) return "nothing happens any more";
      for (const auto& [peer, side] : links_[rank].sides) {
        if (!side->connection().status().is_ok()) return std::string(side->connection().status().text());
      }
    }
    return workload.failure();
  }

 private:
  struct Rank {
    std::unique_ptr<Operation> operation;
    bool begun = false;
    bool done = false;
  };

  /// What a blocking call does between two looks: the engine, then the connections. It returns when all is
  /// drained.
  bool take_turn(uint32_t number, Workload& workload) {
    Rank& rank = ranks_[number];
    if (rank.done) return false;  // it computes, and connections nothing
    rank.begun = true;
    const Progress progress = rank.operation->advance(1);
    bool moved = progress == Progress::kMoved;
    bool drained = true;
    for (const auto& [peer, side] : links_[number].sides) {
      moved |= side->connection().advance();
      drained = drained && side->connection().drained();
    }
    if (progress != Progress::kDone || !drained) return moved;
    rank.done = true;
    workload.on_done(*this, number);
    return true;
  }

  SimRandom random_;
  std::vector<ConnectionLinks> links_;
  std::vector<Rank> ranks_;
};

struct Case {
  Wire wire;
  uint32_t connections;
  uint64_t block_bytes;
  uint32_t slot_bytes;
  Carriage carriage;
};

std::string run_case(const Algorithm& algorithm, uint32_t ranks, const Case& at) {
  RunSpec spec;
  spec.algorithm = &algorithm;
  spec.request = {.collective = algorithm.collective,
                  .rank_count = ranks,
                  .root = ranks - 1,
                  .block_bytes = algorithm.collective == Collective::kBarrier ? 4 : at.block_bytes,
                  .type = DataType::kUint32,
                  .op = ReduceOp::kSum};
  spec.facts = {.can_publish = false, .slots = 4, .slot_bytes = at.slot_bytes};
  if (is_hierarchical(algorithm)) {
    // The first host has the odd rank.
    spec.placement = std::make_shared<const Placement>(place_contiguous({ranks - ranks / 2, ranks / 2}));
    spec.facts.host_count = spec.placement->host_count;
    spec.facts.host_of = spec.placement->host_of;
  }
  spec.sim = {.rank_count = ranks, .seed = 5 + ranks, .slots = 8, .slot_bytes = at.slot_bytes};
  spec.carriage = at.carriage;
  spec.iterations = 4;
  if (!algorithm.supports(spec.request, spec.facts)) return {};
  ConnectionCluster cluster(spec.sim, at.wire, at.connections);
  Workload workload(spec);
  workload.start(cluster);
  const std::string failure = cluster.run(workload);
  return failure.empty() ? failure : describe(spec) + ": " + failure;
}

TEST(TcpEngineTest, EveryAlgorithmGivesTheRightResultOverConnections) {
  const Case cases[] = {
      {Wire::kUnix, 1, 8, 1024, Carriage::kSlot},
      {Wire::kUnix, 2, 30'000, 1024, Carriage::kSlot},
      {Wire::kUnix, 1, 30'000, 1024, Carriage::kReference},
      {Wire::kLoopback, 2, 200'000, 16384, Carriage::kReference},
  };
  for (const Algorithm& algorithm : algorithms()) {
    for (const uint32_t ranks : {2u, 3u, 4u}) {
      for (const Case& at : cases) {
        if (!full_run() && ranks == 3 && at.wire == Wire::kLoopback) continue;
        ASSERT_EQ(run_case(algorithm, ranks, at), "");
      }
    }
  }
}

/// Two ranks of one operation, joined by two connections; rank 0 is ahead.
class StraightTest : public testing::Test {
 protected:
  StraightTest() {
    StreamPair streams = connect_streams(Wire::kUnix, 2);
    for (uint32_t rank = 0; rank < 2; ++rank) {
      auto side = std::make_unique<Side>(1 - rank, kShape, kLinkChannels, 0);
      side->connect(std::move(streams.ends[rank]), {});
      links_[rank].sides[1 - rank] = std::move(side);
    }
  }

  void bind(Collective collective, uint64_t reference_bytes) {
    const Request request{
        .collective = collective, .rank_count = 2, .block_bytes = kBytes, .type = DataType::kUint8};
    const Algorithm* algorithm = find_algorithm(collective, "direct");
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const Plan plan = algorithm->make(request, {.can_publish = false}, rank);
      operations_[rank] = Operation::bind(plan, Geometry::uniform(plan, kBytes),
                                          {.type = DataType::kUint8,
                                           .reference_bytes = reference_bytes,
                                           .slots = kShape.slots,
                                           .slot_bytes = kShape.slot_bytes},
                                          links_[rank]);
    }
  }

  /// Runs both to their ends, rank 0 as far ahead as it may.
  void run() {
    EXPECT_NE(operations_[1]->advance(1), Progress::kDone) << "it makes its offer";
    int done = 0;
    for (int turn = 0; done < 2; ++turn) {
      ASSERT_LT(turn, 100'000);
      for (bool moved = true; moved;) {
        moved = operations_[0]->advance(1) == Progress::kMoved;
        moved |= links_[0].sides[1]->connection().advance();
        moved |= links_[1].sides[0]->connection().advance();
      }
      done = 0;
      for (const auto& operation : operations_) done += operation->advance(1) == Progress::kDone ? 1 : 0;
    }
  }
  /// Rank 1's.
  void expect_untouched_slots(uint32_t channel) {
    const std::byte* slots = links_[1].sides[0]->recv(channel).slots;
    EXPECT_EQ(Bytes(slots, slots + size_t{kShape.slots} * kShape.slot_bytes),
              Bytes(size_t{kShape.slots} * kShape.slot_bytes));
  }
  static Bytes concatenated(const Bytes& first, const Bytes& second) {
    Bytes both = first;
    both.insert(both.end(), second.begin(), second.end());
    return both;
  }

  static constexpr RingShape kShape{.slots = 8, .slot_bytes = 1024};
  static constexpr uint64_t kBytes = 50'000;
  ConnectionLinks links_[2];
  std::unique_ptr<Operation> operations_[2];
  Bytes block_[4] = {message_bytes(3, 0, 0, 0, kBytes), message_bytes(3, 0, 0, 1, kBytes),
                     message_bytes(3, 1, 0, 0, kBytes), message_bytes(3, 1, 0, 1, kBytes)};
};

TEST_F(StraightTest, AMessageIsDeliveredIntoItsBuffer) {
  const BindOptions options{.slots = kShape.slots, .slot_bytes = kShape.slot_bytes};
  Bytes got(kBytes);
  const Message out{.buffer = block_[0].data(), .bytes = kBytes, .peer = 1, .sending = true};
  const Message in{.buffer = got.data(), .bytes = kBytes, .peer = 0};
  operations_[0] = Operation::bind_messages(std::span(&out, 1), options, links_[0]);
  operations_[1] = Operation::bind_messages(std::span(&in, 1), options, links_[1]);
  for (const auto& operation : operations_) operation->start({}, 1);
  run();
  EXPECT_EQ(got, block_[0]);
  expect_untouched_slots(kMessageChannel);
}

TEST_F(StraightTest, SoAreTheRoundsOfABroadcast) {
  bind(Collective::kBroadcast, 1);
  Bytes of_root(kBytes);
  Bytes got(kBytes);
  operations_[0]->start({.input = block_[0].data(), .output = of_root.data()}, 1);
  operations_[1]->start({.output = got.data()}, 1);
  run();
  EXPECT_EQ(got, block_[0]);
  expect_untouched_slots(0);
}

TEST_F(StraightTest, SoAreRoundsBehindOtherSteps) {
  bind(Collective::kAllGather, 1);
  Bytes got[2] = {Bytes(2 * kBytes), Bytes(2 * kBytes)};
  for (int rank = 0; rank < 2; ++rank) {
    operations_[rank]->start({.input = block_[rank].data(), .output = got[rank].data()}, 1);
  }
  run();
  EXPECT_EQ(got[0], concatenated(block_[0], block_[1]));
  EXPECT_EQ(got[1], got[0]);
  expect_untouched_slots(0);
}

// Goal: nothing is delivered over what an earlier step of a later round still sends. Method: an all_to_all in
// place, which sends the block that it receives into.
TEST_F(StraightTest, NothingIsDeliveredOverWhatIsStillToBeSent) {
  bind(Collective::kAllToAll, UINT64_MAX);
  Bytes buffer[2] = {concatenated(block_[0], block_[1]), concatenated(block_[2], block_[3])};
  for (int rank = 0; rank < 2; ++rank) {
    operations_[rank]->start({.input = buffer[rank].data(), .output = buffer[rank].data()}, 1);
  }
  run();
  EXPECT_EQ(buffer[0], concatenated(block_[0], block_[2]));
  EXPECT_EQ(buffer[1], concatenated(block_[1], block_[3]));
}

}  // namespace
}  // namespace tutti::test
