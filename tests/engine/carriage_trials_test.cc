// Slots or pulling: the faster one is found, kept through noise, and found again when it changes.
#include "transports/carriage_trials.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "engine/result_trials.h"

namespace tutti {
namespace {

constexpr uint64_t kSlow = 500'000;
constexpr uint64_t kFast = 400'000;
constexpr uint64_t kThroughSlots = 8;
constexpr PullTrial kShape = {.through_slots = kThroughSlots};
/// The first trial is over, but not its repetition.
constexpr uint32_t kFirstTrial = 86;
/// The second one, too.
constexpr uint32_t kFirstCalls = 280;

struct Times {
  uint64_t slots_ns = 0;
  uint64_t pulled_ns = 0;
};

/// Runs `count` calls and returns how many were pulled.
uint32_t run(CarriageTrials& trials, uint32_t count, const Times& times) {
  uint32_t pulled = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const bool pulls = trials.begin();
    pulled += pulls ? 1 : 0;
    trials.end(pulls, pulls ? times.pulled_ns : times.slots_ns);
  }
  return pulled;
}

TEST(CarriageTrialsTest, BothAreTriedThenTheFasterOneIsKept) {
  CarriageTrials slots(kShape);
  EXPECT_EQ(run(slots, kFirstCalls, {kFast, kSlow}), 2 * kPulledCalls);
  EXPECT_EQ(run(slots, 1000, {kFast, kSlow}), kPulledCalls) << "a trial at call 1032";

  CarriageTrials pulling(kShape);
  run(pulling, kFirstCalls, {kSlow, kFast});
  EXPECT_EQ(run(pulling, 1000, {kSlow, kFast}), 1000 - kThroughSlots);
}

// Goal: two trials decide, and the second one follows at once.
TEST(CarriageTrialsTest, ATrialAgainstThePresentWayIsRepeatedAtOnce) {
  CarriageTrials trials(kShape);
  EXPECT_EQ(run(trials, kFirstTrial, {kSlow, kFast}), kPulledCalls);
  EXPECT_EQ(run(trials, kThroughSlots, {kSlow, kFast}), 0u);
  EXPECT_EQ(run(trials, 100, {kSlow, kFast}), 100u);
}

// Goal: a repetition, which may pull slowly, is not made for a difference that means nothing.
TEST(CarriageTrialsTest, ACloseTrialSpeaksForThePresentWay) {
  CarriageTrials slots(kShape);
  EXPECT_EQ(run(slots, kFirstCalls, {kFast, kFast * 97 / 100}), 2 * kPulledCalls) << "two trials";
  CarriageTrials pulling(kShape);
  run(pulling, kFirstCalls, {kSlow, kFast});
  EXPECT_EQ(run(pulling, 1000, {kFast, kFast * 103 / 100}), 1000 - kThroughSlots);
}

TEST(CarriageTrialsTest, ARepetitionMayDisagree) {
  CarriageTrials trials(kShape);
  run(trials, kFirstTrial, {kSlow, kFast});
  EXPECT_EQ(run(trials, kThroughSlots + kPulledCalls, {kFast, kSlow}), kPulledCalls);
  EXPECT_EQ(run(trials, 100, {kFast, kSlow}), 0u);
}

// Goal: what several trials have found is not given up for one of them and its repetition.
TEST(CarriageTrialsTest, OneTrialChangesNothingThatTwoHaveFound) {
  CarriageTrials trials(kShape);
  run(trials, kFirstCalls, {kSlow, kFast});
  run(trials, 1000, {kFast, kSlow});  // with one trial
  EXPECT_EQ(run(trials, 10, {kFast, kSlow}), 10u);
  run(trials, 4096, {kFast, kSlow});  // with another one
  EXPECT_EQ(run(trials, 10, {kFast, kSlow}), 0u);
}

// Goal: long calls are few, so pulled ones that are clearly faster decide in one trial.
TEST(CarriageTrialsTest, AClearTrialDecides) {
  CarriageTrials trials(kShape);
  run(trials, kFirstTrial, {kSlow, kSlow / 2});
  EXPECT_EQ(run(trials, 10, {kSlow, kSlow / 2}), 10u);
  run(trials, kFirstCalls, {kFast, kSlow});  // with the second trial
  EXPECT_EQ(run(trials, 10, {kFast, kSlow}), 0u) << "the next trial may undo that";
}

// Goal: a host that takes the core back in each second call does not keep trials from deciding.
TEST(CarriageTrialsTest, CallsThatAreDisturbedInTurnsDecide) {
  CarriageTrials trials(kShape);
  for (uint32_t call = 0; call < kFirstCalls; ++call) {
    const bool pulls = trials.begin();
    trials.end(pulls, (pulls ? kFast : kSlow) * (call % 2 == 0 ? 1 : 2));
  }
  EXPECT_EQ(run(trials, 10, {kSlow, kFast}), 10u);
}

// Goal: where slots take less than a copy by the kernel, no call is pulled.
TEST(CarriageTrialsTest, PullingThatCannotGainIsNotTried) {
  CarriageTrials fast(kShape, 2 * kFast);
  EXPECT_EQ(run(fast, 20'000, {kFast, kSlow}), 0u);
  CarriageTrials slow(kShape, 2 * kFast);
  EXPECT_EQ(run(slow, kFirstTrial, {2 * kFast, 3 * kFast}), kPulledCalls) << "no slower than that";
}

// Goal: the same for messages, whose writer learns it from the reader.
TEST(CarriageTrialsTest, MessagesThatCannotGainAreNotPulled) {
  constexpr uint64_t kBytes = 65536;
  constexpr PullCost kCost = {.call_ns = 500, .ps_per_byte = 30};
  MessageVotes reader;
  EXPECT_TRUE(MessageVotes::preference(reader.preferences, kBytes).may_gain) << "not known yet";
  reader.add(false, kBytes, kCost.least_ns(kBytes) / 2, kCost);
  EXPECT_FALSE(MessageVotes::preference(reader.preferences, kBytes).may_gain);
  EXPECT_FALSE(MessageVotes::preference(reader.preferences, kBytes).is_preferred);
  EXPECT_TRUE(MessageVotes::preference(reader.preferences, 2 * kBytes).may_gain) << "another class";
  for (int i = 0; i < 4; ++i) reader.add(false, kBytes, 2 * kCost.least_ns(kBytes), kCost);
  EXPECT_TRUE(MessageVotes::preference(reader.preferences, kBytes).may_gain) << "the cores have moved apart";
}

TEST(CarriageTrialsTest, TrialsStayRare) {
  for (const uint64_t through_slots : {4, 8, 16, 32}) {
    uint64_t slots = 0;
    uint64_t pulled = 0;
    uint64_t repeated = 0;
    constexpr uint64_t kCalls = 1'000'000;
    for (uint64_t call = kCalls; call < 2 * kCalls; ++call) {
      const std::optional<TrialCall> trial = trial_call(call, {.through_slots = through_slots});
      repeated += trial && trial->is_repetition ? 1 : 0;
      if (!trial || trial->is_repetition) continue;
      slots += trial->pulled ? 0 : 1;
      pulled += trial->pulled ? 1 : 0;
    }
    EXPECT_LE(slots, kCalls / 400);
    EXPECT_LE(pulled, kCalls / 300);
    EXPECT_GT(pulled, 0u);
    EXPECT_EQ(repeated, slots + pulled) << "at most";
  }
}

// Goal: a trial of long calls costs little, and decides as one of shorter calls does.
TEST(CarriageTrialsTest, TrialsPullFewLongCalls) {
  constexpr PullTrial kLong = PullTrial::of(2u << 20, 128u << 20);
  CarriageTrials slots(kLong);
  EXPECT_EQ(run(slots, 500, {kFast, kFast * 3 / 2}), 2 * kLongPulledCalls);
  CarriageTrials pulling(kLong);
  run(pulling, 32, {kSlow, kFast});
  EXPECT_EQ(run(pulling, 8, {2 * kFast, kFast}), 8u);
  // The first calls of each way find what the other one has left in the caches.
  CarriageTrials slow_at_first(kLong);
  bool last = false;
  uint32_t run_length = 0;
  for (uint32_t call = 0; call < 32; ++call) {
    const bool pulls = slow_at_first.begin();
    run_length = pulls == last ? run_length + 1 : 1;
    const bool settles = run_length <= (pulls ? 3 : 1);
    slow_at_first.end(pulls, (pulls ? kFast : kSlow) * (settles ? 2 : 1));
    last = pulls;
  }
  EXPECT_EQ(run(slow_at_first, 8, {kSlow, kFast}), 8u) << "the repetition has decided";
}

// Goal: long calls are few, so they try early.
TEST(CarriageTrialsTest, TheFirstTrialOfLongCallsIsEarly) {
  constexpr PullTrial kLong = PullTrial::of(2u << 20, 8u << 20);
  for (uint64_t call = 0; call < 16; ++call) EXPECT_FALSE(trial_call(call, kLong)) << call;
  for (uint64_t call = 16; call < 32; ++call) EXPECT_TRUE(trial_call(call, kLong)) << call;
  for (uint64_t call = 32; call < 136; ++call) EXPECT_FALSE(trial_call(call, kLong)) << call;
  for (const uint64_t call : {136, 520, 2056, 4104}) {
    EXPECT_FALSE(trial_call(call - 1, kLong)) << call;
    EXPECT_EQ(trial_call(call, kLong), TrialCall{}) << call;
  }
}

// Goal: a trial of long calls that cannot win ends early, and the next one is a whole one again.
TEST(CarriageTrialsTest, AHopelessTrialOfLongCallsIsGivenUp) {
  constexpr PullTrial kLong = PullTrial::of(2u << 20, 128u << 20);
  CarriageTrials trials(kLong);
  EXPECT_EQ(run(trials, 130, {kFast, 3 * kFast}), 2u);
  EXPECT_EQ(run(trials, 14, {kSlow, kFast}), kLongPulledCalls) << "the trial at call 136";
  CarriageTrials repeated(kLong);
  run(repeated, 24, {kSlow, kFast});
  run(repeated, 112, {kFast, 3 * kFast});
  EXPECT_EQ(run(repeated, 8, {kFast, 3 * kFast}), 2u) << "the repetition was given up, and is forgotten";
  CarriageTrials once(kLong);
  uint32_t pulled = 0;
  for (uint32_t call = 0; call < 40; ++call) {
    const bool pulls = once.begin();
    pulled += pulls ? 1 : 0;
    once.end(pulls, pulls && pulled == 2 ? 9 * kFast : pulls ? kFast : kSlow);
  }
  EXPECT_GT(pulled, kLongPulledCalls) << "one long call does not give up";
}

/// The calls of trials of results, if of their ways `fastest` always wins.
std::set<uint64_t> calls_of_result_trials(const ResultTrials::Calls& calls, Stores fastest) {
  ResultTrials trials(calls);
  std::set<uint64_t> found;
  for (uint64_t call = 0; call < 20'000; ++call) {
    const Stores stores = trials.begin();
    if (!trials.is_timed()) continue;
    trials.add(1 << 20, stores == fastest ? 100 : 1000);
    const bool warms = stores == Stores::kOrdinary && fastest == Stores::kStreaming;
    for (uint64_t i = 0; i < (warms ? 4 : 2); ++i) found.insert(call - i);
  }
  return found;
}

TEST(CarriageTrialsTest, NoTrialFallsOnOneOfResults) {
  constexpr uint64_t kRing = 2u << 20;
  struct Case {
    ResultTrials::Calls calls;
    std::vector<uint64_t> call_bytes;
  };
  const std::vector<Case> cases = {
      {{.have_string_moves = true}, {32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10}},
      {{.are_long = true, .have_string_moves = true}, {1 << 20, 2 << 20}},
      {{.are_long = true, .are_longest = true, .have_string_moves = true}, {4 << 20, 8 << 20, 128 << 20}}};
  for (const Case& with : cases) {
    for (const Stores fastest : {Stores::kOrdinary, Stores::kStreaming, Stores::kString}) {
      const std::set<uint64_t> of_results = calls_of_result_trials(with.calls, fastest);
      ASSERT_FALSE(of_results.empty());
      for (const uint64_t bytes : with.call_bytes) {
        for (const uint64_t call : of_results)
          EXPECT_FALSE(trial_call(call, PullTrial::of(kRing, bytes))) << call << ", " << bytes;
      }
    }
  }
}

TEST(CarriageTrialsTest, AnotherRanksTrialsAreAtTheSameCallsWhateverItPrefers) {
  CarriageTrials one(kShape);
  CarriageTrials other(kShape);
  run(one, kFirstCalls, {kFast, kSlow});
  run(other, kFirstCalls, {kSlow, kFast});
  for (uint64_t call = kFirstCalls; call < 2000; ++call) {
    const bool differ = run(one, 1, {kFast, kSlow}) != run(other, 1, {kSlow, kFast});
    const std::optional<TrialCall> trial = trial_call(call, kShape);
    EXPECT_EQ(differ, !trial || trial->is_repetition) << call;
  }
}

TEST(CarriageTrialsTest, OneSlowCallChangesNothing) {
  for (uint32_t slow = 0; slow < kFirstCalls; ++slow) {
    CarriageTrials trials(kShape);
    for (uint32_t call = 0; call < kFirstCalls; ++call) {
      const bool pulls = trials.begin();
      trials.end(pulls, call == slow ? 100 * kSlow : pulls ? kSlow : kFast);
    }
    EXPECT_EQ(run(trials, 20, {kFast, kSlow}), 0u) << "call " << slow << " was slow";
  }
}

TEST(CarriageTrialsTest, TheFirstCallAfterAChangeDoesNotCount) {
  // Goal: what the other way has left in the caches must not decide. Pulling is faster, but not at once.
  CarriageTrials trials(kShape);
  bool last = false;
  for (uint32_t call = 0; call < kFirstCalls; ++call) {
    const bool pulls = trials.begin();
    trials.end(pulls, pulls && !last ? 100 * kSlow : pulls ? kFast : kSlow);
    last = pulls;
  }
  EXPECT_EQ(run(trials, 10, {kSlow, kFast}), 10u);
}

// Goal: where ranks come late, as behind computations, calls take times of which nothing follows. Method:
// no two of five calls wait equally long.
TEST(CarriageTrialsTest, CallsThatDifferDecideNothing) {
  CarriageTrials trials(kShape);
  for (uint32_t call = 0; call < 20'000; ++call) {
    const bool pulls = trials.begin();
    trials.end(pulls, (pulls ? kFast : kSlow) + call % 5 * kFast);
  }
  EXPECT_EQ(run(trials, 10, {kSlow, kFast}), 0u);
}

// Goal: calls that wait for random times seldom choose the slower way.
TEST(CarriageTrialsTest, CallsThatWaitForRandomTimesRarelyDecideWrongly) {
  constexpr uint32_t kSeeds = 200;
  uint32_t wrong = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    std::minstd_rand random(seed + 1);
    CarriageTrials trials(kShape);
    for (uint32_t call = 0; call < 20'000; ++call) {
      const bool pulls = trials.begin();
      trials.end(pulls, (pulls ? kSlow : kFast) + random() % (3 * kSlow));
    }
    wrong += run(trials, 1, {kFast, kSlow});
  }
  EXPECT_LT(wrong, kSeeds / 4);
}

// Goal: buffers that cannot be pulled do not count as pulled.
TEST(CarriageTrialsTest, OnlyWhatWasPulledCountsAsPulled) {
  CarriageTrials trials(kShape);
  for (uint32_t call = 0; call < 20'000; ++call) trials.end(false, trials.begin() ? kFast : kSlow);
  EXPECT_EQ(run(trials, 10, {kSlow, kFast}), 0u);
}

TEST(CarriageTrialsTest, AChangeOfTheMachineIsFollowed) {
  CarriageTrials trials(kShape);
  run(trials, 100, {kFast, kSlow});
  run(trials, 20'000, {kSlow, kFast});
  EXPECT_EQ(run(trials, 10, {kSlow, kFast}), 10u);
  run(trials, 20'000, {kFast, kSlow});
  EXPECT_EQ(run(trials, 10, {kFast, kSlow}), 0u);
}

TEST(CarriageTrialsTest, SizesOfMessagesHaveClasses) {
  EXPECT_EQ(message_class(32768), 0u);
  EXPECT_EQ(message_class(65535), 0u);
  EXPECT_EQ(message_class(65536), 1u);
  EXPECT_EQ(message_class(1), 0u);
  EXPECT_EQ(message_class(UINT64_MAX), kMessageClasses - 1);
}

TEST(CarriageTrialsTest, TheWriterOfMessagesFollowsItsReader) {
  // Goal: what the reader measured for one class of sizes decides there and nowhere else.
  constexpr uint64_t kBytes = 300'000;
  constexpr uint64_t kRing = 1u << 21;
  MessageCounts writer;
  MessageVotes reader;
  constexpr uint64_t kFirstMessages = 280;  // until two trials are over
  for (uint64_t message = 0; message < kFirstMessages; ++message) {
    const std::optional<TrialCall> trial = writer.begin(kBytes, kRing);
    EXPECT_EQ(reader.counts.begin(kBytes, kRing), trial) << "both ends count alike";
    const PullPreference known = MessageVotes::preference(reader.preferences, kBytes);
    if (known.tries(trial)) reader.add(trial->pulled, kBytes, trial->pulled ? kFast : kSlow);
  }
  EXPECT_EQ(reader.preferences, 1u << message_class(kBytes));
  EXPECT_TRUE(MessageVotes::preference(reader.preferences, kBytes).is_preferred);
  EXPECT_FALSE(MessageVotes::preference(reader.preferences, kBytes / 4).is_preferred);
}

}  // namespace
}  // namespace tutti
