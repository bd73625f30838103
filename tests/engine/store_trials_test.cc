// Stores into slots: the fastest kind is found, whatever is stored arrives whole.
#include "transports/store_trials.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "engine/operation.h"
#include "tests/engine/raw_links.h"

namespace tutti::test {
namespace {

using enum Stores;
constexpr auto kShort = StoreTrials::kShortPiece;
constexpr auto kMiddle = StoreTrials::kMiddlePiece;
constexpr auto kLong = StoreTrials::kLongPiece;
constexpr auto kWide = StoreTrials::kWideSlices;

constexpr uint64_t kBytes = 4096;
constexpr uint64_t kFastNs = 400;
constexpr uint64_t kSlowNs = 2400;

std::optional<Stores> trial_of(uint64_t number, uint64_t slots, StoreTrials::Length length) {
  const auto trial = StoreTrials::trial_of(number, slots, length);
  return trial ? std::optional(trial->stores) : std::nullopt;
}
std::optional<Stores> timed_trial_of(uint64_t number, uint64_t slots, StoreTrials::Length length) {
  const auto trial = StoreTrials::trial_of(number, slots, length);
  return trial && trial->is_timed ? std::optional(trial->stores) : std::nullopt;
}

// Goal: a length that a link carries for the first time is tried at once. While trials went by the numbers of
// all messages, calls of 256 KiB used the slowest stores for up to 112 calls, and so were pulled.
TEST(StoreTrialsTest, TheTrialsOfALengthBeginWithItsFirstMessage) {
  MessagesByLength messages;
  EXPECT_EQ(messages.place(1000, StoreTrials::kMiddlePiece), 0u);
  EXPECT_EQ(messages.place(1500, StoreTrials::kLongPiece), 0u);
  EXPECT_EQ(messages.place(1501, StoreTrials::kLongPiece), 1u);
  EXPECT_EQ(messages.place(1502, StoreTrials::kMiddlePiece), 502u);
}

TEST(StoreTrialsTest, FewMessagesAreTrialsOneOfEachKind) {
  for (const uint64_t slots : {4u, 32u, 128u, 256u}) {
    std::map<Stores, uint32_t> of_short;
    for (uint64_t number = 0; number < 48 * slots; ++number) {
      if (const auto trial = timed_trial_of(number, slots, kShort)) ++of_short[*trial];
    }
    EXPECT_EQ(of_short, (std::map<Stores, uint32_t>{{kOrdinary, 12}, {kStreaming, 12}})) << slots;
  }
}

// Goal: no trial is passed over by ends that ask only now and then.
TEST(StoreTrialsTest, TheNextTrialIsTheFirstFromTheNumberOn) {
  for (const auto length : {kShort, kMiddle, kLong, kWide}) {
    for (const uint64_t slots : {0u, 2u, 4u, 8u, 32u, 64u, 1024u}) {
      MessagesByLength messages;
      constexpr uint64_t kBefore = 77;  // of other lengths
      for (uint64_t number = 0; number < 10'000; ++number) {
        const uint64_t next = StoreTrials::next_trial(number, slots, length);
        EXPECT_GE(next, number);
        const bool is_trial = trial_of(number, slots, length).has_value();
        if (is_trial) {
          EXPECT_EQ(next, number) << "slots " << slots << ", length " << length;
        }
        EXPECT_EQ(messages.is_quiet(kBefore + number, length, slots), !is_trial) << number << " of " << slots;
      }
    }
  }
}

// Goal: of longer pieces a trial is a run of slices, at most a few in a hundred. A string move among other
// stores took longer than one among its like: messages of 32 KiB took up to 1.25 times as long.
TEST(StoreTrialsTest, LongerPiecesHaveRunsOfSlices) {
  for (const auto length : {kMiddle, kLong}) {
    for (const uint64_t slots : {8u, 16u, 32u, 64u, 128u, 256u}) {
      std::map<Stores, uint64_t> tried;
      std::map<Stores, uint64_t> timed;
      constexpr uint64_t kNumbers = 12288;
      for (uint64_t number = 0; number < kNumbers; ++number) {
        const auto trial = trial_of(number, slots, length);
        if (trial) ++tried[*trial];
        if (trial) {
          EXPECT_EQ(trial, trial_of(number ^ 1, slots, length)) << "slices of a run";
        }
        if (const auto also = timed_trial_of(number, slots, length)) ++timed[*also];
      }
      for (const Stores kind : {kOrdinary, kStreaming, kString}) {
        EXPECT_EQ(2 * timed[kind], tried[kind]) << "every second run";
        EXPECT_LE(tried[kind] * 100, kNumbers);
        EXPECT_GE(timed[kind], 2u);
      }
    }
  }
}

// Goal: no ring is too short, not even one without such slots. It divided by zero.
TEST(StoreTrialsTest, AnyRingHasTrialsOrNone) {
  for (const auto length : {kShort, kMiddle, kLong, kWide}) {
    for (const uint64_t slots : {0u, 1u, 2u, 4u}) {
      for (uint64_t number = 0; number < 64; ++number) {
        const auto trial = trial_of(number, slots, length);
        const auto timed = timed_trial_of(number, slots, length);
        EXPECT_TRUE(!timed || timed == trial);
        EXPECT_FALSE(trial && (slots == 0 || StoreTrials::times_runs(length))) << "no room for runs";
      }
    }
  }
}

// Goal: a first trial that went wrong does not decide for long. Cores are cold then, and far cores took three
// times as long for 500 calls in half of the starts (reduce_scatter of 384 KiB of 4 ranks).
TEST(StoreTrialsTest, TheSecondTrialFollowsSoon) {
  for (const uint64_t slots : {16u, 128u}) {
    EXPECT_EQ(StoreTrials::next_trial(2 * slots, slots, kMiddle), 576u);
    EXPECT_EQ(StoreTrials::next_trial(576 + 2 * slots, slots, kMiddle), 576u + 2048);
  }
}

// Goal: no kind is always tried on the first slice of a message, which takes longer than the others.
TEST(StoreTrialsTest, EachKindIsTriedInEachPlace) {
  constexpr uint64_t kSlots = 32;
  for (const auto length : {kShort, kMiddle, kLong}) {
    std::map<uint64_t, std::set<Stores>> tried;
    std::set<Stores> all;
    for (uint64_t number = 0; number < 8192; ++number) {
      if (const auto trial = timed_trial_of(number, kSlots, length)) {
        tried[number % kSlots].insert(*trial);
        all.insert(*trial);
      }
    }
    for (const auto& [place, kinds] : tried) EXPECT_EQ(kinds, all) << place;
  }
}

// Between far cores, 2 KiB took 1.4 us instead of 0.75: one message past the caches among ordinary ones is
// slow.
TEST(StoreTrialsTest, ATimedTrialFollowsOneOfItsKindInTheSameSlot) {
  constexpr uint64_t kSlots = 32;
  for (const auto length : {kShort, kMiddle, kLong}) {
    for (uint64_t number = 0; number < 16 * kSlots; ++number) {
      const auto timed = timed_trial_of(number, kSlots, length);
      if (!timed) continue;
      ASSERT_GE(number, kSlots);
      EXPECT_EQ(trial_of(number - kSlots, kSlots, length), timed) << number;
      EXPECT_EQ(timed_trial_of(number - kSlots, kSlots, length), std::nullopt) << number;
    }
  }
}

Stores choose(Stores now, const StoreTrials::Costs& writer, const StoreTrials::Costs& reader,
              StoreTrials::Length length = kMiddle) {
  return StoreTrials::choose(now, length, writer, reader);
}

TEST(StoreTrialsTest, TheSumOfBothEndsDecides) {
  const StoreTrials::Costs near = {100, 130, 0};
  const StoreTrials::Costs far = {500, 110, 0};
  const StoreTrials::Costs unknown = {0, 110, 0};
  EXPECT_EQ(choose(kOrdinary, near, near), kOrdinary);
  EXPECT_EQ(choose(kOrdinary, far, near), kStreaming) << "only the writer is slow";
  EXPECT_EQ(choose(kOrdinary, near, far), kStreaming) << "only the reader is slow";
  EXPECT_EQ(choose(kStreaming, near, near), kOrdinary) << "the cores have come together";
  for (const Stores now : {kOrdinary, kStreaming}) {
    EXPECT_EQ(choose(now, far, unknown), now);
    EXPECT_EQ(choose(now, unknown, far), now);
  }
}

TEST(StoreTrialsTest, StringMovesAreChosenWhereTheyAreTheFastest) {
  const StoreTrials::Costs near = {100, 140, 80};
  const StoreTrials::Costs far = {500, 110, 90};
  const StoreTrials::Costs far_stream = {130, 55, 60};
  const StoreTrials::Costs near_and_cold = {130, 90, 60};
  const StoreTrials::Costs slow = {100, 140, 400};
  for (const Stores now : {kOrdinary, kStreaming, kString}) {
    EXPECT_EQ(choose(now, near, near), kString);
    EXPECT_EQ(choose(now, far, far), kString);
    EXPECT_EQ(choose(now, far_stream, far_stream, kLong), kStreaming);
    EXPECT_EQ(choose(now, near_and_cold, near_and_cold), kString);
    EXPECT_EQ(choose(now, slow, slow), kOrdinary);
  }
}

TEST(StoreTrialsTest, InterleavedStoresAreChosenWhereTheyAreTheFastest) {
  const StoreTrials::Costs cold = {130, 150, 120, 90};
  const StoreTrials::Costs hot = {90, 130, 100, 110};
  const StoreTrials::Costs not_tried = {130, 150, 120, 0};
  for (const Stores now : {kOrdinary, kStreaming, kString, kInterleaved}) {
    EXPECT_EQ(choose(now, cold, cold, kWide), kInterleaved);
    EXPECT_EQ(choose(now, hot, hot, kWide), kOrdinary);
  }
  EXPECT_EQ(choose(kOrdinary, not_tried, not_tried), kString);
  const StoreTrials::Costs equal = {130, 150, 100, 101};
  EXPECT_EQ(choose(kString, equal, equal, kWide), kString);
  EXPECT_EQ(choose(kInterleaved, equal, equal, kWide), kInterleaved) << "a small difference changes nothing";
}

// Goal: what a reader shows is what it measured, but for a few bits, and is known if that is.
TEST(StoreTrialsTest, ShownCostsHaveFewBits) {
  const auto seen = [](uint32_t cost) { return StoreTrials::seen(StoreTrials::shown(cost)); };
  EXPECT_EQ(seen(0), 0u);
  EXPECT_EQ(seen(1), 32u);
  EXPECT_EQ(seen(32), 32u);
  EXPECT_EQ(seen(40 * 64), 40u * 64);
  EXPECT_GE(seen(UINT32_MAX), 32 * StoreTrials::kUnit) << "32 ns a byte and more are alike";
}

// Goal: a sum, whose writer cannot try the other kinds, gets the better of these two.
TEST(StoreTrialsTest, KindsThatAWriterHasNotTriedAreNotChosen) {
  const StoreTrials::Costs reader = {130, 90, 60, 50};
  EXPECT_EQ(choose(kOrdinary, {130, 90, 0, 0}, reader, kWide), kStreaming);
  EXPECT_EQ(choose(kOrdinary, {90, 130, 0, 0}, reader, kWide), kOrdinary);
}

// Goal: a link that carries both counts them apart.
TEST(SendLinkTest, SumsAreNoTrialsOfCopies) {
  SendLink link;
  link.may_stream = true;
  link.slot_mask = 31;
  link.slot_bytes = kBytes;
  link.judge(kStreaming, kMiddle, kBytes, kStoresOfSums, 1000, 2000);
  link.judge(kOrdinary, kMiddle, kBytes, kAllStores, 1000, 2000);
  EXPECT_EQ(link.of_sums[kMiddle].trials.costs()[0], 0u);
  EXPECT_GT(link.of_sums[kMiddle].trials.costs()[1], 0u);
  EXPECT_GT(link.of_copies[kMiddle].trials.costs()[0], 0u);
  EXPECT_EQ(link.of_copies[kMiddle].trials.costs()[1], 0u);
  link.of_sums[kMiddle].choice = kStreaming;
  const uint64_t between_trials = 2047;
  link.next = between_trials;
  EXPECT_EQ(link.next_stores(kMiddle, kBytes, kStoresOfSums).stores, kStreaming);
  EXPECT_EQ(link.next_stores(kMiddle, kBytes, kAllStores).stores, kOrdinary);
}

// Goal: each length tries the kinds that can gain there.
TEST(StoreTrialsTest, LongerPiecesTryMoreKinds) {
  const std::map<StoreTrials::Length, std::set<Stores>> wanted = {
      {kShort, {kOrdinary, kStreaming}},
      {kMiddle, {kOrdinary, kStreaming, kString}},
      {kLong, {kOrdinary, kStreaming, kString, kInterleaved}},
      {kWide, {kOrdinary, kStreaming, kString, kInterleaved}}};
  for (const auto& [length, kinds] : wanted) {
    std::set<Stores> tried;
    for (uint64_t number = 0; number < 8192; ++number) {
      if (const auto trial = timed_trial_of(number, 32, length)) tried.insert(*trial);
    }
    EXPECT_EQ(tried, kinds) << int{length};
  }
}

// Goal: a small difference does not make the writer change back and forth.
TEST(StoreTrialsTest, ASmallDifferenceChangesNothing) {
  const StoreTrials::Costs equal = {100, 100, 0};
  const StoreTrials::Costs slightly = {125, 100, 0};
  EXPECT_EQ(choose(kOrdinary, equal, slightly), kOrdinary);
  EXPECT_EQ(choose(kStreaming, equal, slightly), kStreaming);
  const StoreTrials::Costs near = {100, 140, 101};
  const StoreTrials::Costs near_too = {100, 140, 104};
  EXPECT_EQ(choose(kOrdinary, near, near), kOrdinary);
  EXPECT_EQ(choose(kString, near_too, near_too), kString);
  const StoreTrials::Costs runs = {104, 100, 94};
  EXPECT_EQ(choose(kOrdinary, runs, runs, kLong), kOrdinary);
  EXPECT_EQ(choose(kStreaming, runs, runs, kLong), kStreaming);
  EXPECT_EQ(choose(kString, runs, runs, kLong), kString);
}

// Goal: of string moves and ordinary stores that cost as much, string moves are chosen, because trials of
// single slices show less than what they gain.
TEST(StoreTrialsTest, StringMovesNeedNotBeMuchFaster) {
  const StoreTrials::Costs near = {100, 140, 99};
  EXPECT_EQ(choose(kOrdinary, near, near), kString);
  EXPECT_EQ(choose(kOrdinary, near, near, kLong), kOrdinary) << "runs show the whole gain";
}

TEST(StoreTrialsTest, ABadFirstTrialIsForgottenAtOnce) {
  StoreTrials trials;
  trials.add(kOrdinary, kBytes, 1000 * kFastNs);
  trials.add(kOrdinary, kBytes, kFastNs);
  EXPECT_EQ(trials.costs()[0], kFastNs * StoreTrials::kUnit / kBytes);
}

// Goal: a link's first trial, whose copies were the first to touch the caller's buffers, has no part in later
// means. It had one of those kinds that then were less than four times as fast, so they seemed slow.
TEST(StoreTrialsTest, TheFirstTrialCountsOnlyUntilTheNextOne) {
  StoreTrials trials;
  const auto count = [&](Stores kind, uint64_t number, uint64_t took_ns) {
    trials.count(kind, {.number = number, .slots = 16, .length = kMiddle, .bytes = 1000}, 1, 1 + took_ns);
  };
  count(kOrdinary, 16, 870);
  count(kStreaming, 20, 870);
  count(kOrdinary, 592, 140);
  count(kStreaming, 596, 240);
  EXPECT_EQ(trials.costs()[0], 140 * StoreTrials::kUnit / 1000);
  EXPECT_EQ(trials.costs()[1], 240 * StoreTrials::kUnit / 1000);
  count(kStreaming, 2644, 280);
  EXPECT_EQ(trials.costs()[1], 260 * StoreTrials::kUnit / 1000) << "later trials share a mean";
}

// Goal: a mean is of more trials where slices are short.
TEST(StoreTrialsTest, ShortSlicesNeedMoreTrials) {
  const auto after_one_slow = [](uint64_t bytes) {
    StoreTrials trials;
    for (int i = 0; i < 20; ++i) trials.add(kOrdinary, bytes, bytes);
    trials.add(kOrdinary, bytes, 2 * bytes);
    return trials.costs()[0] * 1000 / StoreTrials::kUnit;
  };
  EXPECT_EQ(after_one_slow(4096), 1125u);
  EXPECT_EQ(after_one_slow(8192), 1125u);
  EXPECT_EQ(after_one_slow(16384), 1200u);
  EXPECT_EQ(after_one_slow(65536), 1333u);
}

// Goal: one short time is forgotten, as one long one is. A mean of whole picoseconds stayed at 35 of 38.
TEST(StoreTrialsTest, AMeanRisesAgain) {
  StoreTrials trials;
  constexpr uint64_t kSlice = 8192;
  const auto add = [&](int count, uint64_t took_ns) {
    for (int i = 0; i < count; ++i) trials.add(kOrdinary, kSlice, took_ns);
    return trials.costs()[0];
  };
  const uint32_t before = add(20, 311);
  EXPECT_LT(add(1, 164), before);
  EXPECT_NEAR(add(40, 311), before, before / 100.0);
}

TEST(StoreTrialsTest, PiecesAndTheirSlicesHaveFourLengths) {
  constexpr uint64_t kSlice = 16384;
  EXPECT_EQ(StoreTrials::length_of(4095, kSlice), kShort);
  EXPECT_EQ(StoreTrials::length_of(4096, kSlice), kMiddle);
  EXPECT_EQ(StoreTrials::length_of(131071, kWideSlotBytes), kMiddle);
  EXPECT_EQ(StoreTrials::length_of(131072, kSlice), kLong);
  EXPECT_EQ(StoreTrials::length_of(kLeastWidePiece, kSlice), kLong) << "a plan that needs many slots";
  EXPECT_EQ(StoreTrials::length_of(kLeastWidePiece, kWideSlotBytes), kWide);
}

TEST(StoreTrialsTest, AnEndThatLostItsCoreDoesNotDecide) {
  StoreTrials trials;
  for (int i = 0; i < 10; ++i) {
    trials.add(kOrdinary, kBytes, kFastNs);
    trials.add(kStreaming, kBytes, kFastNs);
  }
  trials.add(kOrdinary, kBytes, 1000 * kFastNs);
  EXPECT_LE(trials.costs()[0], 2 * trials.costs()[1]);
  for (int i = 0; i < 10; ++i) trials.add(kOrdinary, kBytes, kSlowNs);
  EXPECT_GT(trials.costs()[0], 4 * trials.costs()[1]) << "cores that moved apart are noticed";
}

/// Sends messages, of two slots if not said otherwise, from rank 0 to rank 1 over slots of 4 KiB, in turns,
/// and checks each.
class StoresTest : public testing::Test {
 protected:
  explicit StoresTest(const RingShape& shape = {.slots = 4, .slot_bytes = kBytes}) : shape_(shape) {
    SendLink& send = network_.send(0, 1, kMessageChannel);
    send.same_process = false;
    send.may_stream = true;
    network_.recv(0, 1, kMessageChannel).judges = true;
  }

  void exchange(int messages, uint64_t bytes = 2 * kBytes) {
    for (int i = 0; i < messages; ++i) {
      std::vector<std::byte> sent(bytes);
      std::vector<std::byte> got(bytes);
      for (size_t at = 0; at < sent.size(); ++at) sent[at] = static_cast<std::byte>(at * 7 + at / 256 + i);
      auto sender = bind(first_, {.buffer = sent.data(), .bytes = sent.size(), .peer = 1, .sending = true});
      auto receiver = bind(second_, {.buffer = got.data(), .bytes = got.size(), .peer = 0});
      for (int turn = 0; turn < 1000 && receiver->advance(1) != Progress::kDone; ++turn) sender->advance(1);
      ASSERT_EQ(got, sent) << "message " << i;
      ASSERT_EQ(sender->advance(1), Progress::kDone);
    }
  }
  std::unique_ptr<Operation> bind(RawLinks& links, const Message& message) const {
    auto operation = Operation::bind_messages(std::span(&message, 1),
                                              {.string_moves = reduce::has_string_moves(),
                                               .slots = shape_.slots,
                                               .slot_bytes = shape_.slot_bytes,
                                               .wide_slots = shape_.wide_slots},
                                              links);
    operation->start({}, 0);
    return operation;
  }

  RingShape shape_;
  RawNetwork network_{shape_};
  RawLinks first_{network_, 0};
  RawLinks second_{network_, 1};
};

// Goal: both ends count a length from the same message, whatever came before it, and time its trials at once.
TEST_F(StoresTest, BothEndsCountALengthFromItsFirstMessage) {
  exchange(3, 8);
  exchange(4);  // of two slices: two rounds of the ring
  SendLink& send = network_.send(0, 1, kMessageChannel);
  RecvLink& recv = network_.recv(0, 1, kMessageChannel);
  EXPECT_EQ(send.messages.place(send.next, kMiddle), 8u);
  EXPECT_EQ(recv.messages.place(recv.next, kMiddle), 8u);
  for (const size_t kind : {0u, 1u}) {
    EXPECT_GT(send.of_copies[kMiddle].trials.costs()[kind], 0u);
    EXPECT_GT(recv.trials[kMiddle].costs()[kind], 0u);
  }
}

// Goal: the same of messages of one slice, which take the short path between trials. There a reader asks for
// the next trial before the message has come.
TEST_F(StoresTest, BothEndsCountMessagesOfOneSlice) {
  exchange(3, 8);
  for (const uint64_t bytes : {kBytes, kBytes - 1, uint64_t{1024}, uint64_t{1023}}) exchange(40, bytes);
  SendLink& send = network_.send(0, 1, kMessageChannel);
  RecvLink& recv = network_.recv(0, 1, kMessageChannel);
  EXPECT_EQ(send.messages.place(send.next, kMiddle), 160u);
  EXPECT_EQ(recv.messages.place(recv.next, kMiddle), 160u);
  EXPECT_EQ(send.messages.place(send.next, kShort), 120u);
  EXPECT_EQ(recv.messages.place(recv.next, kShort), 120u);
  for (const size_t kind : {0u, 1u}) {
    EXPECT_GT(send.of_copies[kMiddle].trials.costs()[kind], 0u);
    EXPECT_GT(recv.trials[kMiddle].costs()[kind], 0u);
  }
}

// Goal: both ends time the trials, and the reader shows its figures to the writer.
TEST_F(StoresTest, BothEndsTimeTheTrials) {
  exchange(4);  // two rounds of the ring
  const SendLink& send = network_.send(0, 1, kMessageChannel);
  for (const size_t kind : {0u, 1u}) {
    EXPECT_GT(send.of_copies[kMiddle].trials.costs()[kind], 0u);
    EXPECT_GT(load_shared(send.credits[0].store_costs[kMiddle][kind]), 0u);
  }
  EXPECT_EQ(send.of_copies[kLong].trials.costs(), StoreTrials::Costs{});
}

// Goal: the messages of longer pieces are counted apart, and try string moves too, where the CPU has them.
TEST_F(StoresTest, LongerPiecesTryStringMoves) {
  exchange(8, StoreTrials::kLeastMiddlePiece);
  const SendLink& send = network_.send(0, 1, kMessageChannel);
  for (const size_t kind : {0u, 1u, 2u}) {
    const bool is_tried = kind < 2 || reduce::has_string_moves();
    EXPECT_EQ(send.of_copies[kMiddle].trials.costs()[kind] > 0, is_tried) << kind;
    EXPECT_GT(load_shared(send.credits[0].store_costs[kMiddle][kind]), 0u) << kind;
  }
  EXPECT_EQ(send.of_copies[kShort].trials.costs(), StoreTrials::Costs{});
}

/// Rings with room for runs, and with wide slots.
class StoresInRunsTest : public StoresTest {
 protected:
  StoresInRunsTest() : StoresTest({.slots = 32, .slot_bytes = kBytes, .wide_slots = 8}) {}

  StoreTrials::Costs shown(StoreTrials::Length length) {
    StoreTrials::Costs costs = {};
    for (size_t kind = 0; kind < kStoresCount; ++kind)
      costs[kind] = load_shared(network_.send(0, 1, kMessageChannel).credits[0].store_costs[length][kind]);
    return costs;
  }
};

// Goal: of long pieces both ends time runs, of each kind.
TEST_F(StoresInRunsTest, BothEndsTimeRuns) {
  exchange(2, StoreTrials::kLeastLongPiece);  // 32 slices each
  for (const uint32_t cost : shown(kLong)) EXPECT_GT(cost, 0u);
  const StoreTrials::Costs written = network_.send(0, 1, kMessageChannel).of_copies[kLong].trials.costs();
  for (const Stores kind : {kOrdinary, kStreaming, kString, kInterleaved})
    EXPECT_EQ(written[static_cast<size_t>(kind)] > 0, kind != kString || reduce::has_string_moves());
  EXPECT_EQ(shown(kWide), StoreTrials::Costs{});
}

// Goal: slices in wide slots have runs of their own, in rounds of the wide slots.
TEST_F(StoresInRunsTest, WideSlicesHaveRunsOfTheirOwn) {
  exchange(1, kLeastWidePiece);  // 16 slices
  for (const uint32_t cost : shown(kWide)) EXPECT_GT(cost, 0u);
  EXPECT_EQ(shown(kLong), StoreTrials::Costs{});
}

/// A slice of 1000 bytes whose copy ended at `end_ns`.
void count(StoreTrials& trials, Stores kind, uint64_t number, uint64_t end_ns) {
  trials.count(kind, {.number = number, .slots = 32, .length = kLong, .bytes = 1000}, end_ns - 1, end_ns);
}

// Goal: a run's cost is of all its slices but the first one, waiting included.
TEST(StoreTrialsTest, ARunCountsFromItsFirstSliceOn) {
  StoreTrials trials;
  const uint64_t slices = StoreTrials::run_slices(32, kLong);
  for (uint64_t number = 0; number < slices; ++number) count(trials, kOrdinary, number, 100 + number * 500);
  EXPECT_EQ(trials.costs()[0], StoreTrials::kUnit / 2);
}

// Goal: the time between two pieces is not the stream's, and what each has of a run counts.
TEST(StoreTrialsTest, ARunEndsWithItsPiece) {
  StoreTrials trials;
  count(trials, kOrdinary, 1, 100);
  count(trials, kOrdinary, 2, 400);
  trials.end_run();
  constexpr uint32_t kCost = StoreTrials::kUnit * 3 / 10;
  EXPECT_EQ(trials.costs()[0], kCost);
  count(trials, kStreaming, 3, 90'000);
  trials.end_run();
  EXPECT_EQ(trials.costs(), (StoreTrials::Costs{kCost, 0, 0})) << "one slice is no run";
}

// Goal: runs of two kinds that follow each other are two.
TEST(StoreTrialsTest, ARunHasOneKind) {
  StoreTrials trials;
  count(trials, kOrdinary, 6, 100);
  count(trials, kStreaming, 7, 1100);
  count(trials, kStreaming, 9, 9000);  // message 8 was pulled
  trials.end_run();
  EXPECT_EQ(trials.costs(), StoreTrials::Costs{});
}

// Goal: whatever a writer chooses, payloads arrive whole. Method: the reader judges nothing, so the choice
// stays.
TEST_F(StoresTest, PayloadsAreWholeWithEachChoice) {
  network_.recv(0, 1, kMessageChannel).judges = false;
  SendLink& send = network_.send(0, 1, kMessageChannel);
  for (const Stores choice : {kOrdinary, kStreaming, kString, kInterleaved}) {
    for (WriterStores& stores : send.of_copies) stores.choice = choice;
    for (const uint64_t bytes :
         {StoreTrials::kLeastBytes, StoreTrials::kLeastMiddlePiece, StoreTrials::kLeastLongPiece}) {
      for (const uint64_t more : {0u, 1u, 1000u}) exchange(10, bytes + more);
    }
    EXPECT_EQ(send.of_copies[kLong].choice, choice);
  }
}

// Goal: a link of a network transport is not tried: its writer and its reader are one thread.
TEST_F(StoresTest, LinksOfANetworkAreNotTried) {
  network_.send(0, 1, kMessageChannel).may_stream = false;
  network_.recv(0, 1, kMessageChannel).judges = false;
  exchange(3);
  const SendLink& send = network_.send(0, 1, kMessageChannel);
  EXPECT_EQ(send.of_copies[kMiddle].trials.costs(), StoreTrials::Costs{});
  EXPECT_EQ(load_shared(send.credits[0].store_costs[kMiddle][0]), 0u);
}

}  // namespace
}  // namespace tutti::test
