// Tests of what the generators share: powers, folds, windows and the reduction in rank order.
#include "algorithms/builder.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

namespace tutti::generators {
namespace {

// The canonical tree over [begin, end) as text, e.g. "((0+1)+2)".
std::string canonical_text(uint32_t begin, uint32_t end) {
  if (end - begin == 1) return std::to_string(begin);
  const uint32_t middle = begin + canonical_split(end - begin);
  return std::string("(") + canonical_text(begin, middle) + "+" + canonical_text(middle, end) + ")";
}

std::string canonical_text(const std::vector<std::string>& terms, size_t begin, size_t end) {
  if (end - begin == 1) return terms[begin];
  const size_t middle = begin + canonical_split(static_cast<uint32_t>(end - begin));
  return std::string("(") + canonical_text(terms, begin, middle) + "+" + canonical_text(terms, middle, end) +
         ")";
}

// What leaders that combine level by level compute: each level's radix neighbours in one step.
std::string folded_text(const Fold& fold, uint32_t radix) {
  std::vector<std::string> values;
  for (uint32_t group = 0; group < fold.groups(); ++group) {
    std::vector<std::string> members;
    for (uint32_t i = 0; i < fold.size(group); ++i)
      members.push_back(std::to_string(fold.first_rank(group) + i));
    values.push_back(canonical_text(members, 0, members.size()));
  }
  while (values.size() > 1) {
    std::vector<std::string> next;
    for (size_t i = 0; i < values.size(); i += radix) next.push_back(canonical_text(values, i, i + radix));
    values = next;
  }
  return values[0];
}

TEST(BuilderTest, FloorPowerIsTheLargestPowerNotAboveN) {
  EXPECT_EQ(floor_power(1), 1u);
  EXPECT_EQ(floor_power(7), 4u);
  EXPECT_EQ(floor_power(8), 8u);
  EXPECT_EQ(floor_power(26, 3), 9u);
  EXPECT_EQ(floor_power(27, 3), 27u);
  EXPECT_EQ(floor_power(UINT32_MAX), 1u << 31);
}

TEST(BuilderTest, TheCanonicalTreeSplitsAtTheLargestPowerOfTwoBelowItsSize) {
  EXPECT_EQ(canonical_text(0, 5), "(((0+1)+(2+3))+4)");
  EXPECT_EQ(canonical_text(0, 7), "(((0+1)+(2+3))+((4+5)+6))");
}

TEST(FoldTest, GroupsAreContiguousAndCoverAllRanksOnce) {
  for (const uint32_t radix : {2u, 3u, 4u}) {
    for (uint32_t ranks = 1; ranks <= 100; ++ranks) {
      const Fold fold(ranks, radix);
      uint32_t next = 0;
      for (uint32_t group = 0; group < fold.groups(); ++group) {
        ASSERT_EQ(fold.first_rank(group), next);
        ASSERT_GE(fold.size(group), 1u);
        ASSERT_LE(fold.size(group), radix);
        for (uint32_t i = 0; i < fold.size(group); ++i) ASSERT_EQ(fold.group_of(next + i), group);
        next += fold.size(group);
      }
      ASSERT_EQ(next, ranks);
      ASSERT_EQ(fold.blocks(0, fold.groups()).count, ranks);
    }
  }
}

// Goal: a fold says that it is canonical exactly when it is. Method: compare with the tree it makes, as text.
TEST(FoldTest, IsCanonicalAgreesWithTheTreeThatTheLevelsMake) {
  for (const uint32_t radix : {2u, 3u, 4u}) {
    for (uint32_t ranks = 1; ranks <= 300; ++ranks) {
      const Fold fold(ranks, radix);
      EXPECT_EQ(fold.is_canonical(), folded_text(fold, radix) == canonical_text(0, ranks))
          << ranks << " ranks, radix " << radix;
    }
  }
}

TEST(BuilderTest, PiecesCoverARangeInOrder) {
  std::vector<std::pair<uint32_t, uint32_t>> pieces;
  for_each_piece({3, 7}, 3, [&](Chunks piece) { pieces.emplace_back(piece.first, piece.count); });
  EXPECT_EQ(pieces, (std::vector<std::pair<uint32_t, uint32_t>>{{3, 3}, {6, 3}, {9, 1}}));
  for_each_piece({3, 0}, 3, [&](Chunks) { FAIL() << "an empty range has no piece"; });
}

TEST(BuilderTest, AnExchangeNeverSendsTwoPiecesBeforeItReceivesOne) {
  std::string order;
  exchange(
      {0, 5}, {10, 2}, 2, [&](Chunks piece) { order += std::string("s") + std::to_string(piece.first); },
      [&](Chunks piece) { order += std::string("r") + std::to_string(piece.first); });
  EXPECT_EQ(order, "s0r10s2s4");
}

// Goal: any number of ranks is reduced in the canonical tree, with no step of more than 8 sources and no
// more scratch than stated. Method: run the steps on texts.
TEST(BuilderTest, ReductionInRankOrderIsTheCanonicalTree) {
  std::vector<uint32_t> rank_counts(140);
  std::iota(rank_counts.begin(), rank_counts.end(), 2u);
  rank_counts.insert(rank_counts.end(), {511, 512, 513, 520, 577, 4097});
  for (const uint32_t ranks : rank_counts) {
    const Request request{.collective = Collective::kReduce, .rank_count = ranks};
    Builder builder(request, 0);
    builder.reduce_in_rank_order({0, 1}, [](uint32_t rank) { return from(rank, Allow::kCopy); },
                                 {output({0, 1})});
    const Plan plan = builder.take();
    std::vector<std::string> scratch_values(Builder::tree_scratch_chunks(ranks));
    std::string result;
    for (const Step& step : plan.lanes[0].steps) {
      ASSERT_LE(step.sources.size(), size_t{kMaxStepSources});
      ASSERT_GE(step.sources.size(), 2u);
      std::vector<std::string> operands;
      for (const End& source : step.sources) {
        operands.push_back(source.kind == EndKind::kLink ? std::to_string(source.peer)
                                                         : scratch_values.at(source.first_chunk));
      }
      const std::string value = canonical_text(operands, 0, operands.size());
      if (step.sinks[0].kind == EndKind::kOutput) {
        EXPECT_TRUE(step.finish);
        result = value;
      } else {
        EXPECT_FALSE(step.finish);
        scratch_values.at(step.sinks[0].first_chunk) = value;
      }
    }
    ASSERT_EQ(result, canonical_text(0, ranks)) << ranks << " ranks";
  }
}

TEST(BuilderTest, SpreadUsesAsManyStepsAsTheSinksNeed) {
  Builder builder({.collective = Collective::kBroadcast, .rank_count = 20}, 0);
  std::vector<End> sinks;
  for (uint32_t peer = 1; peer < 18; ++peer) sinks.push_back(to(peer, Allow::kCopy));
  builder.spread({0, 1}, input({0, 1}), sinks);
  const Plan plan = builder.take();
  ASSERT_EQ(plan.lanes[0].steps.size(), 3u);
  EXPECT_EQ(plan.lanes[0].steps[0].sinks.size(), 8u);
  EXPECT_EQ(plan.lanes[0].steps[2].sinks.size(), 1u);
}

}  // namespace
}  // namespace tutti::generators
