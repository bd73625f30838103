// Tests of kept files: a machine is detected once, and tuned tables are found by the kind of machine.
#include "topology/kept.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "topology/describe.h"
#include "topology/text.h"

namespace tutti::topology {
namespace {

class SomeFiles final : public FileTree {
 public:
  std::optional<std::string> read(const std::string& path) const override {
    return path == "devices/system/cpu/online" ? std::optional(cpus) : std::nullopt;
  }
  std::vector<std::string> list(const std::string&) const override { return {}; }
  std::string resolve(const std::string&) const override { return ""; }

  std::string cpus = "0-3";
};

class KeptMachineTest : public testing::Test {
 protected:
  KeptMachineTest() { folder_ = mkdtemp(pattern_.data()); }
  ~KeptMachineTest() override { std::filesystem::remove_all(folder_); }

  MachineSource source() {
    return {.file = "",
            .folder = folder_ + "/tutti",
            .files = files_,
            .cpus = cgroup_,
            .detect = [this]() -> Result<Detected> {
              ++detections_;
              auto graph = parse_description(is_complete_ ? "4 cores" : "3 cores");
              return Detected{{std::move(*graph), {}}, is_complete_};
            }};
  }

  std::string pattern_ = (std::filesystem::temp_directory_path() / "tutti-kept-XXXXXX").string();
  std::string folder_;
  SomeFiles files_;
  std::string cgroup_ = "0-3";
  int detections_ = 0;
  bool is_complete_ = true;
};

TEST_F(KeptMachineTest, AMachineIsDetectedOnce) {
  const auto first = find_machine(source());
  ASSERT_TRUE(first) << first.status().text();
  const auto again = find_machine(source());
  ASSERT_TRUE(again) << again.status().text();
  EXPECT_EQ(detections_, 1);
  EXPECT_EQ(first->graph, again->graph);
  files_.cpus = "0-1";
  ASSERT_TRUE(find_machine(source()));
  EXPECT_EQ(detections_, 2) << "the machine has changed";
}

// Goal: a job that was given other CPUs of a machine does not read the first one's graph. Their homes, and so
// their folders, are one.
TEST_F(KeptMachineTest, JobsOfOneMachineHaveGraphsOfTheirOwn) {
  for (const char* cpus : {"0-15", "16-63", "0-15"}) {
    cgroup_ = cpus;
    ASSERT_TRUE(find_machine(source()));
  }
  EXPECT_EQ(detections_, 2);
}

TEST_F(KeptMachineTest, AKeptGraphThatCannotBeReadIsDetectedAgain) {
  ASSERT_TRUE(find_machine(source()));
  for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/tutti"))
    std::ofstream(entry.path()) << "nonsense";
  ASSERT_TRUE(find_machine(source()));
  EXPECT_EQ(detections_, 2);
}

// Goal: a process that could not ask all sources decides nothing for later ones. The first graph stayed for
// good, also when NVML or hwloc came back, and tools looked for measurements of another machine.
TEST_F(KeptMachineTest, AnIncompleteMachineIsDetectedAgain) {
  is_complete_ = false;
  for (const int detections : {1, 2}) {
    const auto partly = find_machine(source());
    ASSERT_TRUE(partly) << partly.status().text();
    EXPECT_EQ(partly->graph.of_kind(NodeKind::kCore).size(), 3u);
    EXPECT_EQ(detections_, detections);
  }
  is_complete_ = true;
  for (int call = 0; call < 2; ++call) {
    const auto whole = find_machine(source());
    ASSERT_TRUE(whole) << whole.status().text();
    EXPECT_EQ(whole->graph.of_kind(NodeKind::kCore).size(), 4u);
    EXPECT_EQ(detections_, 3) << "it is kept now";
  }
}

// Goal: a file that lost its last lines, of which the rest is a graph, is not taken for a smaller machine.
TEST_F(KeptMachineTest, AKeptGraphThatWasCutIsDetectedAgain) {
  const auto whole = find_machine(source());
  ASSERT_TRUE(whole);
  const std::string path =
      std::filesystem::directory_iterator(folder_ + "/tutti")->path().string();  // there is only one
  const std::string text = *read_text(path);
  int cuts = 0;
  for (size_t end = text.rfind('\n'); end != std::string::npos && end > 0; end = text.rfind('\n', end - 1)) {
    if (end + 1 == text.size()) continue;
    std::ofstream(path) << text.substr(0, end + 1);
    const auto again = find_machine(source());
    ASSERT_TRUE(again);
    EXPECT_EQ(again->graph, whole->graph);
    EXPECT_EQ(detections_, 1 + ++cuts);
  }
  EXPECT_GT(cuts, 8);
  EXPECT_EQ(*read_text(path), text);
}

// Goal: a reader never sees half a file. Method: two writers of one process, so their ids are equal, as those
// of processes in two containers may be.
TEST_F(KeptMachineTest, WritersWithOneIdDoNotMixTheirTexts) {
  const std::string path = folder_ + "/shared";
  const std::string texts[] = {std::string(1 << 20, 'a'), std::string(1 << 19, 'b')};
  ASSERT_TRUE(keep_text(path, texts[0]));
  std::atomic<int> writers{2};
  std::vector<std::jthread> threads;
  for (const std::string& text : texts) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) EXPECT_TRUE(keep_text(path, text));
      --writers;
    });
  }
  while (writers > 0) {
    const auto text = read_text(path);
    ASSERT_TRUE(text) << text.status().text();
    ASSERT_TRUE(*text == texts[0] || *text == texts[1]) << text->size() << " bytes";
  }
  threads.clear();
  std::filesystem::create_directory(folder_ + "/taken");
  EXPECT_EQ(keep_text(folder_ + "/taken", "text").code(), Code::kSystemError);
  const std::filesystem::directory_iterator files(folder_);
  EXPECT_EQ(std::distance(begin(files), end(files)), 2) << "a writer has left a file";
}

TEST_F(KeptMachineTest, WithoutAFolderEveryCallDetects) {
  MachineSource nowhere = source();
  nowhere.folder.clear();
  ASSERT_TRUE(find_machine(nowhere));
  ASSERT_TRUE(find_machine(nowhere));
  EXPECT_EQ(detections_, 2);
}

TEST_F(KeptMachineTest, MeasurementsReplaceAssumptions) {
  const auto plain = find_machine(source());
  ASSERT_TRUE(plain);
  Measurements measurements;
  measurements.machine = fingerprint(plain->graph);
  measurements.copy_alone = {12'345'678'912, Origin::kMeasured, 3};
  ASSERT_TRUE(keep(kept_path(folder_ + "/tutti", measurements.machine, "measured"), {measurements}));
  const auto measured = find_machine(source());
  ASSERT_TRUE(measured);
  EXPECT_NE(measured->graph, plain->graph);
  EXPECT_EQ(measured->source, "detected, with measurements");
  EXPECT_EQ(measured->graph.slices(), SliceCosts()) << "a file from before there were curves";
  measurements.slices.turn_ns = measurements.slices.call_ns = {1000, Origin::kMeasured};
  for (auto& curve : measurements.slices.curves) curve = {{8, {10, Origin::kMeasured}}};
  ASSERT_TRUE(keep(kept_path(folder_ + "/tutti", measurements.machine, "measured"), {measurements}));
  EXPECT_EQ(find_machine(source())->graph.slices(), measurements.slices);
}

// Goal: a call that was tried at other sizes before keeps these times, and has the mean of those of one size,
// to which each start contributes alike, until there are many.
TEST_F(KeptMachineTest, TriedCallsAreMergedBySize) {
  const std::string path = kept_path(folder_, 5, "measured");
  const TriedCall call{.collective = Collective::kAllGather, .ranks = 4, .algorithm = "ring"};
  Measurements measurements;
  measurements.machine = 5;
  measurements.calls[call] = {{8, {{100, Origin::kMeasured}}}, {64, {{200, Origin::kMeasured}}}};
  ASSERT_TRUE(keep(path, {measurements}));
  measurements.calls[call] = {{64, {{450, Origin::kMeasured}}}, {512, {{400, Origin::kMeasured}}}};
  ASSERT_TRUE(keep(path, {measurements}));
  const auto kept = read_kept(path, 5);
  ASSERT_TRUE(kept);
  std::map<uint64_t, uint64_t> ns;
  for (const auto& [bytes, time] : kept->front().calls.at(call)) ns[bytes] = time.ns.value;
  EXPECT_EQ(ns, (std::map<uint64_t, uint64_t>{{8, 100}, {64, 300}, {512, 400}}));
  EXPECT_EQ(kept->front().calls.at(call).at(64).starts, 2u);
  measurements.calls[call] = {{64, {{2400, Origin::kMeasured}}}};
  ASSERT_TRUE(keep(path, {measurements}));
  EXPECT_EQ(read_kept(path, 5)->front().calls.at(call).at(64), (CallTime{{600, Origin::kMeasured}, 3}));
  measurements.calls[call] = {{64, {{900, Origin::kMeasured}}}};
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(keep(path, {measurements}));
  const CallTime last = read_kept(path, 5)->front().calls.at(call).at(64);
  EXPECT_NEAR(static_cast<double>(last.ns.value), 900, 3) << "the first starts are forgotten";
  EXPECT_EQ(last.starts, 5u);
}

TEST_F(KeptMachineTest, AUsersFileComesFirst) {
  MachineSource named = source();
  named.file = folder_ + "/my.topo";
  std::ofstream(named.file) << "2 packages, 4 cores";
  const auto machine = find_machine(named);
  ASSERT_TRUE(machine) << machine.status().text();
  EXPECT_EQ(machine->graph.of_kind(NodeKind::kPackage).size(), 2u);
  EXPECT_EQ(machine->source, named.file);
  EXPECT_EQ(detections_, 0);
  named.file += "x";
  EXPECT_EQ(find_machine(named).status().code(), Code::kSystemError);
}

TEST_F(KeptMachineTest, ATunedTableIsFoundByTheKindOfMachine) {
  EXPECT_EQ(*find_tuned(source()), "");
  EXPECT_EQ(detections_, 0) << "no table, so nothing to look for";
  const uint64_t kind = fingerprint(*parse_description("4 cores"));
  ASSERT_TRUE(keep_text(kept_path(folder_ + "/tutti", kind + 1, "choice"), "of another machine"));
  EXPECT_EQ(*find_tuned(source()), "");
  ASSERT_TRUE(keep_text(kept_path(folder_ + "/tutti", kind, "choice"), tuned_title() + "rows"));
  EXPECT_EQ(*find_tuned(source()), tuned_title() + "rows");
  EXPECT_EQ(detections_, 1);
}

// Goal: a new version, whose algorithms may be faster, does not follow what an old one has measured.
TEST_F(KeptMachineTest, ATunedTableServesItsVersionOnly) {
  const std::string path =
      kept_path(folder_ + "/tutti", fingerprint(*parse_description("4 cores")), "choice");
  ASSERT_TRUE(keep_text(path, "# Measured by tutti-tune (tutti 0.0.9).\nrows"));
  const auto old = find_tuned(source());
  EXPECT_EQ(old.status().code(), Code::kMismatch);
  EXPECT_EQ(old.status().text(), "measured by tutti 0.0.9; call tutti-tune again");
  ASSERT_TRUE(keep_text(path, "# Measured by tutti-tune.\n# (tutti 0.1.0)"));
  EXPECT_EQ(find_tuned(source()).status().text(), "measured by another version; call tutti-tune again");
}

}  // namespace
}  // namespace tutti::topology
