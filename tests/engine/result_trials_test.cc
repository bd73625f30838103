// Results with ordinary stores or past the caches: the faster way is found, kept through noise, and found
// again.
#include "engine/result_trials.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "transports/store_trials.h"

namespace tutti {
namespace {

constexpr uint64_t kBytes = 65536;
constexpr uint32_t kPeriod = 512;  // calls from trial to trial
constexpr uint64_t kFastNs = 5'000;
constexpr uint64_t kSlowNs = 8'000;

/// Runs `count` calls and returns how many wrote past the caches.
uint32_t run(ResultTrials& trials, uint32_t count, uint64_t ordinary_ns, uint64_t streaming_ns) {
  uint32_t streamed = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const bool streams = trials.begin() == Stores::kStreaming;
    streamed += streams ? 1 : 0;
    if (trials.is_timed()) trials.add(kBytes, streams ? streaming_ns : ordinary_ns);
  }
  return streamed;
}

TEST(ResultTrialsTest, BothWaysAreTriedThenTheFasterOneIsKept) {
  constexpr uint32_t kCalls = 1024;  // with five trials, of long calls four
  ResultTrials cached;
  EXPECT_EQ(run(cached, kCalls, kFastNs, kSlowNs), 10u) << "two calls of each trial";
  ResultTrials uncached;
  EXPECT_EQ(run(uncached, kCalls, kSlowNs, kFastNs), 2 + (kCalls - 24) - 12u) << "from call 24 on";
  ResultTrials long_cached({.are_long = true});
  EXPECT_EQ(run(long_cached, kCalls, kFastNs, kSlowNs), 34 - 4 + 4u) << "until the second trial is over";
  ResultTrials long_uncached({.are_long = true});
  EXPECT_EQ(run(long_uncached, kCalls, kSlowNs, kFastNs), kCalls - 16) << "four calls of each trial do not";
}

// Goal: trials of results do not lie where links try stores into slots, which would make them worthless
// (transports/store_trials.h). Method: calls in so many slices, one call after another, of which only those
// count that a trial tries. Lengths that are no powers of two lose some.
TEST(ResultTrialsTest, FewTrialsMeetThoseOfStores) {
  struct Case {
    const char* calls;
    uint64_t slices, slots;
    StoreTrials::Length length;
    bool are_long, are_longest;
    uint64_t most_lost;  ///< of 43
  };
  constexpr auto kMiddle = StoreTrials::kMiddlePiece;
  constexpr auto kLong = StoreTrials::kLongPiece;
  constexpr auto kWide = StoreTrials::kWideSlices;
  const Case cases[] = {
      {"32 KiB", 2, 128, kMiddle, false, false, 2}, {"48 KiB", 3, 128, kMiddle, false, false, 16},
      {"64 KiB", 4, 128, kMiddle, false, false, 1}, {"64 KiB", 4, 64, kMiddle, false, false, 1},
      {"64 KiB", 4, 256, kMiddle, false, false, 1}, {"96 KiB", 6, 128, kMiddle, false, false, 8},
      {"128 KiB", 8, 128, kLong, false, false, 1},  {"192 KiB", 12, 128, kLong, false, false, 8},
      {"256 KiB", 16, 128, kLong, false, false, 1}, {"256 KiB", 16, 64, kLong, false, false, 1},
      {"256 KiB", 16, 256, kLong, false, false, 1}, {"512 KiB", 32, 128, kLong, false, false, 1},
      {"1 MiB", 16, 32, kWide, true, false, 1},     {"2 MiB", 32, 32, kWide, true, false, 1},
      {"16 MiB", 256, 32, kWide, true, true, 1},    {"32 MiB", 512, 32, kWide, true, true, 1},
      {"96 MiB", 1536, 32, kWide, true, true, 1},   {"160 MiB", 2560, 32, kWide, true, true, 1}};
  for (const Case& of : cases) {
    for (const Stores fastest : {Stores::kOrdinary, Stores::kStreaming, Stores::kString}) {
      ResultTrials trials(
          {.are_long = of.are_long, .are_longest = of.are_longest, .have_string_moves = true});
      std::set<uint64_t> lost;  // the trials, by tens of calls
      for (uint64_t call = 0; call < 20'000; ++call) {
        const Stores stores = trials.begin();
        if (!trials.is_timed()) continue;
        bool counts = false;
        for (uint64_t slice = 0; slice < of.slices && trials.tries(slice * kBytes, of.slices * kBytes);
             ++slice)
          counts = counts || !StoreTrials::trial_of(call * of.slices + slice, of.slots, of.length);
        if (counts) trials.add(kBytes, stores == fastest ? kFastNs / 2 : kSlowNs);
        if (!counts) lost.insert(call / 10);
      }
      EXPECT_LE(lost.size(), of.most_lost) << of.calls << " in " << of.slots << " slots";
    }
  }
}

TEST(ResultTrialsTest, LinesThatGoToMemoryLaterCount) {
  ResultTrials trials;
  run(trials, kPeriod, kFastNs, kFastNs + kFastNs / 10);
  EXPECT_EQ(run(trials, kPeriod, kFastNs, kFastNs + kFastNs / 10), kPeriod - 4);
}

// Goal: of long calls less is enough, because the copies of others take longer into the caches than past
// them. Hot ping-pong of 1 and 2 MiB wrote past the caches in half of the starts.
TEST(ResultTrialsTest, OfLongCallsASmallerDifferenceDecides) {
  for (const bool is_long : {false, true}) {
    ResultTrials trials({.are_long = is_long});
    run(trials, kPeriod, 85 * kFastNs, 100 * kFastNs);
    EXPECT_EQ(run(trials, kPeriod, 85 * kFastNs, 100 * kFastNs), is_long ? 2 : kPeriod - 4);
  }
}

// Goal: of long calls that only copy, an even smaller one.
TEST(ResultTrialsTest, OfLongCopiesTheSmallestDifferenceDecides) {
  for (const bool sums : {false, true}) {
    ResultTrials trials({.are_long = true, .sum = sums});
    run(trials, kPeriod, 94 * kFastNs, 100 * kFastNs);
    EXPECT_EQ(run(trials, kPeriod, 94 * kFastNs, 100 * kFastNs), sums ? kPeriod - 4 : 2);
  }
}

// Goal: a trial of long calls costs little. While it wrote whole calls, messages of 2 MiB took up to 1.7
// times as long in it.
TEST(ResultTrialsTest, OfLongCopiesTheFirstPartOfEachPieceIsTried) {
  constexpr uint64_t kPiece = 2u << 20, kSlice = 65536;
  const ResultTrials long_copies({.are_long = true});
  EXPECT_TRUE(long_copies.tries(0, kSlice)) << "a piece of one slice";
  EXPECT_TRUE(long_copies.tries(kPiece / 4 - kSlice, kPiece));
  EXPECT_FALSE(long_copies.tries(kPiece / 4, kPiece));
  EXPECT_FALSE(long_copies.tries(6u << 20, 128u << 20)) << "of very long ones less";
  EXPECT_TRUE(ResultTrials({.are_long = true, .sum = true}).tries(kPiece - kSlice, kPiece));
  EXPECT_TRUE(ResultTrials(ResultTrials::Calls{}).tries(kPiece - kSlice, kPiece));
}

// Goal: of sums, too: their copies read twice as much, so the ways differ less.
TEST(ResultTrialsTest, OfSumsASmallerDifferenceDecides) {
  ResultTrials trials({.copy = false});
  run(trials, kPeriod, 85 * kFastNs, 100 * kFastNs);
  EXPECT_EQ(run(trials, kPeriod, 85 * kFastNs, 100 * kFastNs), 2u) << "a trial";
}

// Goal: a buffer that is in the caches once a few calls have written into them is found to be so, although
// calls past the caches throw it out. Method: the third call into the caches is the first fast one.
TEST(ResultTrialsTest, CallsThatFillTheCachesAreNotCounted) {
  ResultTrials trials({.are_long = true});
  uint32_t into_caches = 0;
  uint32_t streamed = 0;
  for (uint32_t i = 0; i < 4 * kPeriod; ++i) {
    const bool streams = trials.begin() == Stores::kStreaming;
    into_caches = streams ? 0 : into_caches + 1;
    streamed += i >= 3 * kPeriod && streams ? 1 : 0;
    if (trials.is_timed()) trials.add(kBytes, !streams && into_caches > 2 ? kFastNs : kSlowNs);
  }
  EXPECT_EQ(streamed, 2u) << "a trial";
}

// Goal: what first touches of pages cost in the first calls decides nothing later. Method: in the first trial
// both ways are slow and streaming seems the faster one, then the caches are faster by far.
TEST(ResultTrialsTest, FirstTouchesDoNotDecide) {
  ResultTrials trials;
  run(trials, 22, 10 * kSlowNs, 10 * kFastNs);
  run(trials, 6, kFastNs, kSlowNs);
  EXPECT_EQ(run(trials, 60 - 28, kFastNs, kSlowNs), 0u);
}

/// Runs `count` calls. Returns how many moved strings.
uint32_t run_with_strings(ResultTrials& trials, uint32_t count, uint64_t ordinary_ns, uint64_t string_ns) {
  uint32_t moved = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const Stores stores = trials.begin();
    moved += stores == Stores::kString ? 1 : 0;
    if (!trials.is_timed()) continue;
    trials.add(kBytes, stores == Stores::kStreaming  ? kSlowNs
                       : stores == Stores::kOrdinary ? ordinary_ns
                                                     : string_ns);
  }
  return moved;
}

// Goal: of string moves, too.
TEST(ResultTrialsTest, OfLongCallsASmallerDifferenceBringsStrings) {
  for (const bool is_long : {false, true}) {
    ResultTrials trials({.are_long = is_long, .have_string_moves = true});
    run_with_strings(trials, 4 * kPeriod, kSlowNs * 95 / 100, kSlowNs * 80 / 100);
    const uint32_t moved = run_with_strings(trials, 2 * kPeriod, kSlowNs * 95 / 100, kSlowNs * 80 / 100);
    EXPECT_EQ(moved > kPeriod, is_long) << moved;
  }
}

// Goal: the same where the first trial without first touches tries string moves, which decides nothing.
// Method: calls stream at first, and strings are as slow as streaming.
TEST(ResultTrialsTest, FirstTouchesDoNotDecideWhereStringsAreTried) {
  ResultTrials trials({.are_long = true, .have_string_moves = true});
  const auto calls = [&](uint32_t count, const std::array<uint64_t, kStoresCount>& ns) {
    uint32_t streamed = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const Stores stores = trials.begin();
      streamed += stores == Stores::kStreaming ? 1 : 0;
      if (trials.is_timed()) trials.add(kBytes, ns[static_cast<size_t>(stores)]);
    }
    return streamed;
  };
  calls(12, {10 * kSlowNs, 10 * kSlowNs, 10 * kSlowNs});
  calls(28, {kFastNs, kSlowNs, kSlowNs});
  EXPECT_EQ(calls(64 - 40, {kFastNs, kSlowNs, kSlowNs}), 0u);
}

// Goal: strings that beat the ordinary stores of first touches only do not win.
TEST(ResultTrialsTest, StringsAreComparedWithOrdinaryStoresOfTheSameTime) {
  ResultTrials trials({.have_string_moves = true});
  run_with_strings(trials, 16, 10 * kSlowNs, kSlowNs);
  EXPECT_EQ(run_with_strings(trials, 24, kFastNs / 2, kFastNs / 2 + 200), 2u) << "a trial";
}

TEST(ResultTrialsTest, OneTrialChangesNothing) {
  ResultTrials trials;
  run(trials, 3 * kPeriod, kFastNs, kSlowNs);
  run(trials, 4, 2 * kSlowNs, kSlowNs);
  EXPECT_EQ(run(trials, kPeriod - 4, kFastNs, kSlowNs), 0u);
}

// Goal: one call that lost its core does not decide, either at the beginning or where strings are tried.
TEST(ResultTrialsTest, OneDisturbedCallChangesNothing) {
  constexpr uint32_t kCalls = 8 * kPeriod;
  for (const bool tries_strings : {false, true}) {
    for (uint32_t disturbed = 0; disturbed < 6; ++disturbed) {
      ResultTrials trials({.have_string_moves = tries_strings});
      uint32_t streamed = 0;
      uint32_t timed = 0;
      for (uint32_t i = 0; i < kCalls; ++i) {
        const bool streams = trials.begin() == Stores::kStreaming;
        streamed += streams ? 1 : 0;
        if (!trials.is_timed()) continue;
        const uint64_t factor = timed++ == disturbed ? 10 : 1;
        trials.add(kBytes, factor * (streams ? kSlowNs : kFastNs));
      }
      EXPECT_LT(streamed, kPeriod / 8) << "timed call " << disturbed << ", strings " << tries_strings;
    }
  }
}

TEST(ResultTrialsTest, AChangeOfTheBuffersIsFollowed) {
  ResultTrials trials;
  run(trials, 3 * kPeriod, kFastNs, kSlowNs);
  run(trials, 5 * kPeriod, kSlowNs, kFastNs);
  EXPECT_EQ(run(trials, kPeriod, kSlowNs, kFastNs), kPeriod - 4);
}

// Goal: of the two ways into the caches the faster one is kept.
TEST(ResultTrialsTest, EachTrialTriesStringMoves) {
  for (const bool at_first : {false, true}) {
    ResultTrials trials({.are_long = at_first, .have_string_moves = true});
    run_with_strings(trials, 2 * kPeriod, kFastNs, kFastNs / 2);
    EXPECT_EQ(run_with_strings(trials, 2 * kPeriod, kFastNs, kFastNs / 2), 2 * kPeriod - 8)
        << "two calls of two trials stream, two are ordinary";

    ResultTrials slower({.are_long = at_first, .have_string_moves = true});
    run_with_strings(slower, 2 * kPeriod, kFastNs, kSlowNs);
    EXPECT_EQ(run_with_strings(slower, 2 * kPeriod, kFastNs, kSlowNs), 4u) << "two trials";
  }
}

// Goal: hot results between far cores get string moves soon, although ordinary stores take nearly as long as
// those past the caches. While trials tried string moves in turns with ordinary stores, calls of 256 KiB
// wrote past the caches in some starts until call 2500. Method: costs as measured there, in percent.
TEST(ResultTrialsTest, StringMovesWinAtOnceWhereOrdinaryStoresDoNot) {
  ResultTrials trials({.have_string_moves = true});
  run_with_strings(trials, 30, kSlowNs * 86 / 100, kSlowNs * 60 / 100);
  EXPECT_EQ(run_with_strings(trials, 30, kSlowNs * 86 / 100, kSlowNs * 60 / 100), 30u);
}

TEST(ResultTrialsTest, WithoutStringMovesNoneIsTried) {
  ResultTrials trials;
  EXPECT_EQ(run_with_strings(trials, 4 * kPeriod, kFastNs, kFastNs / 2), 0u);
}

TEST(ResultTrialsTest, CallsThatCopyNothingDecideNothing) {
  ResultTrials trials;
  uint32_t streamed = 0;
  for (uint32_t i = 0; i < kPeriod; ++i) streamed += trials.begin() == Stores::kStreaming ? 1 : 0;
  EXPECT_EQ(streamed, 8u) << "four trials";
}

}  // namespace
}  // namespace tutti
