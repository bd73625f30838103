// Tests of tutti-tune: what it keeps, and the table that follows from measurements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "algorithms/choice.h"
#include "tools/runs.h"
#include "tools/samples.h"
#include "tools/trials.h"
#include "tools/tutti_tune/compare.h"

namespace tutti::tool {
namespace {

using ::testing::HasSubstr;

Case case_of(const std::string& algorithm, uint32_t ranks = 4, uint32_t hosts = 1) {
  return {Collective::kAllReduce, ranks, hosts, algorithm};
}

std::string chosen(const Samples& samples, uint64_t bytes, const Facts& facts = {}) {
  const auto table = ChoiceTable::parse(samples.table());
  EXPECT_TRUE(table) << table.status().text() << samples.table();
  uint32_t row = 0;
  const Request request{.rank_count = 4, .block_bytes = bytes};
  const Algorithm* algorithm = table->choose(request, facts, &row);
  return row < table->rows().size() ? std::string(algorithm->name) : "none";
}

void add_thrice(Samples& samples, const Case& of, double us, const std::string& ran) {
  for (int i = 0; i < 3; ++i) samples.add(of, 1024, {us}, ran);
}

Samples two_algorithms() {
  Samples samples;
  for (const double noise : {1.0, 1.3, 1.1}) {
    samples.add(case_of("ring"), 1024, {30 * noise}, "ring");
    samples.add(case_of("ring"), 1 << 20, {100 * noise}, "ring");
    samples.add(case_of("direct_two_shot"), 1024, {3 * noise}, "direct_two_shot");
    samples.add(case_of("direct_two_shot"), 1 << 20, {200 * noise}, "direct_two_shot");
  }
  return samples;
}

TEST(SamplesTest, TheFastestOfEachSizeGetsARow) {
  const Samples samples = two_algorithms();
  EXPECT_EQ(chosen(samples, 8), "direct_two_shot");
  EXPECT_EQ(chosen(samples, 1 << 20), "ring");
  EXPECT_EQ(chosen(samples, 1 << 30), "ring");
}

// Goal: between two sizes the row ends where the times cross, as straight lines of their logarithms would.
// Method: from 1 KiB to 1 MiB, one algorithm is 10 times as fast and then half as fast: they cross after
// ln 10 of ln 20. Where the second size knows one of them only, the row ends in the middle.
TEST(SamplesTest, ARowEndsWhereTheNextAlgorithmGetsFaster) {
  Samples samples = two_algorithms();
  const double limit = 1024 * std::pow(1024, std::log(10) / std::log(20));
  EXPECT_EQ(chosen(samples, static_cast<uint64_t>(limit * 0.99)), "direct_two_shot");
  EXPECT_EQ(chosen(samples, static_cast<uint64_t>(limit * 1.01)), "ring");
  samples = {};
  add_thrice(samples, case_of("direct_two_shot"), 1, "direct_two_shot");
  for (int i = 0; i < 3; ++i) samples.add(case_of("ring"), 1 << 20, {100}, "ring");
  EXPECT_EQ(chosen(samples, 32 << 10), "direct_two_shot");
  EXPECT_EQ(chosen(samples, (32 << 10) + 1), "ring");
}

// Goal: a later run, which reads the samples, makes the same table. Method: times of many digits, which
// decide where a row ends.
TEST(SamplesTest, SamplesAreKeptAsTheyArePrinted) {
  Samples samples;
  for (const double digits : {1.00003, 1.00004, 1.00006}) {
    for (const uint64_t bytes : {1024, 1 << 20}) {
      const double of_size = bytes == 1024 ? 1 : 21.777777;
      samples.add(case_of("ring"), bytes, {(bytes == 1024 ? 30 : 5) * digits * of_size}, "ring");
      samples.add(case_of("direct_two_shot"), bytes, {10.123456 * digits * of_size}, "direct_two_shot");
    }
  }
  const auto again = Samples::parse(samples.print());
  ASSERT_TRUE(again) << again.status().text();
  EXPECT_EQ(again->table(), samples.table());
}

// Goal: what was measured between emulated hosts is no choice for jobs on real ones.
TEST(SamplesTest, RowsOfContainersAreForContainers) {
  Samples samples;
  for (int n = 0; n < 3; ++n) samples.add(case_of("ring", 4, 2), 1024, {1}, "ring");
  for (const bool are_containers : {false, true}) {
    const auto table = ChoiceTable::parse(samples.table(are_containers));
    ASSERT_TRUE(table) << table.status().text();
    ASSERT_EQ(table->rows().size(), 1u);
    EXPECT_EQ(table->rows()[0].condition,
              are_containers ? ChoiceRow::Condition::kContainers : ChoiceRow::Condition::kHosts);
  }
}

// Goal: rows neither overlap nor are empty, whatever the sizes. Method: each size has another winner.
TEST(SamplesTest, RowsOfAnySizesFollowEachOther) {
  Samples samples;
  const std::array<uint64_t, 6> sizes = {0, 1, 2, 9, uint64_t{1} << 63, UINT64_MAX};
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (const std::string name : {"ring", "direct_two_shot"}) {
      const double us = (name == "ring") == (i % 2 == 0) ? 1 : 1.1;
      for (int n = 0; n < 3; ++n) samples.add(case_of(name), sizes[i], {us}, name);
    }
  }
  const auto table = ChoiceTable::parse(samples.table());
  ASSERT_TRUE(table) << table.status().text();
  ASSERT_EQ(table->rows().size(), sizes.size());
  uint64_t from = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(table->rows()[i].bytes_min, from);
    EXPECT_GE(sizes[i], from);
    EXPECT_LE(sizes[i], table->rows()[i].bytes_max) << i;
    from = table->rows()[i].bytes_max + 1;
  }
}

// Goal: times of what another version chose are not those of this version's choice.
TEST(SamplesTest, AnotherChoiceBeginsAnew) {
  Samples samples;
  add_thrice(samples, case_of("default"), 50, "ring");
  add_thrice(samples, case_of("default"), 10, "direct_two_shot");
  EXPECT_EQ(samples.rounds_of(case_of("default"), {1024}), 3u);
}

// Goal: the last row holds for all longer calls if one of 1 MiB was measured, else for some.
TEST(SamplesTest, RowsOfLongCallsReachFar) {
  EXPECT_EQ(ChoiceTable::parse(two_algorithms().table())->rows().back().bytes_max, UINT64_MAX);
  Samples samples;
  add_thrice(samples, case_of("ring"), 30, "ring");
  EXPECT_EQ(ChoiceTable::parse(samples.table())->rows().back().bytes_max, 2048u);
}

/// Samples of 4 ranks.
class GainsTest : public ::testing::Test {
 protected:
  /// Of all algorithms named; the library chooses `own`.
  void add(uint64_t bytes, const std::string& own, const std::map<std::string, double>& us) {
    for (int i = 0; i < 3; ++i) samples_.add(case_of("default"), bytes, {us.at(own)}, own);
    add_others(bytes, us);
  }
  /// The same without the library's choice.
  void add_others(uint64_t bytes, const std::map<std::string, double>& us) {
    for (int i = 0; i < 3; ++i)
      for (const auto& [name, one] : us) samples_.add(case_of(name), bytes, {one}, name);
  }
  std::vector<ChoiceRow> rows(const Noise& noise = {.own_cores = 0.08}) const {
    const auto table = ChoiceTable::parse(samples_.table_of_gains(noise));
    EXPECT_TRUE(table) << table.status().text();
    return {table->rows().begin(), table->rows().end()};
  }
  void expect_one_row(const std::string& algorithm, uint64_t from, uint64_t to) const {
    const auto own = rows();
    ASSERT_EQ(own.size(), 1u);
    EXPECT_EQ(own[0].algorithm, algorithm);
    EXPECT_EQ(own[0].bytes_min, from);
    EXPECT_EQ(own[0].bytes_max, to);
  }

 private:
  Samples samples_;
};

// Goal: only clear gains have rows, which end half-way to sizes without. Ranks that share cores have a limit
// of their own.
TEST_F(GainsTest, OnlyClearGainsHaveRows) {
  add(1024, "direct_two_shot", {{"direct_two_shot", 10}, {"ring", 9.5}});
  add(4096, "direct_two_shot", {{"direct_two_shot", 22}, {"ring", 20}});
  add(16384, "direct_two_shot", {{"direct_two_shot", 33}, {"ring", 32}});
  expect_one_row("ring", 2049, 8192);
  EXPECT_TRUE(rows({.own_cores = 0.2}).empty());
  EXPECT_TRUE(rows({.own_cores = 0.08, .shared_cores = 0.2, .cores = 2}).empty()) << "4 ranks share 2 cores";
}

// Goal: nothing is better than the library's choice unmeasured.
TEST_F(GainsTest, WithoutTheLibrarysChoiceThereIsNoRow) {
  add_others(1024, {{"ring", 1}, {"recursive_doubling", 2}});
  EXPECT_TRUE(rows().empty());
}

// Goal: rows hold near what was measured.
TEST_F(GainsTest, RowsReachFromHalfOfTheShortestToTwiceTheLongestSize) {
  add(1024, "direct_two_shot", {{"direct_two_shot", 10}, {"ring", 8}});
  add(4 << 20, "direct_two_shot", {{"direct_two_shot", 30}, {"ring", 20}});
  expect_one_row("ring", 512, 8 << 20);
}

// Goal: an algorithm that is the fastest at two sizes has all sizes between them, also if the library itself
// chooses it at one of them only.
TEST_F(GainsTest, TheWinnerOfTwoSizesWinsBetweenThem) {
  add(8192, "direct_one_shot", {{"direct_one_shot", 10}, {"direct_two_shot", 20}});
  add(32768, "direct_two_shot", {{"direct_one_shot", 20}, {"direct_two_shot", 40}});
  expect_one_row("direct_one_shot", 8193, 65536);
}

// Goal: an algorithm keeps the next size where it is nearly the fastest one, but never without a clear gain.
TEST_F(GainsTest, TheWinnerBeforeNeedsAClearGain) {
  add(1024, "direct_two_shot", {{"direct_two_shot", 20}, {"ring", 10}, {"recursive_doubling", 15}});
  add(4096, "direct_two_shot", {{"direct_two_shot", 108.5}, {"ring", 102.9}, {"recursive_doubling", 100}});
  add(16384, "direct_two_shot", {{"direct_two_shot", 200}, {"ring", 100}, {"recursive_doubling", 102.9}});
  const auto own = rows();
  ASSERT_EQ(own.size(), 2u);
  EXPECT_EQ(own[0].algorithm, "ring");
  EXPECT_EQ(own[1].algorithm, "recursive_doubling") << "the second size, and the third one";
}

// Goal: rows of one host are not used for ranks of several hosts, and the reverse.
TEST(SamplesTest, RowsHoldForWhereTheyWereMeasured) {
  EXPECT_EQ(chosen(two_algorithms(), 8, {.can_publish = false, .host_count = 2}), "none");
  Samples samples;
  add_thrice(samples, case_of("ring", 4, 2), 3, "ring");
  EXPECT_EQ(chosen(samples, 8), "none");
  EXPECT_EQ(chosen(samples, 8, {.can_publish = false, .host_count = 2}), "ring");
}

TEST(SamplesTest, TheLibrarysChoiceStaysUnlessAnotherOneIsClearlyFaster) {
  Samples samples;
  add_thrice(samples, case_of("default"), 10, "ring");
  add_thrice(samples, case_of("direct_two_shot"), 9.7, "direct_two_shot");
  EXPECT_EQ(chosen(samples, 1024), "ring");
  Samples faster;
  add_thrice(faster, case_of("default"), 10, "ring");
  faster.add(case_of("direct_two_shot"), 1024, {9}, "direct_two_shot");
  EXPECT_EQ(chosen(faster, 1024), "ring") << "measured once";
  add_thrice(faster, case_of("direct_two_shot"), 9, "direct_two_shot");
  EXPECT_EQ(chosen(faster, 1024), "direct_two_shot");
}

// Goal: a slow moment of the library's choice does not make another algorithm look faster: where the choice
// was also measured by its name, both are samples of it. Method: the choice loses by 11 %, both by 6 %.
TEST(SamplesTest, TheLibrarysChoiceHasTheSamplesOfItsAlgorithm) {
  Samples samples;
  add_thrice(samples, case_of("default"), 11, "ring");
  add_thrice(samples, case_of("direct_two_shot"), 9.8, "direct_two_shot");
  EXPECT_EQ(chosen(samples, 1024), "direct_two_shot");
  add_thrice(samples, case_of("ring"), 10, "ring");
  EXPECT_EQ(chosen(samples, 1024), "ring");
}

// Goal: what an algorithm is given for having won the size before does not come on top of what the library's
// choice is given. Method: at the second size the winner before takes 7 % longer than the fastest one, but
// only 2 % longer than the library's choice, which is not surely slower than the fastest.
TEST(SamplesTest, TheWinnerBeforeIsComparedWithTheFastest) {
  Samples samples;
  const auto add = [&](uint64_t bytes, const std::string& name, double us, const std::string& ran) {
    for (int i = 0; i < 3; ++i) samples.add(case_of(name), bytes, {us}, ran);
  };
  add(1024, "default", 20, "direct_two_shot");
  add(1024, "ring", 10, "ring");
  add(1024, "recursive_doubling", 15, "recursive_doubling");
  add(65536, "default", 105, "direct_two_shot");
  add(65536, "ring", 107, "ring");
  add(65536, "recursive_doubling", 100, "recursive_doubling");
  EXPECT_EQ(chosen(samples, 1024), "ring");
  EXPECT_EQ(chosen(samples, 65536), "direct_two_shot");
}

// Goal: rows of one turn are compared with each other. Method: the second start is four times as slow, and
// the library's choice has lost most of its rows there; by all of its rows it would be the fastest.
TEST(SamplesTest, OnlyRowsOfOneTurnAreCompared) {
  Samples samples;
  for (uint32_t start : {1u << 16, 2u << 16}) {
    const double slow = start == 1u << 16 ? 1 : 4;
    for (uint32_t turn = 0; turn < 3; ++turn) {
      samples.add(case_of("ring"), 1024, {.us = 10 * slow, .start = start, .turn = turn}, "ring");
      if (slow > 1 && turn > 0) continue;
      samples.add(case_of("default"), 1024, {.us = 14 * slow, .start = start, .turn = turn},
                  "direct_two_shot");
    }
  }
  EXPECT_EQ(chosen(samples, 1024), "ring");
}

// Goal: algorithms are compared at the same distance of the cores, and all distances count alike. Method:
// ring is slightly slower between near cores, and twice as fast between far ones; most samples are of near
// ones. The third algorithm was measured between near cores only.
TEST(SamplesTest, EachDistanceOfTheCoresCountsOnce) {
  Samples samples;
  const auto add = [&](const std::string& name, double us, uint64_t line_ns, int count) {
    for (int i = 0; i < count; ++i) samples.add(case_of(name), 1024, {us, line_ns}, name);
  };
  add("direct_two_shot", 1.0, 55, 6);
  add("direct_two_shot", 1.0, 70, 3);
  add("ring", 1.2, 60, 9);
  add("recursive_doubling", 0.9, 60, 9);
  EXPECT_EQ(chosen(samples, 1024), "recursive_doubling");
  add("direct_two_shot", 8, 240, 3);
  add("ring", 4, 250, 3);
  EXPECT_EQ(chosen(samples, 1024), "ring");
  for (const std::string name : {"ring", "direct_two_shot"}) add(name, 100, 0, 3);  // unknown
  EXPECT_EQ(chosen(samples, 1024), "ring");
  add("recursive_doubling", 10, 250, 3);
  add("recursive_doubling", 100, 0, 3);
  add("direct_two_shot", 1, 24, 3);
  EXPECT_EQ(chosen(samples, 1024), "ring") << "only one algorithm was measured at 24 ns";
  samples.add(case_of("default"), 1024, {50, 250}, "hierarchical");
  EXPECT_EQ(chosen(samples, 1024), "none") << "nothing can be better than the library's choice unmeasured";
}

TEST(SamplesTest, ASampleOfAnotherAlgorithmIsNotKept) {
  Samples samples;
  samples.add(case_of("recursive_multiplying_4", 3), 8, {1}, "recursive_doubling");
  EXPECT_EQ(samples.rounds_of(case_of("recursive_multiplying_4", 3), {8}), 0u);
}

// Goal: a later run goes on. Method: print, parse, compare.
TEST(SamplesTest, WhatIsPrintedIsReadBack) {
  Samples samples = two_algorithms();
  samples.add(case_of("default"), 1024, {2.5}, "direct_one_shot");
  samples.add(case_of("default"), 1 << 20, {2.5, 57}, "direct_one_shot");
  samples.add(case_of("ring"), 1 << 20, {3.5, 240}, "ring");
  samples.add(case_of("ring"), 1 << 20, {.us = 3.5, .start = 0x1a2b3, .turn = 12}, "ring");
  EXPECT_THAT(samples.print(), HasSubstr("ring 3.5 s1a2b3.12\n"));
  const auto again = Samples::parse(samples.print());
  ASSERT_TRUE(again) << again.status().text();
  EXPECT_EQ(again->print(), samples.print());
  EXPECT_EQ(again->table(), samples.table());
  EXPECT_EQ(again->rounds_of(case_of("ring"), {1024}), 3u);
}

// Goal: what was measured at other sizes says nothing of the wanted ones, and costs them nothing. Method: one
// size three times, another one once.
TEST(SamplesTest, RoundsAreThoseOfTheWantedSizes) {
  Samples samples;
  add_thrice(samples, case_of("ring"), 1, "ring");
  samples.add(case_of("ring"), 4096, {1}, "ring");
  EXPECT_EQ(samples.rounds_of(case_of("ring"), {1024}), 3u);
  EXPECT_EQ(samples.rounds_of(case_of("ring"), {1024, 4096}), 1u);
  EXPECT_EQ(samples.rounds_of(case_of("ring"), {1024, 1536}), 0u);
  EXPECT_EQ(samples.rounds_of(case_of("direct_two_shot"), {1024}), 0u);
}

TEST(SamplesTest, TheMiddleOfAnEvenNumberIsBetweenTwo) {
  EXPECT_EQ(middle({}), 0);
  EXPECT_EQ(middle({4, 1, 9}), 4);
  EXPECT_EQ(middle({3, 1, 9, 5}), 4);
}

// Goal: where no distance has all that a comparison needs, nothing is said. Method: the library's choice was
// measured between near cores, the others between far ones.
TEST(SamplesTest, WithoutACommonDistanceThereIsNoRow) {
  Samples samples;
  for (int i = 0; i < 3; ++i) {
    samples.add(case_of("default"), 1024, {10, 57}, "direct_two_shot");
    for (const std::string name : {"ring", "recursive_doubling", "direct_one_shot"})
      samples.add(case_of(name), 1024, {5, 250}, name);
  }
  for (const std::string& table : {samples.table(), samples.table_of_gains({.own_cores = 0.1})})
    EXPECT_EQ(table.find('\n') + 1, table.size()) << table;
}

// Goal: times of another version's algorithms are known as such.
TEST(SamplesTest, SamplesSayOfWhichVersionTheyAre) {
  const std::string line = "all_reduce 4 1 8 ring 1\n";
  EXPECT_TRUE(Samples::parse(two_algorithms().print())->are_of_this_version());
  EXPECT_FALSE(Samples::parse("# tutti-tune (tutti 0.0.1)\n" + line)->are_of_this_version());
  EXPECT_FALSE(Samples::parse(line)->are_of_this_version());
}

TEST(SamplesTest, WrongLinesAreNamed) {
  for (const char* text : {"all_reduce 4 1 8 ring", "all_reduce 4 1 8 ring -3", "all_reduce 4 1 8 ring nan",
                           "all_reduce 0 1 8 ring 1", "all_juice 4 1 8 ring 1", "all_reduce 4 1 8 no_such 1",
                           "all_reduce 4 1 8 default 1", "all_reduce 4 1 8 default 1 no_such", "57ns",
                           "all_reduce 4 1 8 ring 57ns", "all_reduce 4 1 8 ring 1 xns",
                           "all_reduce 4 1 8 ring 1 sx.1", "all_reduce 4 1 8 ring 1 s1a",
                           "all_reduce 4 1 8 ring 1 s1a.1 57ns", "all_reduce 4294967295 1 8 ring 1",
                           "all_reduce 2 3 8 ring 1", "all_reduce 2 1 18446744073709551615 ring 1"}) {
    const auto samples = Samples::parse(std::string("# first\n") + text);
    ASSERT_FALSE(samples) << text;
    EXPECT_THAT(std::string(samples.status().text()), HasSubstr("line 2")) << text;
  }
}

TEST(RunsTest, AReportIsRead) {
  const auto report =
      parse_report(R"({"config": {"ranks": 2, "devices": [{"hostname": "a"}, {"hostname": "b"}]},
      "results": [{"size": 8, "out_of_place": {"time": 1.5}, "algorithm": "ring", "wanted": "default"}]})");
  ASSERT_TRUE(report) << report.status().text();
  EXPECT_EQ(report->ranks, 2u);
  EXPECT_EQ(report->hosts, 2u);
  ASSERT_EQ(report->rows.size(), 1u);
  EXPECT_EQ(report->rows[0].algorithm, "ring");
  EXPECT_EQ(report->rows[0].wanted, "default");
  EXPECT_EQ(parse_report("{}").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(parse_report("").status().code(), Code::kInvalidArgument);
}

// Goal: what a failed run said is in the error. Method: a launcher that fails.
TEST(RunsTest, AFailedRunTellsWhy) {
  RunOptions options{.folder = "/nonexistent",
                     .launcher = {"/bin/sh", "-c", "echo out of paper; exit 3"},
                     .collective = Collective::kAllReduce};
  const auto report = run_perf_tool(options);
  EXPECT_EQ(report.status().code(), Code::kUnsupported);
  EXPECT_THAT(std::string(report.status().text()), HasSubstr("out of paper"));
}

// Goal: "default" is the library's own choice, whatever the user's environment names. Method: a tool that
// prints what it is told.
TEST(RunsTest, TheUsersChoiceIsNotMeasuredAsTheLibrarys) {
  const auto folder = std::filesystem::temp_directory_path() / format("tutti-tune-test-%d", getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "all_reduce_perf")
      << "#!/bin/sh\necho \"[$TUTTI_CHOICE_FILE$TUTTI_ALGORITHM$TUTTI_TOPOLOGY_FILE$TUTTI_PRICES]"
         "$TUTTI_CACHE_DIR\"\nexit 3\n";
  std::filesystem::permissions(folder / "all_reduce_perf", std::filesystem::perms::owner_all);
  constexpr std::array kNames = {"TUTTI_CHOICE_FILE", "TUTTI_ALGORITHM", "TUTTI_TOPOLOGY_FILE",
                                 "TUTTI_PRICES"};
  for (const char* name : kNames) setenv(name, "mine", 1);
  const auto report = run_perf_tool({.folder = folder.string(), .processes = 2});
  for (const char* name : kNames) unsetenv(name);
  std::filesystem::remove_all(folder);
  EXPECT_THAT(std::string(report.status().text()), HasSubstr("[]/nonexistent/"));
}

// Goal: what a call will measure is known before. Method: sizes whose blocks are empty, of whole floats, and
// of 16 bytes; a collective without blocks.
TEST(RunsTest, TheSizesOfRowsAreThoseOfWholeBlocks) {
  using Sizes = std::set<uint64_t>;
  const SizeGrid grid = {.least = 8, .most = 128, .factor = 4};
  EXPECT_EQ(row_sizes(Collective::kAllGather, 4, grid), (Sizes{32, 128}));
  EXPECT_EQ(row_sizes(Collective::kAllReduce, 4, grid), (Sizes{8, 32, 128}));
  EXPECT_EQ(row_sizes(Collective::kScatter, 3, {.least = 100, .most = 400, .factor = 2}),
            (Sizes{96, 192, 384}));
  EXPECT_EQ(row_sizes(Collective::kAllToAll, 8, {.least = 8, .most = 31, .factor = 2}), Sizes{});
}

// Goal: a row says where the cores were, and one during which they moved is left out. Method: a report with
// rows of near cores, of far ones, of cores that moved, of cores that did not answer, and of unknown cores.
TEST(RunsTest, RowsDuringWhichCoresMovedAreLeftOut) {
  std::string rows;
  for (const auto& [us, lines] :
       {std::pair(1, "[57, 60]"), {2, "[250, 270]"}, {3, "[57, 270]"}, {4, "[57, 0]"}}) {
    rows += format(
        R"({"size": 8, "algorithm": "ring", "wanted": "ring", "out_of_place": {"time": %d, "line_ns": %s}},)",
        us, lines);
  }
  rows += R"({"size": 8, "algorithm": "ring", "wanted": "ring", "out_of_place": {"time": 5}})";
  auto report = parse_report(R"({"config": {"ranks": 2, "devices": []}, "results": [)" + rows + "]}");
  ASSERT_TRUE(report) << report.status().text();
  report->start = 1 << 16;
  Samples samples;
  add_rows(*report, Collective::kAllReduce, 1, samples);
  const auto& kept = samples.cases().at(case_of("ring", 2)).at(8).samples;
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_EQ(std::pair(kept[0].us, kept[0].line_ns), std::pair(1.0, uint64_t{60}));
  EXPECT_EQ(std::pair(kept[1].us, kept[1].line_ns), std::pair(2.0, uint64_t{270}));
  EXPECT_EQ(std::pair(kept[2].us, kept[2].line_ns), std::pair(5.0, uint64_t{0})) << "unknown";
  EXPECT_EQ(kept[2].turn, 4u) << "rows that are left out count as turns";
}

// Goal: trials of one distance say nothing of another one.
TEST(RunsTest, CallTimesAreOfOneDistance) {
  Samples samples;
  for (const double us : {1.0, 3.0, 2.0}) samples.add(case_of("ring"), 8, {us, 57}, "ring");
  samples.add(case_of("ring"), 8, {90, 270}, "ring");
  samples.add(case_of("ring"), 64, {90, 270}, "ring");
  const auto calls = call_times(samples, 60, nullptr);
  ASSERT_EQ(calls.size(), 1u);
  const auto& times = calls.begin()->second;
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times.at(8).ns.value, 2000u);
}

// Goal: where ranks share cores, long rows count, elsewhere only the middle one does; rows of the library's
// own choice are those of the algorithm that ran. Method: the same rows of 2 and of 4 ranks on 2 cores.
TEST(RunsTest, ATrialIsTheMiddleOfItsRowsOrTheirMean) {
  Samples samples;
  for (const uint32_t ranks : {2u, 4u}) {
    for (const double us : {1.0, 1.0, 9.0}) samples.add(case_of("ring", ranks), 8, {us, 57}, "ring");
    for (const double us : {2.0, 3.0})
      samples.add(case_of(std::string(kDefault), ranks), 8, {us, 57}, "ring");
  }
  auto machine = Machine::load("", "2 cores");
  ASSERT_TRUE(machine) << machine.status().text();
  const auto calls = call_times(samples, 60, &*machine);
  const auto ns = [&](uint32_t ranks) {
    return calls.at({Collective::kAllReduce, ranks, 1, "ring"}).at(8).ns.value;
  };
  EXPECT_EQ(ns(2), 2000u);
  EXPECT_EQ(ns(4), 2200u) << "9 us count as twice the middle";
}

// Goal: chance makes no difference between algorithms that do the same. Method: all_gather of 2 ranks, where
// direct and ring make one plan, and of 4.
TEST(RunsTest, EqualPlansHaveTheirTrialsInCommon) {
  Samples samples;
  for (const uint32_t ranks : {2u, 4u}) {
    for (const double us : {1.0, 1.2}) {
      samples.add({Collective::kAllGather, ranks, 1, "ring"}, 64, {us, 57}, "ring");
      samples.add({Collective::kAllGather, ranks, 1, "direct"}, 64, {us + 1, 57}, "direct");
    }
  }
  auto machine = Machine::load("", "2 cores");
  ASSERT_TRUE(machine) << machine.status().text();
  const auto calls = call_times(samples, 60, &*machine);
  const auto ns = [&](uint32_t ranks, const char* name) {
    return calls.at({Collective::kAllGather, ranks, 1, name}).at(64).ns.value;
  };
  EXPECT_EQ(ns(2, "ring"), 1600u);
  EXPECT_EQ(ns(2, "direct"), 1600u);
  EXPECT_EQ(ns(4, "ring"), 1100u);
  EXPECT_EQ(ns(4, "direct"), 2100u);
}

// Goal: the table of trials is made of all that is kept, of near and of far cores. Method: two distances, at
// which different algorithms win, by different factors; emulated hosts, which say nothing of one host.
TEST(RunsTest, TheTableOfTrialsIsOfAllDistances) {
  std::vector<topology::Measurements> all(2);
  const auto add = [&](size_t at, const std::string& name, uint64_t ns, uint32_t hosts) {
    all[at].calls[{Collective::kAllReduce, 4, hosts, name}][1 << 16].ns = {ns, topology::Origin::kMeasured};
  };
  all[0].slices.apart_ns.value = 60;
  all[1].slices.apart_ns.value = 250;
  add(0, "ring", 1100, 1);
  add(0, "direct_two_shot", 1000, 1);
  add(1, "ring", 2000, 1);
  add(1, "direct_two_shot", 8000, 1);
  add(0, "recursive_doubling", 10, 2);
  const auto table = ChoiceTable::parse(table_of_trials(all, 2));
  ASSERT_TRUE(table) << table.status().text();
  ASSERT_EQ(table->rows().size(), 1u);
  EXPECT_EQ(table->rows().front().algorithm, "ring");
  EXPECT_EQ(table->rows().front().bytes_max, 1u << 17) << "twice the longest one";
}

// Goal: a file of another version makes no bad table. Method: an algorithm that there is not, faster than
// all; a call that has no algorithms.
TEST(RunsTest, UnknownTrialsMakeNoRow) {
  std::vector<topology::Measurements> all(1);
  const auto add = [&](Collective collective, const char* name, uint64_t ns) {
    all[0].calls[{collective, 4, 1, name}][1 << 16].ns = {ns, topology::Origin::kMeasured};
  };
  add(Collective::kAllReduce, "direct_two_shot", 1000);
  add(Collective::kAllReduce, "of_tomorrow", 1);
  add(Collective::kSendRecv, "direct", 1);
  const auto table = ChoiceTable::parse(table_of_trials(all, 2));
  ASSERT_TRUE(table) << table.status().text();
  EXPECT_TRUE(table->rows().empty());
}

// Goal: trials of one start must show more than those of many, and more where ranks share cores. Method: on 2
// cores, an algorithm takes 1/1.4 of the time of the library's choice.
TEST(RunsTest, FewTrialsMustShowMore) {
  const auto has_row = [](uint32_t ranks, uint32_t starts) {
    std::vector<topology::Measurements> all(1);
    for (const auto& [name, ns] : {std::pair("direct_two_shot", 14000), {"ring", 10000}}) {
      const topology::Fact fact = {static_cast<uint64_t>(ns), topology::Origin::kMeasured};
      all[0].calls[{Collective::kAllReduce, ranks, 1, name}][1 << 20] = {fact, starts};
    }
    const auto table = ChoiceTable::parse(table_of_trials(all, 2));
    EXPECT_TRUE(table) << table.status().text();
    return table && !table->rows().empty();
  };
  EXPECT_TRUE(has_row(2, 1));
  EXPECT_FALSE(has_row(4, 1));
  EXPECT_TRUE(has_row(4, 4));
}

// Goal: of two means the one of fewer starts says how much chance is in their ratio, and so does the distance
// of the cores with fewer. Method: ratios of 1.2; a noise of 0.3 in one start.
TEST_F(GainsTest, TheFewestStartsCount) {
  const auto has_row = [](uint32_t own_starts, uint32_t starts, uint32_t far_starts) {
    Samples samples;
    for (uint32_t i = 0; i < kLeastSamples; ++i) {
      for (const auto& [line_ns, of_ring] : {std::pair(57u, starts), {270u, far_starts}}) {
        samples.add(case_of("default"), 1024, {12, line_ns, own_starts}, "direct_two_shot");
        samples.add(case_of("direct_two_shot"), 1024, {12, line_ns, own_starts}, "direct_two_shot");
        samples.add(case_of("ring"), 1024, {10, line_ns, of_ring}, "ring");
      }
    }
    return samples.table_of_gains({.own_cores = 0.3}).find("ring") != std::string::npos;
  };
  EXPECT_TRUE(has_row(4, 4, 4));
  EXPECT_FALSE(has_row(2, 4, 4)) << "0.3 over the root of 2 is 0.21";
  EXPECT_FALSE(has_row(4, 2, 4));
  EXPECT_FALSE(has_row(4, 4, 2));
}

// Goal: algorithms of one plan are one program, so a choice among them costs nothing. Method: of two ranks,
// ring, recursive doubling and direct are one plan of all_gather, but pairwise and bruck are two of
// all_to_all; the table takes one that was slower by chance.
TEST(CompareTest, EqualPlansAreOneCandidate) {
  auto machine = Machine::load("", "2 cores");
  ASSERT_TRUE(machine) << machine.status().text();
  using Times = std::vector<std::pair<std::string, double>>;
  const auto choices = [&](Collective collective, const Times& times, const std::string& kept_row) {
    Samples samples;
    for (const auto& [name, us] : times) {
      for (int i = 0; i < 12; ++i) samples.add({collective, 2, 1, name}, 1024, {us}, name);
    }
    auto kept = ChoiceTable::parse(kept_row);
    EXPECT_TRUE(kept) << kept.status().text();
    const auto text = compare(samples, *machine, {.kept = std::move(*kept)});
    EXPECT_TRUE(text) << text.status().text();
    return text ? text->substr(text->rfind("| all |")) : std::string();
  };
  EXPECT_THAT(
      choices(Collective::kAllGather, {{"ring", 12.0}, {"recursive_doubling", 10.0}, {"direct", 30.0}},
              "all_gather 2 * any direct"),
      HasSubstr(" 100 % (100, 0) | 1.00 | - | - | - | - |\n"));
  EXPECT_THAT(
      choices(Collective::kAllToAll, {{"pairwise", 10.0}, {"bruck", 25.0}}, "all_to_all 2 * any bruck"),
      HasSubstr(" 0 % (0, 100) | 2.50 | - | - | - | - |\n"));
  EXPECT_THAT(choices(Collective::kAllToAll, {{"bruck", 25.0}}, "all_to_all 2 * any pairwise"),
              HasSubstr(" 0 % (0, 0), 1 not measured | 1.00 | - | - | - | - |\n"));
}

// Goal: the last columns say what chance leaves to any choice, and the ones before what ran. Method: the
// library's choice and the same algorithm under its name differ by 10 %, one start in this direction and one
// in the other; bruck takes twice as long.
TEST(CompareTest, AnAlgorithmIsComparedWithItself) {
  auto machine = Machine::load("", "2 cores");
  ASSERT_TRUE(machine) << machine.status().text();
  Samples samples;
  const auto add = [&](const std::string& name, const std::string& ran, double us) {
    samples.add({Collective::kAllToAll, 2, 1, name}, 1024, {us}, ran);
  };
  for (int sample = 0; sample < 12; ++sample) {
    add("default", "pairwise", sample / 3 % 2 == 0 ? 11.0 : 10.0);
    add("pairwise", "pairwise", sample / 3 % 2 == 0 ? 10.0 : 11.0);
    add("bruck", "bruck", 21.0);
  }
  const auto text = compare(samples, *machine, {});
  ASSERT_TRUE(text) << text.status().text();
  EXPECT_THAT(text->substr(text->rfind("| all |")),
              HasSubstr(" | 100 % (100, 0) | 1.00 | 100 % (0, 0) | 1.00 |\n"));
}

// Goal: over emulated hosts the library has no prices, and the table says so.
TEST(CompareTest, PricesAreNotTheLibrarysOverEmulatedHosts) {
  auto machine = Machine::load("", "2 cores");
  ASSERT_TRUE(machine) << machine.status().text();
  const auto text = compare({}, *machine, {.emulates_hosts = true});
  ASSERT_TRUE(text) << text.status().text();
  EXPECT_THAT(*text, HasSubstr("price, which the library has not over emulated hosts"));
}

}  // namespace
}  // namespace tutti::tool
