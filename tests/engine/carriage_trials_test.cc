// Staging or pulling: the faster one is found, kept through noise, and found again when it changes.
#include "engine/carriage_trials.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr uint64_t kStagedNs = 400'000;
constexpr uint64_t kPulledNs = 500'000;
constexpr uint32_t kFirstCalls = 12;

/// Runs calls [first, first + count) and returns how many were pulled. `staged_ns`, `pulled_ns`: what they
/// take.
uint32_t run(CarriageTrials& trials, uint32_t count, uint64_t staged_ns, uint64_t pulled_ns) {
  uint32_t pulled = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const bool pulls = trials.begin();
    pulled += pulls ? 1 : 0;
    trials.end(pulls ? pulled_ns : staged_ns);
  }
  return pulled;
}

TEST(CarriageTrialsTest, BothAreTriedThenTheFasterOneIsKept) {
  CarriageTrials staging;
  EXPECT_EQ(run(staging, kFirstCalls, kStagedNs, kPulledNs), kFirstCalls / 2);
  EXPECT_EQ(run(staging, 1000, kStagedNs, kPulledNs), 6u) << "one trial at calls 16, 32, ... 512";

  CarriageTrials pulling;
  run(pulling, kFirstCalls, kPulledNs, kStagedNs);
  EXPECT_EQ(run(pulling, 1000, kPulledNs, kStagedNs), 994u);
}

TEST(CarriageTrialsTest, OneSlowCallChangesNothing) {
  for (uint32_t slow = 0; slow < kFirstCalls; ++slow) {
    CarriageTrials trials;
    for (uint32_t call = 0; call < kFirstCalls; ++call) {
      const bool pulls = trials.begin();
      trials.end(call == slow ? 100 * kPulledNs : pulls ? kPulledNs : kStagedNs);
    }
    EXPECT_EQ(run(trials, 4, kStagedNs, kPulledNs), 0u) << "call " << slow << " was slow";
  }
}

TEST(CarriageTrialsTest, AChangeOfTheMachineIsFollowed) {
  CarriageTrials trials;
  run(trials, 100, kStagedNs, kPulledNs);
  run(trials, 500, kPulledNs, kStagedNs);  // trials at calls 128, 256 and 512
  EXPECT_EQ(run(trials, 100, kPulledNs, kStagedNs), 100u);
}

}  // namespace
}  // namespace tutti
