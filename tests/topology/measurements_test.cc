// Measurements: their text, the file that keeps them, the graph that they improve, and the probes.
#include "topology/measurements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "core/cpu.h"
#include "topology/describe.h"
#include "topology/detect.h"
#include "topology/kept.h"
#include "topology/paths.h"
#include "topology/probes.h"
#include "topology/text.h"

namespace tutti::topology {
namespace {

using testing::HasSubstr;

constexpr std::string_view kText = R"(tutti measurements 1
machine 00000000000000ff
pair 0 1 60 ns spread 12
pair 0 4 260 ns
copy_alone 21.4 GB/s spread 3
copy_together 40 GB/s
staged_copy 18 GB/s
wake 12 us spread 80
socket 16.5 us
socket_speed 3.6 GB/s
turn 700 ns spread 5
call 12 ns
slice copy 8 4 ns spread 21
slice copy 1024 12 ns
slice reduce_memory 16384 1.7 us
)";

Graph described(std::string_view text) {
  auto graph = parse_description(text);
  EXPECT_TRUE(graph) << graph.status().text();
  return graph ? std::move(*graph) : Graph();
}

Measurements measurements() {
  auto result = parse_measurements(kText);
  EXPECT_TRUE(result) << result.status().text();
  return result ? std::move(result->front()) : Measurements();
}

TEST(MeasurementsTest, TextIsReadAndPrintedAlike) {
  EXPECT_EQ(print_measurements({measurements()}), kText);
}

TEST(MeasurementsTest, MistakesNameTheLine) {
  const auto refusal = [](const std::string& line) {
    const auto result = parse_measurements("tutti measurements 1\n" + line + "\n");
    return result ? std::string("accepted") : std::string(result.status().text());
  };
  EXPECT_THAT(refusal("pair 0 x 1 ns"), HasSubstr("line 2: expected two numbers of cores"));
  EXPECT_THAT(refusal("pair 0 1 -1 ns"), HasSubstr("line 2: expected a time"));
  EXPECT_THAT(refusal("copy_alone 0 GB/s"), HasSubstr("line 2: expected a speed"));
  EXPECT_THAT(refusal("machine xyz"), HasSubstr("hexadecimal"));
  EXPECT_THAT(refusal("speed 1 GB/s"), HasSubstr("line 2: expected machine, pair"));
  EXPECT_THAT(refusal("wake 1 us spread 0"), HasSubstr("percentage"));
  EXPECT_THAT(refusal("slice juggle 8 1 ns"), HasSubstr("line 2: expected copy, read, send"));
  EXPECT_THAT(refusal("trial ring 2"), HasSubstr("line 2: expected a collective"));
  EXPECT_THAT(refusal("trial broadcast 2 3 direct 8 1 us"), HasSubstr("then one of hosts"));
  EXPECT_THAT(refusal("trial broadcast 2 1 direct 8 1 us\ntrial broadcast 2 1 direct 8 1 us"),
              HasSubstr("line 3: expected another call or size"));
  for (const char* starts : {"0", "6", "x"}) {
    EXPECT_THAT(refusal(std::string("trial broadcast 2 1 direct 8 1 us starts ") + starts),
                HasSubstr("line 2: expected 1 to 5 starts"));
  }
  EXPECT_THAT(refusal("slice send 0 1 ns"), HasSubstr("line 2: expected a larger number of bytes"));
  EXPECT_THAT(refusal("slice send 8 1 ns\nslice send 8 1 ns"), HasSubstr("line 3: expected a larger number"));
  EXPECT_THAT(refusal("wake 1 us more"), HasSubstr("the end of the line"));
  EXPECT_THAT(std::string(parse_measurements("").status().text()), HasSubstr("line 1"));
  EXPECT_THAT(refusal("tutti measurements 2"), HasSubstr("line 2: expected 'tutti measurements 1'"));
  std::string titles;
  for (size_t i = 0; i < kDistancesMax; ++i) titles += "tutti measurements 1\n";
  EXPECT_THAT(refusal(titles), HasSubstr("line 5: more than 4 titles"));
}

// Goal: a path through the graph costs what the probe found between the same cores.
TEST(MeasurementsTest, PathsCostWhatWasMeasured) {
  const Graph graph = with_measurements(described("2 packages, 8 cores"), measurements());
  const auto latency = [&](const char* a, const char* b) {
    return WidestPaths(graph, graph.find(a)).to(graph.find(b))->latency_ns;
  };
  EXPECT_EQ(latency("core0", "core1"), 60u);
  const Edge& core = graph.edge(graph.links_of(graph.find("core5"))[0].edge);
  EXPECT_EQ(core.latency_ns, (Fact{30, Origin::kMeasured, 12}));
  EXPECT_EQ(core.bytes_per_s, (Fact{21'400'000'000, Origin::kMeasured, 3}));
  // Nothing was measured between caches of one package, so the way between packages takes what is left.
  for (const Edge& edge : graph.edges()) {
    if (edge.kind == LinkKind::kPackages) {
      EXPECT_EQ(edge.latency_ns, (Fact{200, Origin::kMeasured}));
    }
  }
}

// Goal: a cache does not become slower because the cores of other caches were not measured.
TEST(MeasurementsTest, CachesWithoutMeasuredCoresCountAsTheOthers) {
  std::string text = "tutti topology 1\nhost h\nnuma n in h\n";
  for (int cache = 0; cache < 8; ++cache) {
    const auto name = std::to_string(cache);
    text += "l3 l" + name + " in n\ncore c" + name + " in l" + name + " index " + name + "\nlink n l" + name +
            " inside 1 GB/s file 1 ns file\n";
  }
  const auto graph = parse_graph(text);
  ASSERT_TRUE(graph) << graph.status().text();
  Measurements found;
  const std::vector<uint32_t> first = {graph->find("c0")};
  found.copy_together.value = static_cast<uint64_t>(for_all_caches(*graph, first, 40e9));
  const Graph measured = with_measurements(*graph, found);
  const Link& way = measured.links_of(measured.find("l7"))[0];
  EXPECT_EQ(measured.edge(way.edge).bytes_per_s.value, 40'000'000'000u);
  EXPECT_EQ(for_all_caches(*graph, graph->of_kind(NodeKind::kCore), 40e9), 40e9);
  EXPECT_EQ(for_all_caches(described("2 gpus"), {}, 40e9), 40e9) << "no caches";
}

// Goal: a process that a launcher has bound to the threads of one core does not speak for the machine,
// however many threads these are. One that may use all cores of its graph does, as in a container.
TEST(ProbesTest, BoundProcessesDoNotSpeakForTheMachine) {
  const CpuSet cpus = usable_cpus();
  size_t own = 0;
  while (!cpus[own]) ++own;
  std::string text = "tutti topology 1\nhost h\nnuma n in h\n";
  text += "core c0 in n index " + std::to_string(own) + " count 2\n";
  EXPECT_TRUE(check_cores(*parse_graph(text)));
  EXPECT_TRUE(check_cores(*parse_graph(text + "core c1 in n\n"))) << "assumed, so without a number";
  for (const char* core : {"c1", "c2", "c3"})
    text += "core " + std::string(core) + " in n index 1023 count 2\n";
  if (cpus[1023]) GTEST_SKIP() << "this machine has 1024 CPUs";
  const Status status = check_cores(*parse_graph(text));
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(std::string(status.text()), HasSubstr("only 1 of the machine's 4 cores"));
}

TEST(MeasurementsTest, TheMiddleAndTheSpread) {
  EXPECT_EQ(middle_of({}).value, 0u);
  EXPECT_EQ(middle_of({5}), (Fact{5, Origin::kMeasured, 0}));
  EXPECT_EQ(middle_of({50, 10, 60, 55, 57}), (Fact{55, Origin::kMeasured, 81}));
  EXPECT_EQ(middle_of({50, 40, 100, 10}).value, 45u);
}

// Goal: one long sample does not decide, and often long ones count.
TEST(MeasurementsTest, NoSampleCountsForMoreThanTwiceTheMiddleOne) {
  EXPECT_EQ(mean_of({}).value, 0u);
  EXPECT_EQ(mean_of({10, 12, 14}).value, 12u);
  EXPECT_EQ(mean_of({10, 1000, 10, 16, 10}).value, 13u);
}

// A machine's name and addresses change, its kind does not.
TEST(MeasurementsTest, TheFingerprintIsOfTheKindOfMachine) {
  const Graph graph = described("2 packages, 8 cores");
  GraphBuilder builder(graph);
  builder.node(0).bus_id = "0000:00:00.0";
  builder.edges()[0].bytes_per_s.value = 1;
  EXPECT_EQ(fingerprint(std::move(builder).finish()), fingerprint(graph));
  EXPECT_NE(fingerprint(described("2 packages, 6 cores")), fingerprint(graph));
}

TEST(KeptTest, WhatIsKeptIsReadForTheSameKindOnly) {
  std::string folder = (std::filesystem::temp_directory_path() / "tutti-kept-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto environment = [&](const char* name) {
    return std::string_view(name) == "XDG_CACHE_HOME" ? folder.c_str() : nullptr;
  };
  const std::string path = kept_path(kept_folder(environment), 255, "measured");
  EXPECT_EQ(path, folder + "/tutti/00000000000000ff.measured");
  EXPECT_EQ(read_kept(path, 255).status().code(), Code::kSystemError);
  ASSERT_TRUE(keep(path, {measurements()}));
  ASSERT_TRUE(keep(path, {measurements()}));
  const auto kept = read_kept(path, 255);
  ASSERT_TRUE(kept) << kept.status().text();
  EXPECT_EQ(*kept, std::vector{measurements()});
  EXPECT_EQ(read_kept(path, 254).status().code(), Code::kMismatch);
  std::ofstream(path) << "nonsense";
  EXPECT_THAT(std::string(read_kept(path, 255).status().text()), HasSubstr(".measured: line 1"));
  EXPECT_EQ(keep(path, {measurements()}).code(), Code::kInvalidArgument);
  EXPECT_EQ(*read_text(path), "nonsense") << "what is not understood is not overwritten";
  EXPECT_EQ(kept_path(kept_folder([](const char*) { return nullptr; }), 1, "measured"), "");
  std::filesystem::remove_all(folder);
}

Measurements measured_at(uint64_t line_ns, const std::string& algorithm, uint64_t call_ns) {
  Measurements result;
  result.machine = 255;
  result.slices.apart_ns = {line_ns, Origin::kMeasured};
  if (!algorithm.empty())
    result.calls[{Collective::kAllReduce, 2, 1, algorithm}][8].ns = {call_ns, Origin::kMeasured};
  return result;
}

// Goal: what was measured while the cores were at another distance is kept beside the latest, and found
// again. Method: near, far, near again, without one of the calls; then more distances than a file has.
TEST(KeptTest, EachDistanceOfTheCoresHasItsOwnMeasurements) {
  std::string folder = (std::filesystem::temp_directory_path() / "tutti-kept-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/file";
  Measurements first = measured_at(55, "ring", 7);
  first.calls[{Collective::kAllReduce, 2, 1, "direct"}][8].ns = {9, Origin::kMeasured};
  ASSERT_TRUE(keep(path, {first}));
  ASSERT_TRUE(keep(path, {measured_at(240, "ring", 30)}));
  ASSERT_TRUE(keep(path, {measured_at(60, "ring", 28)}));
  const auto kept = read_kept(path, 255);
  ASSERT_TRUE(kept) << kept.status().text();
  Measurements latest = measured_at(60, "", 0);
  latest.calls[{Collective::kAllReduce, 2, 1, "ring"}][8] = {{14, Origin::kMeasured}, 2};  // the mean
  latest.calls[{Collective::kAllReduce, 2, 1, "direct"}][8].ns = {9, Origin::kMeasured};
  EXPECT_EQ(*kept, (std::vector{latest, measured_at(240, "ring", 30)}));
  EXPECT_EQ(nearest(*kept, 90), latest);
  EXPECT_EQ(nearest(*kept, 170), kept->at(1));
  EXPECT_EQ(nearest(*kept, 0), latest) << "unknown";
  ASSERT_TRUE(keep(path, {measured_at(0, "", 0)}));
  EXPECT_EQ(read_kept(path, 255)->size(), 3u) << "a probe on one core replaces nothing";
  EXPECT_EQ(nearest(*read_kept(path, 255), 60), latest);
  for (const uint64_t line_ns : {1000, 3000}) ASSERT_TRUE(keep(path, {measured_at(line_ns, "", 0)}));
  ASSERT_EQ(read_kept(path, 255)->size(), kDistancesMax);
  EXPECT_EQ(read_kept(path, 255)->back(), latest) << "the oldest one went";
  std::filesystem::remove_all(folder);
}

// Goal: a file that was kept can be read again, however many distances there are. Method: five at once; then
// measurements without slices, which must not replace slices.
TEST(KeptTest, NoMoreDistancesAreKeptThanCanBeRead) {
  std::string folder = (std::filesystem::temp_directory_path() / "tutti-kept-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/file";
  std::vector<Measurements> all;
  for (const uint64_t line_ns : {24, 42, 75, 140, 270}) all.push_back(measured_at(line_ns, "ring", 7));
  ASSERT_TRUE(keep(path, all));
  const auto kept = read_kept(path, 255);
  ASSERT_TRUE(kept) << kept.status().text();
  EXPECT_EQ(*kept, std::vector(all.begin(), all.begin() + kDistancesMax));
  std::filesystem::remove_all(folder);
}

TEST(MeasurementsTest, LinesAreSortedIntoDistances) {
  const std::vector<uint64_t> distances = distances_of({0, 22, 33, 54, 80, 215, 280});
  EXPECT_EQ(distances, (std::vector<uint64_t>{0, 22, 54, 215}));
  EXPECT_EQ(distance_at(distances, 0), 0u);
  EXPECT_EQ(distance_at(distances, 33), 22u);
  EXPECT_EQ(distance_at(distances, 54), 54u);
  EXPECT_EQ(distance_at(distances, 280), 215u);
}

// Goal: the probes keep to their budget on any machine, and what they find is possible.
TEST(ProbesTest, ThisMachineIsMeasuredWithinTheBudget) {
  const auto machine = detect_this_machine();
  ASSERT_TRUE(machine);
  const auto start = std::chrono::steady_clock::now();
  const auto found = measure(machine->graph, {.budget_ms = 400});
  ASSERT_TRUE(found) << found.status().text();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_EQ(found->machine, fingerprint(machine->graph));
  for (const PairLatency& pair : found->pairs) {
    EXPECT_NE(pair.core_a, pair.core_b);
    EXPECT_LT(pair.latency_ns.value, 1'000'000u);
  }
  EXPECT_GT(found->copy_alone.value, 10'000'000u);
  EXPECT_GT(found->copy_together.value, 10'000'000u);
  EXPECT_GT(found->wake_ns.value, 100u);
  EXPECT_GT(found->socket_ns.value, 100u);
  EXPECT_GT(found->socket_speed.value, 10'000'000u);
  const auto again = parse_measurements(print_measurements({*found}));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->front(), *found);
}

}  // namespace
}  // namespace tutti::topology
