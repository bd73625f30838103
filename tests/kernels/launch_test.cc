// Goal: launches begin, leave, go on and end as program.h says: bounded waits with the position stored,
// mismatches, aborts, what the host is told, and the order that a kernel behind sees. Method: ranks of a
// World, launched one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/cuda/device.h"
#include "engine/links.h"
#include "tests/kernels/case.h"
#include "tests/kernels/host_kernels.h"
#include "tests/sim/reference.h"

namespace tutti::test {
namespace {

constexpr uint64_t kBytes = 1024;
using Words = std::vector<uint32_t>;

/// A case of two ranks that is easy to look at.
Case small_case(Collective collective, const char* algorithm) {
  Case c;
  c.algorithm = find_algorithm(collective, algorithm);
  c.request = {.collective = collective, .rank_count = 2, .block_bytes = kBytes, .type = DataType::kUint32};
  c.world = {.threads = 4, .poll_limit = 3, .kernel = &tutti_run};
  return c;
}

/// A World in which the case's ranks are bound; rank r adds r + 1 everywhere.
struct Ranks {
  explicit Ranks(const Case& c) : world(c.world), inputs(2), outputs(2, Words(kBytes / 4)) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      inputs[rank].assign(kBytes / 4, rank + 1);
      world.set_program(rank, bind_rank(c, rank, world));
    }
  }
  CallBuffers buffers(uint32_t rank) {
    return {.input = inputs[rank].data(), .output = outputs[rank].data()};
  }
  std::string call() { return world.call({buffers(0), buffers(1)}); }

  World world;
  std::vector<Words> inputs;
  std::vector<Words> outputs;
};

TEST(LaunchTest, ALaunchThatWaitsInVainSaysForWhatAndGoesOnLater) {
  Ranks ranks(small_case(Collective::kAllReduce, "recursive_doubling"));
  ranks.world.launch_alone(0, ranks.buffers(0));
  ASSERT_EQ(ranks.world.look(0), cuda::LaunchEnd::kUnfinished);
  const cuda::Signals& signals = ranks.world.signals(0);
  const cuda::LaunchReport report = ranks.world.report(0);
  EXPECT_EQ(signals.left >> cuda::kLaunchEndBits, 1u);
  EXPECT_EQ(report.moved, 1u);  // it has sent
  EXPECT_EQ(report.ended, 0u);
  EXPECT_EQ(signals.done, 0u);
  EXPECT_EQ(report.obstacle.peer, 1u);
  EXPECT_EQ(report.obstacle.sending, 0u);
  EXPECT_EQ(report.part.output, ranks.outputs[0].data());
  // Nothing has changed: it finds nothing to do, and says that as well.
  ranks.world.launch_alone(0, ranks.buffers(0), false);
  EXPECT_EQ(ranks.world.look(0), cuda::LaunchEnd::kUnfinished);
  EXPECT_EQ(ranks.world.report(0).moved, 1u);
  ranks.world.launch_alone(1, ranks.buffers(1));
  EXPECT_EQ(ranks.world.look(1), cuda::LaunchEnd::kDone);
  EXPECT_EQ(ranks.outputs[1], Words(kBytes / 4, 3));
  ranks.world.launch_alone(0, ranks.buffers(0), false);
  EXPECT_EQ(ranks.world.look(0), cuda::LaunchEnd::kDone);
  EXPECT_EQ(signals.done, 1u);
  EXPECT_EQ(ranks.world.report(0).ended, 1u);
  EXPECT_EQ(ranks.world.report(0).sequence, 1u);
  EXPECT_EQ(ranks.outputs[0], Words(kBytes / 4, 3));
}

// Goal: a lane that gives up has counted what it has told, whether its block keeps the links or not. Method:
// a writer that runs out of slots amid its message, and readers that come and go.
TEST(LaunchTest, ALaneThatGivesUpGoesOnWithTheRightNumbers) {
  for (const uint32_t keeps : std::vector<uint32_t>{kKeepsAll, 0, kKeepsLinks, kKeepsAll - kKeepsLinks}) {
    Case c = small_case(Collective::kBroadcast, "direct");
    c.world.shape = {.slots = 4, .slot_bytes = 64};
    c.keeps = keeps;
    Ranks ranks(c);
    const cuda::SendLink& sends = ranks.world.send_link(0, 1, 0);
    const cuda::RecvLink& receives = ranks.world.receive_link(1, 0, 0);
    constexpr uint64_t kSlices = kBytes / 64;
    for (uint64_t call = 0; call < 2; ++call) {
      const uint64_t before = call * kSlices;
      std::fill(ranks.outputs[1].begin(), ranks.outputs[1].end(), 0);
      for (uint64_t told = 4; told <= kSlices; told += 4) {
        ranks.world.launch_alone(0, ranks.buffers(0), told == 4);
        EXPECT_EQ(sends.next, before + told) << "all slots are full";
        EXPECT_EQ(sends.limit, before + told);
        ranks.world.launch_alone(1, ranks.buffers(1), told == 4);
        EXPECT_EQ(receives.next, before + told);
      }
      EXPECT_EQ(ranks.world.look(0), cuda::LaunchEnd::kDone);
      EXPECT_EQ(ranks.world.look(1), cuda::LaunchEnd::kDone);
      EXPECT_EQ(ranks.outputs[1], ranks.inputs[0]);
    }
  }
}

// A reference that the reader has not given back when the writer gives up is awaited by the next launch.
TEST(LaunchTest, ALaneThatGivesUpRemembersItsReferences) {
  for (const uint32_t keeps : std::vector<uint32_t>{kKeepsAll, 0}) {
    Case c = small_case(Collective::kBroadcast, "direct");
    c.refers = true;
    c.keeps = keeps;
    Ranks ranks(c);
    ranks.world.launch_alone(0, ranks.buffers(0));
    const cuda::SendLink& link = ranks.world.send_link(0, 1, 0);
    EXPECT_EQ(link.last_reference, link.next);
    EXPECT_GT(link.last_reference, 0u);
    ranks.world.launch_alone(0, ranks.buffers(0), false);
    EXPECT_EQ(ranks.world.look(0), cuda::LaunchEnd::kUnfinished);
  }
}

TEST(LaunchTest, AWriterWithoutRoomSaysSo) {
  Case c = small_case(Collective::kBroadcast, "direct");
  c.world.shape = {.slots = 2, .slot_bytes = 64};
  Ranks ranks(c);
  ranks.world.launch_alone(0, ranks.buffers(0));
  ASSERT_EQ(ranks.world.look(0), cuda::LaunchEnd::kUnfinished);
  EXPECT_EQ(ranks.world.report(0).obstacle.peer, 1u);
  EXPECT_EQ(ranks.world.report(0).obstacle.sending, 1u);
}

TEST(LaunchTest, ARankIsNotDoneBeforeItsReferencesHaveComeBack) {
  Case c = small_case(Collective::kBroadcast, "direct");
  c.refers = true;
  Ranks ranks(c);
  ranks.world.launch_alone(0, ranks.buffers(0));
  ASSERT_EQ(ranks.world.look(0), cuda::LaunchEnd::kUnfinished);
  const cuda::Program& program = ranks.world.program(0);
  EXPECT_EQ(program.positions[0].round, program.lanes[0].round_count);
  EXPECT_EQ(ranks.world.report(0).obstacle.sending, 1u);
  EXPECT_EQ(ranks.world.report(0).obstacle.step, program.lanes[0].step_count);
  ranks.world.launch_alone(1, ranks.buffers(1));
  EXPECT_EQ(ranks.world.look(1), cuda::LaunchEnd::kDone);
  EXPECT_EQ(ranks.outputs[1], ranks.inputs[0]);
  ranks.world.launch_alone(0, ranks.buffers(0), false);
  EXPECT_EQ(ranks.world.look(0), cuda::LaunchEnd::kDone);
}

TEST(LaunchTest, ResultsArePlacedInTheReceiversBuffersOnceTheseAreOpen) {
  Case c = small_case(Collective::kAllReduce, "direct_two_shot");
  c.refers = true;
  c.world.poll_limit = UINT64_MAX;
  uint64_t references = 0;
  for (uint64_t seed = 1; seed <= (kFew ? 2 : 20); ++seed) {
    c.world.device.seed = seed;
    c.world.by_location = seed % 2 == 0;
    Ranks ranks(c);
    ASSERT_EQ(ranks.call(), "");
    EXPECT_EQ(ranks.outputs[0], Words(kBytes / 4, 3));
    EXPECT_EQ(ranks.outputs[1], Words(kBytes / 4, 3));
    // Of a placed message the payload is the address 0.
    for (uint32_t rank = 0; rank < 2; ++rank) {
      for (uint32_t channel = 0; channel < kPlanChannels; ++channel) {
        const cuda::SendLink& link = ranks.world.send_link(rank, 1 - rank, channel);
        for (uint64_t number = 0; number < link.next; ++number) {
          const Cell& cell = link.cells[number & link.slot_mask];
          EXPECT_EQ(flag::carriage(cell.word), Carriage::kReference) << "copied to a slot, seed " << seed;
          uint64_t address = 1;
          std::memcpy(&address, cell.payload, sizeof address);
          references +=
              flag::carriage(cell.word) == Carriage::kReference && address == kWrittenDirectly ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(references, 0u);
}

// Each rank computes one half. Only the first one lies in the registered part of the peer's buffer.
TEST(LaunchTest, ResultsArePlacedOnlyWithinThePeersReach) {
  Case c = small_case(Collective::kAllReduce, "direct_two_shot");
  c.refers = true;
  c.world.by_location = true;
  c.world.registered_bytes = kBytes / 2;
  c.world.poll_limit = UINT64_MAX;
  c.world.shape.slot_bytes = kBytes;
  Ranks ranks(c);
  ASSERT_EQ(ranks.call(), "");
  std::vector<bool> places(2);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks.outputs[rank], Words(kBytes / 4, 3));
    for (uint32_t channel = 0; channel < kPlanChannels; ++channel) {
      const cuda::SendLink& link = ranks.world.send_link(rank, 1 - rank, channel);
      for (uint64_t number = 0; number < link.next; ++number) {
        const Cell& cell = link.cells[number & link.slot_mask];
        uint64_t address = 1;
        std::memcpy(&address, cell.payload, sizeof address);
        if (flag::carriage(cell.word) == Carriage::kReference && address == kWrittenDirectly)
          places[rank] = true;
      }
    }
  }
  EXPECT_EQ(places, (std::vector<bool>{true, false}));
}

TEST(LaunchTest, AnotherCallsMessageEndsTheOperationAndAllThatFollow) {
  Ranks ranks(small_case(Collective::kAllReduce, "recursive_doubling"));
  ranks.world.program(1).signature_seed ^= 0x1234567;
  ranks.world.launch_alone(0, ranks.buffers(0));
  ranks.world.launch_alone(1, ranks.buffers(1));
  ASSERT_EQ(ranks.world.look(1), cuda::LaunchEnd::kMismatch);
  const cuda::LaunchReport report = ranks.world.report(1);
  EXPECT_EQ(ranks.world.signals(1).done, 1u);
  EXPECT_EQ(report.ended, 1u);
  EXPECT_EQ(report.sequence, 0u);
  EXPECT_EQ(report.obstacle.peer, 0u);
  EXPECT_NE(flag::signature(report.obstacle.word), flag::signature(report.obstacle.expected));
  EXPECT_EQ(ranks.outputs[1], Words(kBytes / 4));
  ranks.world.launch_alone(1, ranks.buffers(1));
  EXPECT_EQ(ranks.world.look(1), cuda::LaunchEnd::kMismatch);
  EXPECT_EQ(ranks.world.report(1).ended, 2u);
  EXPECT_EQ(ranks.world.report(1).obstacle.word, report.obstacle.word);
}

TEST(LaunchTest, AnAbortIsSeenByAWaitWithoutBound) {
  Case c = small_case(Collective::kAllReduce, "ring");
  c.world.poll_limit = UINT64_MAX;
  c.stripes = 2;
  Ranks ranks(c);
  ranks.world.abort_amid(0);
  ranks.world.launch_alone(0, ranks.buffers(0));
  EXPECT_EQ(ranks.world.look(0), cuda::LaunchEnd::kAborted);
  EXPECT_EQ(ranks.world.signals(0).done, 1u);
}

TEST(LaunchTest, AnAbortedRankIsNotLaunchedAgain) {
  Ranks ranks(small_case(Collective::kAllReduce, "ring"));
  ranks.world.signals(0).abort = 1;
  ranks.world.launch_alone(0, ranks.buffers(0));
  EXPECT_EQ(ranks.world.look(0), cuda::LaunchEnd::kAborted);
}

cuda::Image nothing_to_do() {
  cuda::Image nothing;
  nothing.lanes.push_back(cuda::begin_lane(nothing));
  return nothing;
}

/// The same case in launches that stay, on one block a rank whatever its lanes are.
Case staying_case() {
  Case c = small_case(Collective::kAllReduce, "recursive_doubling");
  c.stripes = 3;
  c.world.stay_blocks = 1;
  return c;
}

TEST(LaunchTest, ALaunchThatStaysSaysForWhatItWaitsRoundAfterRoundAndSeesAnAbort) {
  Ranks ranks(staying_case());
  ranks.world.set_program(1, nothing_to_do());
  cuda::Signals& signals = ranks.world.signals(0);
  std::vector<cuda::LaunchEnd> said;
  uint32_t done = 1;
  cuda::LaunchReport told{};
  ranks.world.on_turn = [&] {
    const uint64_t left = __atomic_load_n(&signals.left, __ATOMIC_ACQUIRE);
    if (left >> cuda::kLaunchEndBits <= said.size()) return;
    said.push_back(static_cast<cuda::LaunchEnd>(left % (1u << cuda::kLaunchEndBits)));
    done = __atomic_load_n(&signals.done, __ATOMIC_RELAXED);
    told = ranks.world.report(0);
    if (said.size() >= 3) __atomic_store_n(&signals.abort, 1, __ATOMIC_RELEASE);
  };
  ASSERT_EQ(ranks.call(), "");
  ASSERT_GE(said.size(), 3u);
  for (int round = 0; round < 3; ++round) EXPECT_EQ(said[round], cuda::LaunchEnd::kGoesOn) << round;
  EXPECT_EQ(ranks.world.look(0), cuda::LaunchEnd::kAborted);
  EXPECT_EQ(ranks.world.report(0).moved, 1u);  // in the first round it has sent
  EXPECT_EQ(told.obstacle.peer, 1u);
  EXPECT_EQ(told.part.output, ranks.outputs[0].data());
  EXPECT_EQ(ranks.world.report(0).ended, 1u);
  EXPECT_EQ(signals.done, 1u);
}

// A device may have less room than its host believes. What then hangs is ended by the other ranks' failures.
TEST(LaunchTest, AnAbortEndsALaunchThatStaysWhereSomeOfItsBlocksHaveNoPlace) {
  Case c = staying_case();
  c.world.stay_blocks = 2;
  c.world.device.block_slots = 1;
  Ranks ranks(c);
  ranks.world.launch_alone(0, ranks.buffers(0));
  EXPECT_EQ(ranks.world.look(0), cuda::LaunchEnd::kNone) << "the first block waits for the other's lanes";
  std::atomic_ref(ranks.world.signals(0).abort).store(1, std::memory_order_release);
  const auto runs = [&] {
    return ranks.world.device().run([turns = 0]() mutable { return ++turns < 10'000; });
  };
  ASSERT_TRUE(runs()) << ranks.world.device().report();
  EXPECT_EQ(ranks.world.look(0), cuda::LaunchEnd::kAborted);
  EXPECT_EQ(ranks.world.signals(0).done, 1u);
  EXPECT_EQ(ranks.world.report(0).ended, 1u);
  // So do those behind it.
  ranks.world.launch_alone(0, ranks.buffers(0));
  ASSERT_TRUE(runs()) << ranks.world.device().report();
  EXPECT_EQ(ranks.world.look(0), cuda::LaunchEnd::kAborted);
  EXPECT_EQ(ranks.world.report(0).ended, 2u);
}

TEST(LaunchTest, LaunchesThatStayNeedNoOthers) {
  for (uint64_t seed = 1; seed <= (kFew ? 2 : 20); ++seed) {
    Case c = staying_case();
    c.world.poll_limit = seed % 4 + 1;
    c.world.stay_blocks = static_cast<uint32_t>(seed % 3 + 1);
    c.world.device = {.block_slots = 2 * c.world.stay_blocks, .seed = seed};
    Ranks ranks(c);
    for (uint64_t call = 1; call <= 3; ++call) {
      ASSERT_EQ(ranks.call(), "") << seed;
      EXPECT_EQ(ranks.outputs[0], Words(kBytes / 4, 3));
      EXPECT_EQ(ranks.world.launches(), 2 * call);
      EXPECT_EQ(ranks.world.state(0).sequence, call);
    }
  }
}

// What is finished of an operation that failed stays so: blocks whose lanes seem finished must be counted all
// the same.
TEST(LaunchTest, AfterAMismatchLaunchesThatStayLeave) {
  Ranks ranks(staying_case());
  ranks.world.program(1).signature_seed ^= 0x1234567;
  // Rank 0 waits for what rank 1 will not send: its host ends it.
  ranks.world.on_turn = [&] {
    if (ranks.world.launch_end(1) == cuda::LaunchEnd::kMismatch)
      __atomic_store_n(&ranks.world.signals(0).abort, 1, __ATOMIC_RELEASE);
  };
  for (uint64_t call = 1; call <= 2; ++call) {
    ASSERT_EQ(ranks.call(), "");
    EXPECT_EQ(ranks.world.launch_end(1), cuda::LaunchEnd::kMismatch);
    EXPECT_EQ(ranks.world.report(1).ended, call);
    EXPECT_EQ(ranks.world.report(1).obstacle.peer, 0u);
    for (uint32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.world.report(rank).sequence, 0u);
    ranks.world.program(1).positions[0].finished = 1;
  }
}

// Goal: a slice that is ready moves while the peers are told of the one before. Method: a reader to whom all
// slices have been sent; what its host sees after each turn, in one of many orders.
TEST(LaunchTest, ASliceMovesWhileThePeersAreToldOfTheOneBefore) {
  if (kFew) GTEST_SKIP() << "the host looks while the device writes";
  uint32_t seen = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Case c = small_case(Collective::kBroadcast, "direct");
    c.world.shape = {.slots = 4, .slot_bytes = kBytes / 4};
    c.world.poll_limit = UINT64_MAX;
    c.world.device.seed = seed;
    Ranks ranks(c);
    const cuda::SendLink& link = ranks.world.send_link(0, 1, 0);
    ranks.world.on_turn = [&] {
      const bool second_moves = ranks.outputs[1][kBytes / 16] != 0;
      if (second_moves && __atomic_load_n(&link.credit->released, __ATOMIC_ACQUIRE) == 0) ++seen;
    };
    ASSERT_EQ(ranks.call(), "");
    EXPECT_EQ(ranks.outputs[1], ranks.inputs[0]);
  }
  EXPECT_GT(seen, 0u);
}

TEST(LaunchTest, AKernelLaunchedBehindReadsFinishedData) {
  for (uint64_t seed = 1; seed <= (kFew ? 2 : 20); ++seed) {
    Case c = small_case(Collective::kAllReduce, "direct_two_shot");
    c.refers = seed % 2 == 0;
    c.stripes = 3;
    c.world.poll_limit = UINT64_MAX;
    c.world.device.seed = seed;
    Ranks ranks(c);
    uint32_t sums[2] = {};
    bool behind = false;
    ranks.world.on_turn = [&] {
      if (behind) return;
      behind = true;
      for (uint32_t rank = 0; rank < 2; ++rank) {
        ranks.world.launch_behind(rank, [&, rank] {
          if (cuda::device::thread_index() != 0) return;
          sums[rank] = std::accumulate(ranks.outputs[rank].begin(), ranks.outputs[rank].end(), 0u);
        });
      }
    };
    ASSERT_EQ(ranks.call(), "");
    EXPECT_EQ(sums[0], 3 * kBytes / 4);
    EXPECT_EQ(sums[1], 3 * kBytes / 4);
  }
}

TEST(LaunchTest, TheScalarOfAPreMultipliedSumMayLieInDeviceMemory) {
  Case c = small_case(Collective::kAllReduce, "recursive_doubling");
  c.request.op = ReduceOp::kPremulSum;
  Ranks ranks(c);
  const uint32_t factor = 10;
  std::vector<CallBuffers> buffers = {ranks.buffers(0), ranks.buffers(1)};
  for (CallBuffers& of : buffers) of.scale = &factor;
  ASSERT_EQ(ranks.world.call(buffers), "");
  EXPECT_EQ(ranks.outputs[0], Words(kBytes / 4, 30));
}

TEST(LaunchTest, MessagesOfAGroupGoBothWaysAndMayBeEmpty) {
  for (uint64_t seed = 1; seed <= (kFew ? 2 : 20); ++seed) {
    World world(
        {.threads = 4, .poll_limit = 2, .device = {.block_slots = 1, .seed = seed}, .kernel = &tutti_run});
    std::vector<Words> sent(2, Words(700)), came(2, Words(700));
    for (uint32_t rank = 0; rank < 2; ++rank) {
      std::iota(sent[rank].begin(), sent[rank].end(), 1000 * rank);
      const uint32_t peer = 1 - rank;
      const std::vector<Message> messages = {
          {.buffer = sent[rank].data(), .bytes = 2000, .peer = peer, .sending = true, .seed = 5},
          {.buffer = came[rank].data(), .bytes = 2000, .peer = peer, .sending = false, .seed = 5},
          {.buffer = nullptr, .bytes = 0, .peer = peer, .sending = true, .seed = 6},
          {.buffer = nullptr, .bytes = 0, .peer = peer, .sending = false, .seed = 6},
          {.buffer = sent[rank].data() + 500, .bytes = 40, .peer = peer, .sending = true, .seed = 7},
          {.buffer = came[rank].data() + 500, .bytes = 40, .peer = peer, .sending = false, .seed = 7}};
      const BindOptions options{
          .reference_bytes = seed % 2 == 0 ? 100u : UINT64_MAX, .slots = 8, .slot_bytes = 256};
      world.set_program(rank, cuda::bind_messages(messages, options, world.links(rank)));
    }
    ASSERT_EQ(world.call({{}, {}}), "");
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(world.launch_end(rank), cuda::LaunchEnd::kDone);
      EXPECT_EQ(world.state(rank).sequence, 0u);
      for (size_t i = 0; i < 510; ++i) EXPECT_EQ(came[rank][i], sent[1 - rank][i]) << i;
    }
  }
}

/// Messages between all ranks, each rank's own in `messages`.
struct MessageGroup {
  std::vector<Words> sent;
  std::vector<Words> came;  ///< equals `sent` once all have arrived
  std::vector<std::vector<Message>> messages;
};

MessageGroup draw_group(std::mt19937_64& random, uint32_t ranks) {
  constexpr size_t kMostMessages = 5;
  MessageGroup group{.sent = {}, .came = {}, .messages = std::vector<std::vector<Message>>(ranks)};
  group.sent.reserve(kMostMessages * ranks * ranks);
  group.came.reserve(kMostMessages * ranks * ranks);
  for (uint32_t from = 0; from < ranks; ++from) {
    for (uint32_t to = 0; to < ranks; ++to) {
      for (uint64_t left = from == to ? 0 : random() % (kMostMessages + 1); left > 0; --left) {
        Words& out = group.sent.emplace_back(random() % 3 == 0 ? random() % 20 : random() % 500);
        std::generate(out.begin(), out.end(), [&] { return static_cast<uint32_t>(random()); });
        // The last bytes do not travel.
        const uint64_t bytes = out.size() * 4 - (out.empty() ? 0 : random() % 4);
        Words& in = group.came.emplace_back(out);
        std::fill_n(reinterpret_cast<std::byte*>(in.data()), bytes, std::byte{});
        group.messages[from].push_back(
            {.buffer = out.data(), .bytes = bytes, .peer = to, .sending = true, .seed = left});
        group.messages[to].push_back(
            {.buffer = in.data(), .bytes = bytes, .peer = from, .sending = false, .seed = left});
      }
    }
  }
  return group;
}

// Goal: a message is made ready while the one before moves, whatever the lengths of both. Method: random
// groups between three ranks, one after the other on the same links.
TEST(LaunchTest, MessagesOfRandomGroupsArrive) {
  constexpr uint32_t kRanks = 3;
  for (uint64_t seed = 1; seed <= (kFew ? 4 : 100); ++seed) {
    std::mt19937_64 random(seed);
    const uint32_t slot_bytes = 128u << random() % 4;
    World world({.ranks = kRanks,
                 .shape = {.slots = 8, .slot_bytes = slot_bytes},
                 .threads = random() % 2 == 0 ? 4u : 20u,
                 .poll_limit = 1 + random() % 20,
                 .device = {.block_slots = random() % 2 == 0 ? 1u : 100u, .seed = seed},
                 .kernel = &tutti_run});
    for (int call = 0; call < 3; ++call) {
      const MessageGroup group = draw_group(random, kRanks);
      const BindOptions options{.reference_bytes = random() % 2 == 0 ? random() % 2000 : UINT64_MAX,
                                .slots = 4,
                                .slot_bytes = slot_bytes * 2};
      for (uint32_t rank = 0; rank < kRanks; ++rank)
        world.set_program(rank, cuda::bind_messages(group.messages[rank], options, world.links(rank)));
      ASSERT_EQ(world.call(std::vector<CallBuffers>(kRanks)), "") << "seed " << seed;
      EXPECT_EQ(group.came, group.sent) << "seed " << seed;
    }
  }
}

TEST(LaunchTest, NumbersOfMessagesWrapAround) {
  for (const bool refers : {false, true}) {
    Case c = small_case(Collective::kAllReduce, "ring");
    c.refers = refers;
    c.world.shape = {.slots = 4, .slot_bytes = 64};
    Ranks ranks(c);
    ranks.world.begin_at(flag::kNumberMask - 6);
    for (int call = 0; call < 3; ++call) {
      ASSERT_EQ(ranks.call(), "");
      EXPECT_EQ(ranks.outputs[0], Words(kBytes / 4, 3));
    }
    EXPECT_GT(ranks.world.send_link(0, 1, 0).next, flag::kNumberMask);
  }
}

// A cell that long messages pass over keeps no message whose number comes again in the flags.
TEST(LaunchTest, CellsThatLongMessagesPassOverAreNumbered) {
  Case c = small_case(Collective::kBroadcast, "direct");
  c.world.shape = {.slots = 8, .slot_bytes = 64};
  c.world.threads = 2;
  const auto broadcast = [&](World& world, uint64_t bytes, uint32_t slots_per_slice) {
    Words sent(bytes / 4), came(bytes / 4);
    std::iota(sent.begin(), sent.end(), 0);
    c.request.block_bytes = bytes;
    c.slots_per_slice = slots_per_slice;
    for (uint32_t rank = 0; rank < 2; ++rank) world.set_program(rank, bind_rank(c, rank, world));
    ASSERT_EQ(world.call({{.input = sent.data(), .output = sent.data()}, {.output = came.data()}}), "");
    EXPECT_EQ(world.launch_end(1), cuda::LaunchEnd::kDone);
    EXPECT_EQ(came, sent);
  };
  World world(c.world);
  broadcast(world, uint64_t{8} * 64, 1);
  // All numbers but 8 of each turn.
  broadcast(world, (flag::kNumberMask + 1 - 8) * 64, 4);
  EXPECT_EQ(world.send_link(0, 1, 0).next, flag::kNumberMask + 1);
  broadcast(world, uint64_t{8} * 64, 1);
}

TEST(LaunchTest, APartOfALongMessageHasALaneOfItsOwn) {
  constexpr uint64_t kPartBytes = 65536;
  for (const uint64_t reference_bytes : {uint64_t{4096}, UINT64_MAX}) {
    World world({.shape = {.slots = 8, .slot_bytes = 4096},
                 .threads = 4,
                 .poll_limit = 3,
                 .device = {.block_slots = 2, .seed = 3},
                 .kernel = &tutti_run});
    std::vector<Words> sent(2, Words(3 * kPartBytes / 4 + 20)), came(2, Words(sent[0].size()));
    for (uint32_t rank = 0; rank < 2; ++rank) {
      std::iota(sent[rank].begin(), sent[rank].end(), 1'000'000 * rank);
      const uint64_t bytes = sent[rank].size() * 4;
      const uint32_t peer = 1 - rank;
      const std::vector<Message> messages = {
          {.buffer = sent[rank].data(), .bytes = bytes - 40, .peer = peer, .sending = true, .seed = 5},
          {.buffer = came[rank].data(), .bytes = bytes - 40, .peer = peer, .sending = false, .seed = 5},
          {.buffer = sent[rank].data() + bytes / 4 - 10,
           .bytes = 40,
           .peer = peer,
           .sending = true,
           .seed = 7},
          {.buffer = came[rank].data() + bytes / 4 - 10,
           .bytes = 40,
           .peer = peer,
           .sending = false,
           .seed = 7}};
      const BindOptions options{.reference_bytes = reference_bytes, .slots = 2, .slot_bytes = 4 * 4096};
      const cuda::Image image = cuda::bind_messages(messages, options, world.links(rank), 4);
      EXPECT_EQ(image.lanes.size(), 6u) << "two directions of three parts";
      world.set_program(rank, image);
    }
    ASSERT_EQ(world.call({{}, {}}), "");
    for (uint32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(came[rank], sent[1 - rank]);
  }
}

TEST(LaunchTest, ARankWithNothingToDoIsDoneAtOnce) {
  Ranks ranks(small_case(Collective::kAllReduce, "ring"));
  ranks.world.set_program(0, nothing_to_do());
  ranks.world.launch_alone(0, {});
  EXPECT_EQ(ranks.world.look(0), cuda::LaunchEnd::kDone);
  EXPECT_EQ(ranks.world.report(0).sequence, 1u);
}

}  // namespace
}  // namespace tutti::test
