// Ordinary stores or streaming into slots: the faster kind is found, whatever is stored arrives whole.
#include "transports/store_trials.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/operation.h"
#include "tests/engine/raw_links.h"

namespace tutti::test {
namespace {

using Trial = StoreTrials::Trial;

constexpr uint64_t kBytes = 4096;
constexpr uint64_t kFastNs = 400;
constexpr uint64_t kSlowNs = 2400;

TEST(StoreTrialsTest, FewMessagesAreTrialsOneOfEachKind) {
  for (const uint64_t slots : {4u, 32u, 128u, 256u}) {
    uint32_t ordinary = 0;
    uint32_t streaming = 0;
    for (uint64_t number = 0; number < 16 * slots; ++number) {
      ordinary += StoreTrials::timed_trial_of(number, slots) == Trial::kOrdinary ? 1 : 0;
      streaming += StoreTrials::timed_trial_of(number, slots) == Trial::kStreaming ? 1 : 0;
    }
    EXPECT_EQ(ordinary, 4u) << slots;
    EXPECT_EQ(streaming, 4u) << slots;
  }
}

// Between far cores, 2 KiB took 1.4 us instead of 0.75: one message past the caches among ordinary ones is
// slow.
TEST(StoreTrialsTest, ATimedTrialFollowsOneOfItsKindInTheSameSlot) {
  constexpr uint64_t kSlots = 32;
  for (uint64_t number = 0; number < 16 * kSlots; ++number) {
    const Trial timed = StoreTrials::timed_trial_of(number, kSlots);
    if (timed == Trial::kNone) continue;
    ASSERT_GE(number, kSlots);
    EXPECT_EQ(StoreTrials::trial_of(number - kSlots, kSlots), timed) << number;
    EXPECT_EQ(StoreTrials::timed_trial_of(number - kSlots, kSlots), Trial::kNone) << number;
  }
}

TEST(StoreTrialsTest, TheSumOfBothEndsDecides) {
  const StoreTrials::Costs near = {100, 130};
  const StoreTrials::Costs far = {500, 110};
  const StoreTrials::Costs unknown = {0, 110};
  EXPECT_FALSE(StoreTrials::choose(false, near, near));
  EXPECT_TRUE(StoreTrials::choose(false, far, near)) << "only the writer is slow";
  EXPECT_TRUE(StoreTrials::choose(false, near, far)) << "only the reader is slow";
  EXPECT_FALSE(StoreTrials::choose(true, near, near)) << "the cores have come together";
  for (const bool now : {false, true}) {
    EXPECT_EQ(StoreTrials::choose(now, far, unknown), now);
    EXPECT_EQ(StoreTrials::choose(now, unknown, far), now);
  }
}

// Goal: a small difference does not make the writer change back and forth.
TEST(StoreTrialsTest, ASmallDifferenceChangesNothing) {
  const StoreTrials::Costs equal = {100, 100};
  const StoreTrials::Costs slightly = {140, 100};
  EXPECT_FALSE(StoreTrials::choose(false, equal, slightly));
  EXPECT_TRUE(StoreTrials::choose(true, equal, slightly));
}

TEST(StoreTrialsTest, AnEndThatLostItsCoreDoesNotDecide) {
  StoreTrials trials;
  for (int i = 0; i < 10; ++i) {
    trials.add(Trial::kOrdinary, kBytes, kFastNs);
    trials.add(Trial::kStreaming, kBytes, kFastNs);
  }
  trials.add(Trial::kOrdinary, kBytes, 1000 * kFastNs);
  EXPECT_LE(trials.costs()[0], 2 * trials.costs()[1]);
  for (int i = 0; i < 10; ++i) trials.add(Trial::kOrdinary, kBytes, kSlowNs);
  EXPECT_GT(trials.costs()[0], 4 * trials.costs()[1]) << "cores that moved apart are noticed";
}

/// Sends messages of 8 KiB from rank 0 to rank 1 over slots of 4 KiB, in turns, and checks each.
class StoresTest : public testing::Test {
 protected:
  StoresTest() {
    SendLink& send = network_.send(0, 1, kMessageChannel);
    send.same_process = false;
    send.may_stream = true;
    network_.recv(0, 1, kMessageChannel).judges = true;
  }

  void exchange(int messages) {
    for (int i = 0; i < messages; ++i) {
      std::vector<std::byte> sent(2 * kBytes);
      std::vector<std::byte> got(2 * kBytes);
      for (size_t at = 0; at < sent.size(); ++at) sent[at] = static_cast<std::byte>(at * 7 + at / 256 + i);
      auto sender = bind(first_, {.buffer = sent.data(), .bytes = sent.size(), .peer = 1, .sending = true});
      auto receiver = bind(second_, {.buffer = got.data(), .bytes = got.size(), .peer = 0});
      for (int turn = 0; turn < 10 && receiver->advance(1) != Progress::kDone; ++turn) sender->advance(1);
      ASSERT_EQ(got, sent) << "message " << i;
      ASSERT_EQ(sender->advance(1), Progress::kDone);
    }
  }
  static std::unique_ptr<Operation> bind(RawLinks& links, const Message& message) {
    auto operation = Operation::bind_messages(
        std::span(&message, 1), {.slots = kShape.slots, .slot_bytes = kShape.slot_bytes}, links);
    operation->start({}, 0);
    return operation;
  }

  static constexpr RingShape kShape{.slots = 4, .slot_bytes = kBytes};
  RawNetwork network_{kShape};
  RawLinks first_{network_, 0};
  RawLinks second_{network_, 1};
};

// Goal: both ends time the trials, and the reader shows its figures to the writer.
TEST_F(StoresTest, BothEndsTimeTheTrials) {
  exchange(4);  // two rounds of the ring
  const SendLink& send = network_.send(0, 1, kMessageChannel);
  for (const size_t kind : {0u, 1u}) {
    EXPECT_GT(send.trials.costs()[kind], 0u);
    EXPECT_GT(load_shared(send.credits[0].store_costs[kind]), 0u);
  }
}

// Goal: a writer whose trials say so streams, and the payloads arrive whole.
TEST_F(StoresTest, AWriterStreamsAndThePayloadsAreWhole) {
  SendLink& send = network_.send(0, 1, kMessageChannel);
  send.trials.add(Trial::kOrdinary, kBytes, 100'000'000);
  send.trials.add(Trial::kStreaming, kBytes, 1);
  exchange(100);
  EXPECT_TRUE(send.streams);
}

// Goal: a link of a network transport is not tried: its writer and its reader are one thread.
TEST_F(StoresTest, LinksOfANetworkAreNotTried) {
  network_.send(0, 1, kMessageChannel).may_stream = false;
  network_.recv(0, 1, kMessageChannel).judges = false;
  exchange(3);
  EXPECT_EQ(network_.send(0, 1, kMessageChannel).trials.costs(), StoreTrials::Costs{});
  EXPECT_EQ(load_shared(network_.send(0, 1, kMessageChannel).credits[0].store_costs[0]), 0u);
}

}  // namespace
}  // namespace tutti::test
