// The table: nccl-tests' columns in nccl-tests' places, the algorithm last.
#include "perf/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace tutti::perf {
namespace {

std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

Row sample_row() {
  Row row{.bytes = 1048576, .count = 262144, .type = TUTTI_FLOAT32, .op = TestOp::kSum, .root = -1};
  row.out_of_place = {.time_us = 61.25, .algorithm_gbs = 17.12, .bus_gbs = 17.12, .wrong = 0.0};
  row.in_place = Measurement{.time_us = 12345.6, .algorithm_gbs = 1234.5, .bus_gbs = 0.001, .wrong = 3.0};
  row.algorithm = "direct_two_shot";
  return row;
}

// Goal: a program that reads nccl-tests' rows by columns of characters or by words reads ours.
TEST(TableTest, ARowHasTheLayoutOfNcclTests) {
  EXPECT_EQ(
      table_row(Options{}, sample_row()),
      "     1048576        262144     float     sum      -1    61.25   17.12   17.12       0  12345.6  1234.5"
      "    0.00       3  direct_two_shot\n");
}

TEST(TableTest, HeaderAndRowHaveTheSameColumns) {
  const std::string header = table_header(Options{});
  std::istringstream lines(header);
  std::string skipped, title, names, units;
  std::getline(lines, skipped);
  std::getline(lines, title);
  std::getline(lines, names);
  std::getline(lines, units);
  EXPECT_EQ(title, "#" + std::string(62, ' ') + "out-of-place" + std::string(23, ' ') + "in-place" +
                       std::string(10, ' '));
  EXPECT_EQ(
      names,
      "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw"
      "   busbw  #wrong   algorithm");
  EXPECT_EQ(units, "#        (B)    (elements)" + std::string(31, ' ') + "(us)  (GB/s)  (GB/s)" +
                       std::string(13, ' ') + "(us)  (GB/s)  (GB/s)" + std::string(11, ' '));
  // The names minus "#" are as many as the words of a row.
  EXPECT_EQ(words(names).size() - 1, words(table_row(Options{}, sample_row())).size());
}

TEST(TableTest, OptionalColumnsComeAndGo) {
  Options options;
  options.timestamps = true;
  options.per_iteration = true;
  Row row = sample_row();
  row.timestamp = "2025-01-31 13:45:00";
  row.out_of_place.statistics = iteration_statistics(std::vector<double>{1, 2, 3});
  row.in_place->statistics = row.out_of_place.statistics;
  // 5 + 2 x (4 + 4) + date and time + algorithm.
  EXPECT_EQ(words(table_row(options, row)).size(), 24u);
  EXPECT_EQ(words(table_row(options, row)).back(), "direct_two_shot");
  options.algorithm_column = false;
  EXPECT_EQ(words(table_row(options, row)).back(), "13:45:00");
}

TEST(TableTest, UncheckedRowsSayNotAvailable) {
  Row row = sample_row();
  row.out_of_place.wrong.reset();
  row.in_place.reset();
  row.algorithm.clear();
  const std::vector<std::string> list = words(table_row(Options{}, row));
  ASSERT_EQ(list.size(), 14u);
  EXPECT_EQ(list[8], "N/A");
  EXPECT_EQ(list[9], "N/A");
  EXPECT_EQ(list[12], "N/A");
  EXPECT_EQ(list[13], "-");
}

TEST(TableTest, NumbersLoseDecimalsBeforeTheyLeaveTheirColumn) {
  EXPECT_EQ(table_number(0.0, 7), "   0.00");
  EXPECT_EQ(table_number(9999.99, 7), "9999.99");
  EXPECT_EQ(table_number(99999.9, 7), "99999.9");
  EXPECT_EQ(table_number(1234567.0, 7), "1234567");
  EXPECT_EQ(table_number(123456789.0, 7), "1.2e+08");
  EXPECT_EQ(table_number(9999.999, 7), "10000.0");
  EXPECT_EQ(table_number(1234.56, 6), "1234.6");
  EXPECT_EQ(table_number(1e300 * 1e10, 6), "   inf");
}

TEST(TableTest, TheFooterGivesTheVerdicts) {
  Summary summary{.out_of_bounds = 0, .mean_bus_gbs = 4.5};
  EXPECT_EQ(table_footer("all_reduce_perf", summary),
            "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 4.5 \n#\n"
            "# Collective test concluded: all_reduce_perf\n#\n");
  summary.out_of_bounds = 2;
  summary.min_bus_gbs = 5.1;
  EXPECT_THAT(table_footer("x", summary), testing::HasSubstr("Out of bounds values : 2 FAILED\n"));
  EXPECT_THAT(table_footer("x", summary), testing::HasSubstr("Avg bus bandwidth    : 4.5 FAILED\n"));
  summary.min_bus_gbs = 4.9;
  EXPECT_THAT(table_footer("x", summary), testing::HasSubstr("Avg bus bandwidth    : 4.5 OK\n"));
}

TEST(TableTest, TheMemoryReportAddsUp) {
  Summary summary;
  summary.memory = MemoryReport{.start = 1 << 20, .communicator = 1 << 20, .buffers = 2 << 20, .running = 0};
  EXPECT_THAT(table_footer("x", summary), testing::HasSubstr("Total  4.00 MB"));
  EXPECT_EQ(memory_text(512), "512 B");
  EXPECT_EQ(memory_text(15.5 * 1024), "15.5 KB");
}

TEST(TableTest, ThePreambleListsRanksAndNotes) {
  Options options;
  options.notes = {"-y is ignored"};
  options.blocking = 1;
  const std::string text = table_preamble(options, "reduce_perf", 100,
                                          {{.rank = 1, .process_id = 42, .host = "here", .device = "CPU X"}});
  EXPECT_THAT(text, testing::HasSubstr("# Collective test starting: reduce_perf\n"));
  EXPECT_THAT(text, testing::HasSubstr("# -y is ignored\n"));
  EXPECT_THAT(
      text, testing::HasSubstr("# Blocking Enabled: wait for completion and barrier after each collective"));
  EXPECT_THAT(text,
              testing::HasSubstr("#  Rank  1 Group  0 Pid     42 on       here device  0 [host] CPU X\n"));
  EXPECT_THAT(text,
              testing::HasSubstr("step: 1048576(bytes) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 "
                                 "graph: 0 unalign: 0\n"));
}

}  // namespace
}  // namespace tutti::perf
