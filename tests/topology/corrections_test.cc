// Goal: predictions follow what trials have measured, between their sizes and numbers of ranks.
#include "tools/corrections.h"

#include <gtest/gtest.h>

#include <cmath>

#include "topology/call_times.h"

namespace tutti::tool {
namespace {

using topology::CallTimes;
using topology::TriedCall;

TriedCall ring_of(uint32_t ranks, uint32_t hosts = 1) {
  return {Collective::kAllReduce, ranks, hosts, "ring"};
}

/// The prediction is 1 us; trials took 1 and 4 us for 2 ranks, and 2 us for 8.
Corrections some_corrections() {
  CallTimes calls;
  calls[ring_of(2)] = {{16, {{1000}}}, {256, {{4000}}}};
  calls[ring_of(8)] = {{16, {{2000}}}};
  return Corrections(std::move(calls));
}

double one_us(const TriedCall&, uint64_t) {
  return 1;
}

TEST(CorrectionsTest, WhatWasTriedTakesAsLong) {
  Corrections corrections = some_corrections();
  EXPECT_DOUBLE_EQ(corrections.factor(ring_of(2), 16, one_us), 1);
  EXPECT_DOUBLE_EQ(corrections.factor(ring_of(2), 256, one_us), 4);
  EXPECT_DOUBLE_EQ(corrections.factor(ring_of(8), 16, one_us), 2);
}

TEST(CorrectionsTest, BetweenTrialsFactorsGoByLogarithms) {
  Corrections corrections = some_corrections();
  EXPECT_DOUBLE_EQ(corrections.factor(ring_of(2), 64, one_us), 2);
  EXPECT_DOUBLE_EQ(corrections.factor(ring_of(4), 16, one_us), std::sqrt(2.0));
}

TEST(CorrectionsTest, BeyondTrialsTheNearestCounts) {
  Corrections corrections = some_corrections();
  EXPECT_DOUBLE_EQ(corrections.factor(ring_of(2), 8, one_us), 1);
  EXPECT_DOUBLE_EQ(corrections.factor(ring_of(2), 1 << 20, one_us), 4);
  EXPECT_DOUBLE_EQ(corrections.factor(ring_of(32), 16, one_us), 2);
}

TEST(CorrectionsTest, WithoutTrialsNothingChanges) {
  Corrections corrections = some_corrections();
  EXPECT_DOUBLE_EQ(corrections.factor(ring_of(2, 2), 16, one_us), 1);
  EXPECT_DOUBLE_EQ(corrections.factor({Collective::kBroadcast, 2, 1, "direct"}, 16, one_us), 1);
  // A trial whose prediction is unknown does not count.
  Corrections others = some_corrections();
  const auto short_ones = [](const TriedCall&, uint64_t bytes) { return bytes < 100 ? 1.0 : 0.0; };
  EXPECT_DOUBLE_EQ(others.factor(ring_of(2), 64, short_ones), 1);
  EXPECT_DOUBLE_EQ(others.factor(ring_of(2), 256, short_ones), 1);
  const auto unknown = [](const TriedCall&, uint64_t) { return 0.0; };
  EXPECT_DOUBLE_EQ(some_corrections().factor(ring_of(2), 16, unknown), 1);
}

}  // namespace
}  // namespace tutti::tool
