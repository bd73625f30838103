// Goal: short calls give what the collectives are defined to give, in whatever order ranks and blocks run and
// packets are torn, between other calls, for ever; and what a peer of another call sends is an error. Method:
// all algorithms of short rows, bound for packets, run by fibers on a simulated device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "algorithms/choice.h"
#include "algorithms/predict.h"
#include "plan/packets.h"
#include "tests/kernels/case.h"
#include "tests/kernels/host_kernels.h"

namespace tutti::test {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed * 1000003) {}
  template <class... Values>
  auto pick(Values... values) {
    const std::common_type_t<Values...> all[] = {values...};
    return all[random_() % sizeof...(values)];
  }
  bool coin() { return random_() % 2 == 0; }
  uint64_t below(uint64_t limit) { return random_() % limit; }

 private:
  std::mt19937_64 random_;
};

/// Whether the price may choose packets for the request: all ranks' plans can be bound for them.
bool suits_packets(const Algorithm& algorithm, const Request& request,
                   const Facts& facts = {.can_publish = false}) {
  return std::ranges::count(ways_of(request, facts, packet_bytes_max(request)), Way{&algorithm, true}) == 1;
}
bool suits_packets(const Algorithm& algorithm, uint32_t ranks) {
  return suits_packets(algorithm,
                       {.collective = algorithm.collective, .rank_count = ranks, .block_bytes = 1000});
}

/// Those that table or price may choose for short calls.
std::vector<const Algorithm*> short_algorithms() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& algorithm : algorithms()) {
    bool suits = false;
    for (uint32_t ranks = 2; ranks <= kPacketRanksMax; ++ranks)
      suits = suits || suits_packets(algorithm, ranks);
    if (suits) all.push_back(&algorithm);
  }
  return all;
}

/// What and by whom; the order of things is the World's.
Case draw_call(const Algorithm& algorithm, uint32_t ranks, uint64_t bytes, Draw& draw) {
  Case c;
  c.algorithm = &algorithm;
  const TypeAndOp computes = kTypesAndOps[draw.below(std::size(kTypesAndOps))];
  c.request = {.collective = algorithm.collective,
               .rank_count = ranks,
               .root = static_cast<uint32_t>(draw.below(ranks)),
               .block_bytes = bytes / type_bytes(computes.type) * type_bytes(computes.type),
               .type = computes.type,
               .op = computes.op,
               .in_place = draw.coin()};
  if (draw.coin() && reduces(algorithm.collective)) {
    c.request.type = draw.pick(DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32);
    c.request.op = ReduceOp::kSum;
    c.request.reproducible = true;
    c.request.block_bytes = c.request.block_bytes / 4 * 4;
  }
  c.stripes = draw.pick(1u, 1u, 3u);
  c.by_packets = true;
  return c;
}

WorldOptions draw_world(uint64_t seed, Draw& draw) {
  WorldOptions world{.kernel = &tutti_run, .short_kernel = &tutti_short};
  world.shape = {.slots = 32, .slot_bytes = 1024};
  world.threads = kFew ? draw.pick(1u, 4u) : draw.pick(1u, 5u, 16u, 16u);
  world.poll_limit = draw.pick(uint64_t{1}, uint64_t{3}, uint64_t{50});
  world.device.block_slots = draw.pick(1u, 2u, 64u);
  world.device.seed = seed;
  return world;
}

class ShortTest : public testing::TestWithParam<const Algorithm*> {};

TEST_P(ShortTest, GivesWhatTheCollectiveIsDefinedToGive) {
  uint64_t seed = 1;
  for (const uint32_t ranks : {2u, 3u, 4u, 5u, 8u}) {
    if (kFew && ranks > 4) continue;
    for (const uint64_t bytes : {0u, 1u, 12u, 24u, 203u, 3000u, 12'000u}) {
      if (bytes > (kFew ? 300u : 3000u) && ranks > 3) continue;
      for (int again = 0; again < (kFew ? 1 : 2); ++again) {
        Draw draw(++seed);
        Case c = draw_call(*GetParam(), ranks, bytes, draw);
        c.world = draw_world(seed, draw);
        if (!suits_packets(*GetParam(), c.request, facts_of(c))) continue;
        c.calls = 3;
        if (draw.below(4) == 0) {  // as where all blocks are resident
          c.world.poll_limit = UINT64_MAX;
          c.world.device.block_slots = 1000;
          c.world.together = draw.coin();
        }
        if (draw.below(3) == 0) {  // launches that stay, with room for all ranks' blocks
          c.world.poll_limit = draw.pick(uint64_t{1}, uint64_t{3}, uint64_t{50});
          c.world.stay_blocks = draw.pick(1u, 2u, 1000u);
          c.world.device.block_slots = c.world.stay_blocks * ranks;
          c.world.together = draw.coin();
        }
        ASSERT_EQ(run(c), "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, ShortTest, testing::ValuesIn(short_algorithms()), [](const auto& test) {
  return std::string(collective_name(test.param->collective)) + "_" + std::string(test.param->name);
});

// Goal: no element is lost or cut where packets end, after 12 bytes or, of elements of 8 bytes, 8. Method:
// messages of every type that end around such places, in one shot and relayed.
TEST(ShortCallsTest, MessagesOfEveryTypeMayEndAnywhereInAPacket) {
  uint64_t seed = 5000;
  for (int type = 0; type < kDataTypeCount; ++type) {
    const uint64_t element = type_bytes(static_cast<DataType>(type));
    for (const char* const algorithm : {"direct_one_shot", "direct_two_shot"}) {
      for (const uint64_t end : {12u, 24u, 36u, 48u, 64u + 12u, 128u + 24u}) {
        for (const uint64_t bytes : {end - element, end, end + element}) {
          ++seed;
          if (kFew && seed % 4 != 0) continue;
          Draw draw(seed);
          Case c = draw_call(*find_algorithm(Collective::kAllReduce, algorithm), draw.pick(2u, 3u), 0, draw);
          c.request.type = static_cast<DataType>(type);
          c.request.op = c.request.type == DataType::kUint8 ? ReduceOp::kBitXor : ReduceOp::kSum;
          c.request.block_bytes = bytes / element * element;
          c.request.reproducible = true;
          c.world = draw_world(seed, draw);
          ASSERT_EQ(run(c), "");
        }
      }
    }
  }
}

TEST(ShortCallsTest, EveryCollectiveHasAnAlgorithmThatSuitsPackets) {
  std::vector<bool> has(static_cast<size_t>(Collective::kSendRecv), true);
  std::vector<bool> is_named(has.size(), false);
  for (const ChoiceRow& row : ChoiceTable::built_in().rows()) {
    if (row.condition != ChoiceRow::Condition::kShort) continue;
    const Algorithm* const algorithm = find_algorithm(row.collective, row.algorithm);
    const auto collective = static_cast<size_t>(row.collective);
    is_named[collective] = true;
    has[collective] = has[collective] && suits_packets(*algorithm, 2) && suits_packets(*algorithm, 8);
  }
  EXPECT_EQ(std::ranges::count(is_named, false), 0);
  for (size_t c = 0; c < has.size(); ++c) EXPECT_TRUE(has[c]) << collective_name(static_cast<Collective>(c));
}

TEST(ShortCallsTest, PlansThatReduceTwiceOrReadWhatAStepHasWrittenDoNotSuitPackets) {
  EXPECT_FALSE(suits_packets(*find_algorithm(Collective::kAllReduce, "ring"), 3));
  EXPECT_FALSE(suits_packets(*find_algorithm(Collective::kAllReduce, "recursive_doubling"), 4));
  EXPECT_FALSE(suits_packets(*find_algorithm(Collective::kBroadcast, "scatter_all_gather"), 4));
  EXPECT_FALSE(suits_packets(*find_algorithm(Collective::kAllReduce, "direct_one_shot"), 9));
  EXPECT_TRUE(suits_packets(*find_algorithm(Collective::kAllReduce, "direct_two_shot"), 8));
  EXPECT_TRUE(suits_packets(*find_algorithm(Collective::kBroadcast, "direct"), 4));
}

// A mailbox has room for the rounding of two messages from a rank to another.
TEST(ShortCallsTest, PlansOfThreeMessagesToAPeerDoNotSuitPackets) {
  const Request request{.collective = Collective::kAllGather, .rank_count = 2, .block_bytes = 100};
  Plan plan = find_algorithm(Collective::kAllGather, "direct")->make(request, {.can_publish = false}, 0);
  const auto sends = [](const Step& step) {
    return std::ranges::any_of(step.sinks, [](const End& sink) { return sink.kind == EndKind::kLink; });
  };
  for (Lane& lane : plan.lanes) {
    const auto send = std::ranges::find_if(lane.steps, sends);
    if (send == lane.steps.end()) continue;
    const Step again = *send;
    EXPECT_TRUE(tutti::suits_packets(plan));
    lane.steps.push_back(again);
    EXPECT_TRUE(tutti::suits_packets(plan));
    lane.steps.push_back(again);
  }
  EXPECT_FALSE(tutti::suits_packets(plan));
}

/// Packets of a mailbox's half that a rank's call with `stripes` stripes uses, of the fullest mailbox.
uint64_t packets_used(const Algorithm& algorithm, const Request& request, uint32_t rank, uint32_t stripes) {
  const BindOptions options{.type = request.type};
  const Plan plan = algorithm.make(request, {.can_publish = false}, rank);
  std::vector<Geometry> cuts;
  for (uint32_t index = 0; index < stripes; ++index)
    cuts.push_back(Geometry::uniform(plan, request.block_bytes, {index, stripes}));
  constexpr uint64_t kApart = uint64_t{1} << 32;
  std::vector<cuda::MailLink> mail;
  for (uint64_t peer = 0; peer < request.rank_count; ++peer)
    mail.push_back({.out = 2 * peer * kApart, .in = (2 * peer + 1) * kApart});
  uint64_t most = 0;
  for (const cuda::ShortLane& lane : cuda::bind_short(plan, cuts, options, mail).short_lanes) {
    for (uint32_t s = 0; s < lane.step_count; ++s) {
      const cuda::ShortStep& step = lane.steps[s];
      for (uint32_t end = 0; end < step.source_count + uint32_t{step.sink_count}; ++end) {
        if (step.ends[end].kind == cuda::EndKind::kSend || step.ends[end].kind == cuda::EndKind::kReceive)
          most = std::max(most, step.ends[end].location % kApart / kWholePacketBytes + step.packets);
      }
    }
  }
  return most;
}

/// Packets of the fullest mailbox in the longest calls of a row with elements of the type.
uint64_t most_packets(const ChoiceRow& row, DataType type) {
  const uint64_t data = data_of_packet(reduces(row.collective), type_bytes(type));
  uint64_t fullest = 0;
  for (uint32_t ranks = row.ranks_min; ranks <= row.ranks_max; ++ranks) {
    const uint64_t bytes = row.bytes_max * data / kFullPacketDataBytes;
    for (const uint64_t less : {0u, 1u, 63u, 1000u}) {
      const uint64_t block = block_bytes_of(row.collective, ranks, bytes) - less;
      const Request request{.collective = row.collective,
                            .rank_count = ranks,
                            .block_bytes = block / type_bytes(type) * type_bytes(type),
                            .type = type};
      const Algorithm* const chosen = ChoiceTable::built_in().choose(
          request, {.can_publish = false}, nullptr, kMailboxDataBytes * data / kFullPacketDataBytes);
      EXPECT_EQ(chosen->name, row.algorithm) << print_row(row) << ", " << ranks << " ranks";
      for (uint32_t stripes = 1; stripes <= cuda::kMaxShortLanes; ++stripes)
        fullest = std::max(fullest, packets_used(*chosen, request, ranks - 1, stripes));
    }
  }
  return fullest;
}

// Goal: what the choice table sends in packets fits the mailboxes, however chunks and stripes round, and
// whether a packet is full or holds one element of 8 bytes.
TEST(ShortCallsTest, TheLongestCallsOfTheChoiceTableFitTheMailboxes) {
  for (const ChoiceRow& row : ChoiceTable::built_in().rows()) {
    if (row.condition != ChoiceRow::Condition::kShort || row.collective == Collective::kBarrier) continue;
    for (const DataType type : {DataType::kUint8, DataType::kFloat64}) {
      const uint64_t fullest = most_packets(row, type);
      EXPECT_LE(fullest, cuda::kMailPackets) << print_row(row);
      EXPECT_GE(fullest, cuda::kMailPackets / 16) << print_row(row);
    }
  }
}

// Goal: the same for whatever the price may send in packets. Method: calls whose fullest pair of ranks has
// as many bytes as a mailbox takes.
TEST(ShortCallsTest, TheLongestCallsThatSuitPacketsFitTheMailboxes) {
  for (const Algorithm* algorithm : short_algorithms()) {
    for (uint32_t ranks = 2; ranks <= kPacketRanksMax; ++ranks) {
      for (const DataType type : {DataType::kUint8, DataType::kFloat64}) {
        if (algorithm->collective == Collective::kBarrier || !suits_packets(*algorithm, ranks)) continue;
        Request request{.collective = algorithm->collective,
                        .rank_count = ranks,
                        .block_bytes = kMailboxDataBytes,
                        .type = type};
        request.block_bytes = packet_bytes_max(request) * request.block_bytes /
                              most_bytes_to_a_peer(*algorithm, request, {.can_publish = false}) / 8 * 8;
        // Long messages may have several lanes.
        if (!suits_packets(*algorithm, request)) continue;
        uint64_t fullest = 0;
        for (uint32_t stripes = 1; stripes <= cuda::kMaxShortLanes; ++stripes) {
          for (const uint32_t rank : {0u, ranks - 1})
            fullest = std::max(fullest, packets_used(*algorithm, request, rank, stripes));
        }
        EXPECT_LE(fullest, cuda::kMailPackets)
            << collective_name(algorithm->collective) << " " << algorithm->name << ", " << ranks << " ranks";
      }
    }
  }
}

/// Short and long calls in any order, of all collectives and roots, no rank waiting for the others to end.
TEST(ShortCallsTest, RanksRunAheadThroughShortAndLongCalls) {
  const std::vector<const Algorithm*> algorithms = short_algorithms();
  for (uint64_t seed = 1; seed <= (kFew ? 4 : 60); ++seed) {
    Draw draw(seed);
    const uint32_t ranks = kFew ? draw.pick(2u, 3u) : draw.pick(2u, 3u, 4u, 8u);
    WorldOptions world = draw_world(seed, draw);
    world.threads = std::max(world.threads, 2u);  // for the long calls
    std::vector<Case> cases;
    for (uint32_t call = 0; call < 12; ++call) {
      const Algorithm& algorithm = *algorithms[draw.below(algorithms.size())];
      Case c = draw_call(algorithm, ranks, draw.pick(0u, 8u, 50u, 50u, 400u), draw);
      c.world = world;
      c.by_packets = draw.below(4) != 0 && suits_packets(algorithm, c.request, facts_of(c));
      if (is_served(c)) cases.push_back(c);
    }
    ASSERT_EQ(run_in_sequence(cases), "") << "seed " << seed;
  }
}

/// A case of two ranks that is easy to look at: sums of words.
Case small_case() {
  Case c;
  c.algorithm = find_algorithm(Collective::kAllReduce, "direct_one_shot");
  c.request = {.collective = Collective::kAllReduce,
               .rank_count = 2,
               .block_bytes = 1024,
               .type = DataType::kUint32,
               .in_place = true};
  c.world = {.threads = 4, .poll_limit = 3, .kernel = &tutti_run, .short_kernel = &tutti_short};
  c.by_packets = true;
  return c;
}

/// The ranks of a small case, in place; rank r adds r + 1 everywhere.
struct Ranks {
  explicit Ranks(const Case& c) : world(c.world), data(c.request.rank_count) {
    for (uint32_t rank = 0; rank < c.request.rank_count; ++rank) {
      data[rank].assign(c.request.block_bytes / 4, rank + 1);
      world.set_program(rank, bind_rank(c, rank, world));
    }
  }
  CallBuffers buffers(uint32_t rank) { return {.input = data[rank].data(), .output = data[rank].data()}; }

  World world;
  std::vector<std::vector<uint32_t>> data;
};

TEST(ShortCallsTest, ALaunchThatWaitsInVainSaysForWhomAndGoesOnLater) {
  Ranks ranks(small_case());
  ranks.world.launch_alone(0, ranks.buffers(0));
  ASSERT_EQ(ranks.world.look(0), cuda::LaunchEnd::kUnfinished);
  const cuda::Signals& signals = ranks.world.signals(0);
  EXPECT_EQ(ranks.world.report(0).moved, 1u);  // it has pushed
  EXPECT_EQ(signals.done, 0u);
  EXPECT_EQ(ranks.world.report(0).obstacle.peer, 1u);
  EXPECT_EQ(ranks.world.report(0).obstacle.sending, 0u);
  ranks.world.launch_alone(0, ranks.buffers(0), false);
  EXPECT_EQ(ranks.world.look(0), cuda::LaunchEnd::kUnfinished);
  EXPECT_EQ(ranks.world.report(0).moved, 1u);
  ranks.world.launch_alone(1, ranks.buffers(1));
  EXPECT_EQ(ranks.world.look(1), cuda::LaunchEnd::kDone);
  ranks.world.launch_alone(0, ranks.buffers(0), false);
  EXPECT_EQ(ranks.world.look(0), cuda::LaunchEnd::kDone);
  EXPECT_EQ(signals.done, 1u);
  EXPECT_EQ(ranks.world.report(0).sequence, 1u);
  EXPECT_EQ(ranks.world.state(0).short_calls, 1u);
  for (uint32_t rank = 0; rank < 2; ++rank)
    EXPECT_EQ(ranks.data[rank], std::vector<uint32_t>(256, 3)) << rank;
}

TEST(ShortCallsTest, AnotherCallsPacketEndsTheOperation) {
  Ranks ranks(small_case());
  ranks.world.program(1).signature_seed ^= 0x1234567;
  ranks.world.launch_alone(0, ranks.buffers(0));
  ranks.world.launch_alone(1, ranks.buffers(1));
  ASSERT_EQ(ranks.world.look(1), cuda::LaunchEnd::kMismatch);
  const cuda::LaunchReport report = ranks.world.report(1);
  EXPECT_EQ(ranks.world.signals(1).done, 1u);
  EXPECT_EQ(report.sequence, 0u);
  EXPECT_EQ(report.obstacle.peer, 0u);
  EXPECT_NE(report.obstacle.word, report.obstacle.expected);
  EXPECT_EQ(report.obstacle.word & cuda::kEpochMask, report.obstacle.expected & cuda::kEpochMask);
  EXPECT_EQ(ranks.data[1], std::vector<uint32_t>(256, 2)) << "nothing was written";
}

// An old bug: the last rank whose packet was missing was named.
TEST(ShortCallsTest, TheRankInAnotherCallIsNamedAndNotOneThatIsLate) {
  Case c = small_case();
  c.request.rank_count = c.world.ranks = 3;
  Ranks ranks(c);
  ranks.world.program(0).signature_seed ^= 0x1234567;
  ranks.world.launch_alone(0, ranks.buffers(0));
  ranks.world.launch_alone(1, ranks.buffers(1));
  ASSERT_EQ(ranks.world.look(1), cuda::LaunchEnd::kMismatch);
  EXPECT_EQ(ranks.world.report(1).obstacle.peer, 0u);
  EXPECT_NE(ranks.world.report(1).obstacle.word, 0u);
}

/// Rank 0 broadcasts while rank 1 gathers: each sends the other a packet at least.
TEST(ShortCallsTest, ARankThatSendsNothingIsHeardAllTheSame) {
  Case c = small_case();
  c.algorithm = find_algorithm(Collective::kBroadcast, "direct");
  c.request.collective = Collective::kBroadcast;
  Ranks ranks(c);
  ranks.world.launch_alone(0, ranks.buffers(0));
  EXPECT_EQ(ranks.world.look(0), cuda::LaunchEnd::kUnfinished) << "the root waits for a sign of the receiver";
  EXPECT_EQ(ranks.world.report(0).obstacle.peer, 1u);
  ranks.world.program(1).signature_seed ^= 0x1234567;
  ranks.world.launch_alone(1, ranks.buffers(1));
  EXPECT_EQ(ranks.world.look(1), cuda::LaunchEnd::kMismatch);
  ranks.world.launch_alone(0, ranks.buffers(0), false);
  EXPECT_EQ(ranks.world.look(0), cuda::LaunchEnd::kMismatch) << "a greeting of another call";
}

TEST(ShortCallsTest, AnAbortIsSeenByAWaitWithoutBound) {
  Case c = small_case();
  c.world.poll_limit = UINT64_MAX;
  Ranks ranks(c);
  ranks.world.abort_amid(0);
  ranks.world.launch_alone(0, ranks.buffers(0));
  EXPECT_EQ(ranks.world.look(0), cuda::LaunchEnd::kAborted);
  EXPECT_EQ(ranks.world.signals(0).done, 1u);
}

TEST(ShortCallsTest, FlagsOfLongAgoAreNotTakenForNewOnes) {
  EXPECT_EQ(run_through_numbers(&tutti_short), "");
}

}  // namespace
}  // namespace tutti::test
