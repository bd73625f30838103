// Goal: what the engine receives over TCP is delivered straight into its buffers. tests/transports shows that
// every algorithm's results are right. Method: two ranks of one thread, joined by sockets.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <span>
#include <utility>

#include "algorithms/algorithm.h"
#include "engine/operation.h"
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
  Message out{.buffer = block_[0].data(), .bytes = kBytes, .peer = 1, .sending = true};
  Message in{.buffer = got.data(), .bytes = kBytes, .peer = 0};
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
