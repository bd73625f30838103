// The JSON file: nccl-tests' keys, never over an existing file, whole after every row.
#include "perf/json.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tutti::perf {
namespace {

class JsonTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tutti_json_test.XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static nlohmann::json load(const std::string& path) { return nlohmann::json::parse(std::ifstream(path)); }

  std::filesystem::path folder_;
};

Row sample_row() {
  Row row{.bytes = 64, .count = 16, .op = TestOp::kSum};
  row.out_of_place = {.time_us = 1.5, .algorithm_gbs = 2.0, .bus_gbs = 3.0, .wrong = 0.0, .iterations = 40};
  row.algorithm = "ring";
  return row;
}

// Goal: a reader of nccl-tests' version 3 finds its keys.
TEST_F(JsonTest, TheDocumentHasTheKeysOfVersion3) {
  Options options;
  options.checks = 0;
  Result<JsonReport> report = JsonReport::create(path("out.json"));
  ASSERT_TRUE(report.is_ok());
  report->begin(options, {"all_reduce_perf", "-b", "8"}, {"A=1"}, 100,
                {{.rank = 0, .process_id = 7, .host = "h"}});
  ASSERT_TRUE(report->add(options, "all_reduce_perf", sample_row()).is_ok());
  ASSERT_TRUE(report->finish({.out_of_bounds = 0, .mean_bus_gbs = 3.0}, {}).is_ok());
  const nlohmann::json json = load(path("out.json"));
  EXPECT_EQ(json["version"], 3);
  EXPECT_EQ(json["args"][1], "-b");
  EXPECT_EQ(json["nccl_version"], 100);
  EXPECT_EQ(json["config"]["devices"][0]["pid"], 7);
  EXPECT_EQ(json["config"]["per_iter_timing"], "false");
  const nlohmann::json& row = json["results"][0];
  EXPECT_EQ(row["size"], 64);
  EXPECT_EQ(row["type"], "float");
  EXPECT_EQ(row["redop"], "sum");
  EXPECT_EQ(row["out_of_place"]["time"], 1.5);
  EXPECT_EQ(row["out_of_place"]["nwrong"], 0.0);
  EXPECT_TRUE(row["in_place"].is_null());
  EXPECT_EQ(row["actual_iterations"], 40);
  EXPECT_EQ(row["experiment_name"], "all_reduce_perf");
  EXPECT_EQ(row["algorithm"], "ring");
  EXPECT_EQ(json["out_of_bounds"]["okay"], "true");
  EXPECT_EQ(json["average_bus_bandwidth"]["okay"], "unchecked");
  EXPECT_TRUE(json["errors"].empty());
  EXPECT_TRUE(json.contains("end_time"));
}

// Goal: -I's keys are nccl-tests' too: what the statistics leave out, and the times of each process.
TEST_F(JsonTest, IterationsAreTold) {
  Options options;
  options.per_iteration = true;
  options.skip_samples = 1;
  Row row = sample_row();
  row.out_of_place.iteration_us = {9, 2, 3};
  row.out_of_place.skipped_iterations = 1;
  row.out_of_place.statistics = iteration_statistics(std::vector<double>{2, 3});
  row.in_place = row.out_of_place;
  row.in_place->process_iteration_us = {{9, 1, 3}, {4, 2, 1}};
  Result<JsonReport> report = JsonReport::create(path("out.json"));
  ASSERT_TRUE(report.is_ok());
  report->begin(options, {}, {}, 100, {});
  ASSERT_TRUE(report->add(options, "x", row).is_ok());
  const nlohmann::json json = load(path("out.json"));
  EXPECT_EQ(json["config"]["per_iter_skip"], 1);
  const nlohmann::json& alone = json["results"][0]["out_of_place_per_iter"];
  EXPECT_EQ(alone["skipped_iterations"], 1);
  EXPECT_EQ(alone["max_us"], 3);
  EXPECT_FALSE(alone.contains("per_process_max_times_us"));
  EXPECT_EQ(json["results"][0]["in_place_per_iter"]["per_process_max_times_us"][1][1], 2);
}

TEST_F(JsonTest, AnExistingFileIsNeverWrittenOver) {
  std::ofstream(path("out.json")) << "mine";
  std::ofstream(path("out.json.0")) << "mine too";
  Result<JsonReport> report = JsonReport::create(path("out.json"));
  ASSERT_TRUE(report.is_ok());
  EXPECT_EQ(report->path(), path("out.json.1"));
  std::string text;
  std::ifstream(path("out.json")) >> text;
  EXPECT_EQ(text, "mine");
}

TEST_F(JsonTest, AFolderThatIsNotThereIsAnError) {
  Result<JsonReport> report = JsonReport::create(path("no/such/out.json"));
  ASSERT_FALSE(report.is_ok());
  EXPECT_EQ(report.status().code(), Code::kSystemError);
  EXPECT_NE(std::string(report.status().text()).find("no/such/out.json"), std::string::npos);
}

// Goal: a report that is passed on does not let its reader join the ranks of the next run.
TEST_F(JsonTest, TheKeyOfTheRanksIsNotShown) {
  Result<JsonReport> report = JsonReport::create(path("out.json"));
  ASSERT_TRUE(report.is_ok());
  report->begin({}, {}, {"TUTTI_KEY=0123456789abcdef", "TUTTI_KEY_FILE=/etc/key"}, 100, {});
  ASSERT_TRUE(report->finish({}, {}).is_ok());
  const nlohmann::json json = load(path("out.json"));
  EXPECT_EQ(json["env"][0], "TUTTI_KEY=(not shown)");
  EXPECT_EQ(json["env"][1], "TUTTI_KEY_FILE=/etc/key");
}

// Goal: a report holds no variable but those that are known to change a measurement.
TEST_F(JsonTest, OnlyKnownVariablesAreReported) {
  Result<JsonReport> report = JsonReport::create(path("out.json"));
  ASSERT_TRUE(report.is_ok());
  report->begin({}, {},
                {"AWS_SECRET_ACCESS_KEY=1", "HOME=/root", "TUTTI_SLOTS=8", "TUTTI_KEYY=secret", "RANK=0",
                 "NCCL_TESTS_DEVICE=1", "TUTTI_KEY"},
                100, {});
  ASSERT_TRUE(report->finish({}, {}).is_ok());
  EXPECT_EQ(load(path("out.json"))["env"],
            (nlohmann::json{"TUTTI_SLOTS=8", "RANK=0", "NCCL_TESTS_DEVICE=1", "TUTTI_KEY=(not shown)"}));
}

// Goal: a run that dies leaves its rows.
TEST_F(JsonTest, RowsAreOnDiskBeforeTheEnd) {
  Result<JsonReport> report = JsonReport::create(path("out.json"));
  ASSERT_TRUE(report.is_ok());
  report->begin({}, {}, {}, 100, {});
  ASSERT_TRUE(report->add({}, "x", sample_row()).is_ok());
  EXPECT_EQ(load(path("out.json"))["results"].size(), 1u);
}

TEST_F(JsonTest, BytesThatAreNoTextDoNotBreakTheFile) {
  Result<JsonReport> report = JsonReport::create(path("out.json"));
  ASSERT_TRUE(report.is_ok());
  report->begin({}, {"\xff\xfe"}, {"B=\x80"}, 100, {});
  ASSERT_TRUE(report->finish({}, {"rank 1: gone"}).is_ok());
  EXPECT_EQ(load(path("out.json"))["errors"][0], "rank 1: gone");
}

}  // namespace
}  // namespace tutti::perf
