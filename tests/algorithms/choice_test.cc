// Tests of the choice table: the built-in one serves every request, rows are read as documented, wrong
// texts are refused with their line.
#include "algorithms/choice.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "tests/algorithms/make_plans.h"
#include "tests/support/placements.h"

namespace tutti {
namespace {

/// One host, hosts of two neighbours, or hosts of every other rank.
std::array<test::Placement, 3> some_placements(uint32_t ranks) {
  std::vector<uint64_t> neighbours;
  std::vector<uint64_t> every_other;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    neighbours.push_back(rank / 2);
    every_other.push_back(rank % 2);
  }
  return {{test::place_contiguous({ranks}), test::place("neighbours", neighbours),
           test::place("every other", every_other)}};
}

const char* name_of(const Algorithm* algorithm) {
  return algorithm == nullptr ? "none" : algorithm->name.data();
}

TEST(ChoiceTest, TheBuiltInTableServesEveryRequest) {
  const ChoiceTable& table = ChoiceTable::built_in();
  ASSERT_FALSE(table.rows().empty()) << "the embedded table does not parse";
  for (int c = 0; c < static_cast<int>(Collective::kSendRecv); ++c) {
    const auto collective = static_cast<Collective>(c);
    for (uint32_t ranks = 1; ranks <= 64; ++ranks) {
      const auto placements = some_placements(ranks);
      for (uint64_t bytes = 0; bytes <= uint64_t{1} << 40; bytes = bytes == 0 ? 1 : bytes * 8) {
        for (uint32_t bits = 0; bits < 32 * placements.size(); ++bits) {
          const Request request{.collective = collective,
                                .rank_count = ranks,
                                .root = ranks - 1,
                                .block_bytes = bytes,
                                .reproducible = (bits & 1) != 0,
                                .variable_counts = (bits & 2) != 0 && has_variable_form(collective)};
          const test::Placement& placement = placements[bits / 32];
          Facts facts = placement.facts((bits & 4) != 0 ? 1 : 8);
          facts.can_publish = placement.host_count == 1 && (bits & 8) != 0;
          facts.can_multicast = placement.host_count == 1 && (bits & 16) != 0;
          facts.can_reference = facts.can_publish;
          facts.cores = 2;
          uint32_t row = UINT32_MAX;
          const Algorithm* chosen = table.choose(request, facts, &row);
          ASSERT_NE(chosen, nullptr) << collective_name(collective) << " " << ranks << " ranks";
          ASSERT_TRUE(chosen->supports(request, facts));
          ASSERT_EQ(chosen->collective, collective);
          ASSERT_LT(row, table.rows().size()) << "no row serves " << describe(*chosen, request);
        }
      }
    }
  }
}

// A row that can never decide is a mistake in the table.
TEST(ChoiceTest, EveryRowOfTheBuiltInTableDecidesSomewhere) {
  const ChoiceTable& table = ChoiceTable::built_in();
  std::vector<bool> decided(table.rows().size(), false);
  for (int c = 0; c < static_cast<int>(Collective::kSendRecv); ++c) {
    const auto collective = static_cast<Collective>(c);
    for (uint32_t ranks = 1; ranks <= 64; ++ranks) {
      const auto placements = some_placements(ranks);
      for (uint64_t bytes = 1; bytes <= uint64_t{1} << 30; bytes *= 2) {
        for (uint32_t bits = 0; bits < 64 * placements.size(); ++bits) {
          const Request request{.collective = collective,
                                .rank_count = ranks,
                                .block_bytes = bytes,
                                .reproducible = (bits & 1) != 0,
                                .variable_counts = (bits & 2) != 0 && has_variable_form(collective)};
          const test::Placement& placement = placements[bits / 64];
          Facts facts = placement.facts((bits & 4) != 0 ? 1 : 8);
          facts.can_publish = placement.host_count == 1 && (bits & 8) != 0;
          facts.can_reference = placement.host_count == 1 && (bits & 16) != 0;
          facts.can_multicast = placement.host_count == 1 && (bits & 32) != 0;
          facts.are_containers = placement.host_count > 1 && (bits & 8) != 0;
          const uint64_t short_bytes = facts.can_reference && !facts.can_publish ? 524288 : 0;
          uint32_t row = 0;
          (void)table.choose(request, facts, &row, short_bytes);
          if (row < decided.size()) decided[row] = true;
        }
      }
    }
  }
  for (size_t i = 0; i < decided.size(); ++i) {
    const ChoiceRow& row = table.rows()[i];
    EXPECT_TRUE(decided[i]) << "row " << i << ": " << collective_name(row.collective) << " " << row.algorithm;
  }
}

TEST(ChoiceTest, ShortMessagesOfTwoRanksAreReducedInOneShotAndLongOnesInTwo) {
  const ChoiceTable& table = ChoiceTable::built_in();
  Request request{.collective = Collective::kAllReduce, .rank_count = 2, .block_bytes = 8};
  EXPECT_STREQ(name_of(table.choose(request, {})), "direct_one_shot");
  request.block_bytes = uint64_t{1} << 24;
  EXPECT_STREQ(name_of(table.choose(request, {})), "direct_two_shot");
}

// Goal: multicast serves what the switch can reduce, and nothing else.
TEST(ChoiceTest, MulticastIsChosenForWhatTheHardwareReduces) {
  const ChoiceTable& table = ChoiceTable::built_in();
  const Facts facts{.can_publish = false, .can_multicast = true};
  Request request{.collective = Collective::kAllReduce, .rank_count = 8, .block_bytes = uint64_t{1} << 24};
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kInt64}) {
    request.type = type;
    EXPECT_STREQ(name_of(table.choose(request, facts)), "multicast") << type_name(type);
    EXPECT_STREQ(name_of(table.choose(request, {.can_publish = false})), "ring");
  }
  request.type = DataType::kFloat8E4M3;
  EXPECT_STREQ(name_of(table.choose(request, facts)), "ring");
  request.type = DataType::kFloat32;
  request.op = ReduceOp::kMax;
  EXPECT_STREQ(name_of(table.choose(request, facts)), "ring") << "the hardware's maximum loses NaN";
  request.op = ReduceOp::kSum;
  request.reproducible = true;
  EXPECT_STRNE(name_of(table.choose(request, facts)), "multicast");
}

TEST(ChoiceTest, OnSeveralHostsHierarchicalAlgorithmsAreChosen) {
  const ChoiceTable& table = ChoiceTable::built_in();
  const test::Placement placement = test::place_contiguous({4, 4});
  const auto chosen = [&](Collective collective, uint64_t bytes) {
    return std::string(name_of(
        table.choose({.collective = collective, .rank_count = 8, .block_bytes = bytes}, placement.facts())));
  };
  EXPECT_EQ(chosen(Collective::kAllReduce, 8), "hierarchical_leaders");
  EXPECT_EQ(chosen(Collective::kAllReduce, 1 << 24), "hierarchical");
  EXPECT_EQ(chosen(Collective::kReduce, 8), "hierarchical_binomial");
  EXPECT_EQ(chosen(Collective::kReduce, 1 << 24), "hierarchical_chain");
  EXPECT_EQ(chosen(Collective::kBroadcast, 8), "hierarchical_binomial");
  EXPECT_EQ(chosen(Collective::kBroadcast, 1 << 24), "hierarchical_chain");
  EXPECT_EQ(chosen(Collective::kAllGather, 1 << 20), "hierarchical");
  EXPECT_EQ(chosen(Collective::kReduceScatter, 1 << 20), "hierarchical");
  EXPECT_EQ(chosen(Collective::kBarrier, 1), "hierarchical");
}

// Goal: containers of one machine, between which no link is slower than the cores, take what was measured
// there.
TEST(ChoiceTest, ContainersOfOneMachineHaveRowsOfTheirOwn) {
  const ChoiceTable& table = ChoiceTable::built_in();
  const test::Placement placement = test::place_contiguous({2, 2});
  const auto chosen = [&](Collective collective, uint64_t message_bytes, bool are_containers) {
    Facts facts = placement.facts();
    facts.are_containers = are_containers;
    const uint64_t blocks = collective == Collective::kAllToAll ? 4 : 1;
    return std::string(name_of(table.choose(
        {.collective = collective, .rank_count = 4, .block_bytes = message_bytes / blocks}, facts)));
  };
  EXPECT_EQ(chosen(Collective::kAllReduce, 1 << 20, true), "recursive_halving_doubling");
  EXPECT_EQ(chosen(Collective::kAllReduce, 1 << 20, false), "hierarchical");
  EXPECT_EQ(chosen(Collective::kAllToAll, 1 << 10, true), "hierarchical");
  EXPECT_EQ(chosen(Collective::kAllToAll, 1 << 10, false), "direct");
  EXPECT_EQ(chosen(Collective::kBroadcast, 1 << 10, true), "chain");
  EXPECT_EQ(chosen(Collective::kBroadcast, 1 << 10, false), "hierarchical_binomial");
  EXPECT_EQ(chosen(Collective::kBroadcast, 24 << 10, true), "chain");
  EXPECT_EQ(chosen(Collective::kBroadcast, 24 << 10, false), "hierarchical_chain");
}

// In turns on two hosts no host's sum is a part of the canonical tree, and what does not know its hosts
// cannot use them.
TEST(ChoiceTest, WhereHierarchicalAlgorithmsCannotServeFlatOnesDo) {
  const ChoiceTable& table = ChoiceTable::built_in();
  const test::Placement placement = test::place_cyclic(2, 4);
  Request request{.collective = Collective::kAllReduce, .rank_count = 8, .block_bytes = 1 << 24};
  EXPECT_STREQ(name_of(table.choose(request, placement.facts())), "hierarchical");
  EXPECT_STREQ(name_of(table.choose(request, {.can_publish = false, .host_count = 2})), "ring");
  request.reproducible = true;
  EXPECT_STREQ(name_of(table.choose(request, placement.facts())), "recursive_halving_doubling");
}

TEST(ChoiceTest, TheFirstRowThatMatchesAndIsSupportedDecides) {
  const auto table = ChoiceTable::parse(
      "# comment\n"
      "\n"
      "all_reduce 2..4 ..1K publish direct_one_shot  # short\r\n"
      "all_reduce\t3 * any ring\n"
      "all_reduce * 1M.. oversubscribed recursive_halving_doubling\n"
      "all_reduce 4.. 2K..3K reference recursive_doubling\n"
      "all_reduce 9 * hosts double_binary_tree");
  ASSERT_TRUE(table.is_ok()) << table.status().text();
  ASSERT_EQ(table->rows().size(), 5u);
  const auto chosen = [&](uint32_t ranks, uint64_t bytes, const Facts& facts, bool reproducible = false) {
    const Request request{.collective = Collective::kAllReduce,
                          .rank_count = ranks,
                          .block_bytes = bytes,
                          .reproducible = reproducible};
    uint32_t row = 0;
    (void)table->choose(request, facts, &row);
    return row;
  };
  const uint32_t none = 5;
  EXPECT_EQ(chosen(2, 1024, {}), 0u);
  EXPECT_EQ(chosen(2, 1025, {}), none);
  EXPECT_EQ(chosen(5, 8, {}), none);
  EXPECT_EQ(chosen(3, 1024, {.can_publish = false}), 1u);
  EXPECT_EQ(chosen(3, 2048, {}, true), none) << "a ring of three is not canonical";
  EXPECT_EQ(chosen(2, 1 << 20, {.cores = 1}), 2u);
  EXPECT_EQ(chosen(2, 1 << 20, {.cores = 2}), none);
  EXPECT_EQ(chosen(4, 1 << 20, {.host_count = 2, .cores = 2}), none);
  EXPECT_EQ(chosen(4, 3072, {.can_reference = true, .cores = 8}), 3u);
  EXPECT_EQ(chosen(4, 3073, {.can_reference = true, .cores = 8}), none);
  EXPECT_EQ(chosen(4, 3072, {.cores = 8}), none);
  EXPECT_EQ(chosen(9, 8, {.host_count = 2, .cores = 8}), 4u);
  EXPECT_EQ(chosen(9, 8, {.host_count = 1, .cores = 8}), none);
}

TEST(ChoiceTest, PacketsCarryWhatFitsThemOnly) {
  const auto table = ChoiceTable::parse("all_gather 2..8 ..8K short direct\nall_gather * * any ring");
  ASSERT_TRUE(table.is_ok());
  Request request{.collective = Collective::kAllGather, .rank_count = 4, .block_bytes = 1024};
  const Facts facts{.can_publish = false};
  EXPECT_STREQ(name_of(table->choose(request, facts, nullptr, 1024)), "direct");
  EXPECT_STREQ(name_of(table->choose(request, facts, nullptr, 1023)), "ring");
  EXPECT_STREQ(name_of(table->choose(request, facts)), "ring");
  request.variable_counts = true;
  EXPECT_STREQ(name_of(table->choose(request, facts, nullptr, 4096)), "ring");
}

// In two shots a rank sends another a chunk of its input and a chunk of the result, in one shot all.
TEST(ChoiceTest, WhatFitsPacketsDependsOnTheAlgorithm) {
  const Request request{.collective = Collective::kAllReduce, .rank_count = 8, .block_bytes = 8192};
  for (const auto& [algorithm, bytes] :
       {std::pair("direct_one_shot", 8192u), std::pair("direct_two_shot", 2048u)}) {
    const auto table =
        ChoiceTable::parse(std::string("all_reduce * * short ") + algorithm + "\nall_reduce * * any ring");
    ASSERT_TRUE(table.is_ok());
    const Facts facts{.can_publish = false};
    EXPECT_STREQ(name_of(table->choose(request, facts, nullptr, bytes)), algorithm);
    EXPECT_STREQ(name_of(table->choose(request, facts, nullptr, bytes - 1)), "ring");
  }
}

// The message of a collective with a block a rank is all blocks.
TEST(ChoiceTest, BytesAreThoseOfTheWholeMessage) {
  const auto table = ChoiceTable::parse("all_gather * ..4K any bruck\nall_gather * * any ring");
  ASSERT_TRUE(table.is_ok());
  Request request{.collective = Collective::kAllGather, .rank_count = 4, .block_bytes = 1024};
  EXPECT_STREQ(name_of(table->choose(request, {})), "bruck");
  request.block_bytes = 1025;
  EXPECT_STREQ(name_of(table->choose(request, {})), "ring");
  request.block_bytes = UINT64_MAX / 2;
  EXPECT_STREQ(name_of(table->choose(request, {})), "ring") << "the product must not wrap around";
}

TEST(ChoiceTest, WithoutARowTheFirstAlgorithmThatSupportsTheRequestServesIt) {
  const auto empty = ChoiceTable::parse("");
  ASSERT_TRUE(empty.is_ok());
  uint32_t row = 7;
  const Request request{.collective = Collective::kAllToAll, .rank_count = 3, .variable_counts = true};
  EXPECT_STREQ(name_of(empty->choose(request, {}, &row)), "direct");
  EXPECT_EQ(row, 0u);
  EXPECT_EQ(empty->choose({.collective = Collective::kSendRecv, .rank_count = 2}, {}), nullptr);
}

TEST(ChoiceTest, AWrongTextIsRefusedWithItsLineAndWhatWasExpected) {
  const std::pair<const char*, const char*> cases[] = {
      {"all_reduce * * any", "line 1: expected 5 columns"},
      {"all_reduce * * any ring ring", "line 1: expected 5 columns"},
      {"\n# x\nall_reduced * * any ring", "line 3: no collective 'all_reduced'"},
      {"send_recv * * any ring", "line 1: no collective"},
      {"all_reduce 0 * any ring", "expected ranks"},
      {"all_reduce 4..2 * any ring", "expected ranks"},
      {"all_reduce .. * any ring", "expected ranks"},
      {"all_reduce -1 * any ring", "expected ranks"},
      {"all_reduce 4294967296 * any ring", "expected ranks"},
      {"all_reduce 8.. ..x any ring", "expected bytes"},
      {"all_reduce * 1T any ring", "expected bytes"},
      {"all_reduce * 1KK any ring", "expected bytes"},
      {"all_reduce * 99999999999999999999 any ring", "expected bytes"},
      {"all_reduce * 99999999999999999G any ring", "expected bytes"},
      {"all_reduce * * sometimes ring", "as condition, not 'sometimes'"},
      {"all_reduce * * any rings",
       "no algorithm 'rings' for all_reduce; the algorithms are: direct_one_shot, "},
      {"all_reduce * * any chain", "no algorithm 'chain' for all_reduce"},
      {"all_reduce * * any \x01\xff", "no algorithm '?\?'"},
  };
  for (const auto& [text, expected] : cases) {
    const auto table = ChoiceTable::parse(text);
    ASSERT_FALSE(table.is_ok()) << text;
    EXPECT_EQ(table.status().code(), Code::kInvalidArgument);
    EXPECT_NE(table.status().text().find(expected), std::string_view::npos)
        << text << " -> " << table.status().text();
  }
}

TEST(ChoiceTest, TooManyRowsAreRefused) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "barrier * * any direct\n";
  EXPECT_FALSE(ChoiceTable::parse(text).is_ok());
}

// Goal: no text crashes the parser or makes it run long. Method: seeded damage to the built-in rows and
// pure noise.
TEST(ChoiceTest, DamagedTextsParseOrFailButNeverCrash) {
  constexpr uint32_t kSeed = 20240607;
  std::mt19937 random(kSeed);
  const std::string good =
      "all_reduce 2..8 ..32K publish direct_one_shot\nbroadcast * 64K.. any chain\nbarrier 1 * any direct\n";
  using namespace std::string_literals;
  const std::string alphabet = "abz_.*#019KMG \t\r\n\0\xff-"s;
  for (int i = 0; i < 20000; ++i) {
    std::string text = i % 4 == 0 ? std::string(random() % 200, ' ') : good;
    const size_t damages = i % 4 == 0 ? text.size() : 1 + random() % 4;
    for (size_t k = 0; k < damages; ++k) text[random() % text.size()] = alphabet[random() % alphabet.size()];
    const auto table = ChoiceTable::parse(text);
    if (table.is_ok()) {
      const Request request{.collective = Collective::kBarrier, .rank_count = 3, .block_bytes = 1};
      ASSERT_NE(table->choose(request, {}), nullptr);
    } else {
      ASSERT_FALSE(table.status().text().empty());
    }
  }
}

}  // namespace
}  // namespace tutti
