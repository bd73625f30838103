// Results with ordinary stores or past the caches: the faster way is found, kept through noise, and found
// again.
#include "engine/result_trials.h"

#include <gtest/gtest.h>

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
    const bool streams = trials.begin();
    streamed += streams ? 1 : 0;
    if (trials.is_timed()) trials.add(kBytes, streams ? streaming_ns : ordinary_ns);
  }
  return streamed;
}

TEST(ResultTrialsTest, BothWaysAreTriedThenTheFasterOneIsKept) {
  for (const bool at_first : {false, true}) {
    ResultTrials cached(at_first);
    EXPECT_EQ(run(cached, 4, kFastNs, kSlowNs), 2u);
    run(cached, 8, kFastNs, kSlowNs);
    EXPECT_EQ(run(cached, 1012, kFastNs, kSlowNs), 6u) << "two calls of three trials";

    ResultTrials uncached(at_first);
    EXPECT_EQ(run(uncached, 4, kSlowNs, kFastNs), 2u);
    run(uncached, 8, kSlowNs, kFastNs);
    EXPECT_EQ(run(uncached, 1012, kSlowNs, kFastNs), 1006u);
  }
}

TEST(ResultTrialsTest, LinesThatGoToMemoryLaterCount) {
  ResultTrials trials;
  run(trials, kPeriod, kFastNs, kFastNs + kFastNs / 10);
  EXPECT_EQ(run(trials, kPeriod, kFastNs, kFastNs + kFastNs / 10), kPeriod - 2);
}

TEST(ResultTrialsTest, OneTrialChangesNothing) {
  ResultTrials trials;
  run(trials, 3 * kPeriod, kFastNs, kSlowNs);
  run(trials, 4, kSlowNs, kFastNs);
  EXPECT_EQ(run(trials, kPeriod - 4, kFastNs, kSlowNs), 0u);
}

TEST(ResultTrialsTest, AChangeOfTheBuffersIsFollowed) {
  ResultTrials trials;
  run(trials, 3 * kPeriod, kFastNs, kSlowNs);
  run(trials, 5 * kPeriod, kSlowNs, kFastNs);
  EXPECT_EQ(run(trials, kPeriod, kSlowNs, kFastNs), kPeriod - 2);
}

TEST(ResultTrialsTest, CallsThatCopyNothingDecideNothing) {
  ResultTrials trials;
  uint32_t streamed = 0;
  for (uint32_t i = 0; i < kPeriod; ++i) streamed += trials.begin() ? 1 : 0;
  EXPECT_EQ(streamed, 8u) << "four trials";
}

}  // namespace
}  // namespace tutti
