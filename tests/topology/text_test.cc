// The text form of graphs, and numbers with units.
#include "topology/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/units.h"

namespace tutti::topology {
namespace {

using testing::HasSubstr;

constexpr std::string_view kEveryField = R"(tutti topology 1
fabric leaf
host server
package p0 in server
numa n0 in p0 index 0 memory 64.5 GB
l3 c0 in n0
core k0 in c0 index 3 count 2
bridge b0 in n0
switch s0 in b0 bus 0000:08:00.0
gpu g0 in s0 bus 0000:0f:00.0 index 0 memory 80 GB model "NVIDIA H100 80GB SXM5"
nic mlx5_0 in s0 bus 0000:0c:00.0 count 2 speed 50 GB/s file spread 3
device d0 in b0
nvswitch nv in server count 4
link g0 nv nvlink count 18 450 GB/s nvml 500 ns assumed
link s0 g0 pci 63.015384 GB/s sysfs 250 ns measured spread 40
link mlx5_0 leaf network 50 GB/s hwloc 1.5 us file
)";

TEST(TextTest, EveryFieldIsReadAndPrintedAlike) {
  const auto graph = parse_graph(kEveryField);
  ASSERT_TRUE(graph) << graph.status().text();
  EXPECT_EQ(print_graph(*graph), kEveryField);
  const auto again = parse_graph(print_graph(*graph));
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, *graph);
  EXPECT_EQ(graph->edge(1).latency_ns.spread_percent, 40u);
  EXPECT_EQ(graph->edge(1).bytes_per_s.value, 63'015'384'000u);
}

// Goal: costs of slices are a part of a graph, so that files and ranks of a job carry them.
TEST(TextTest, CostsOfSlicesTravelWithTheGraph) {
  constexpr std::string_view kText = R"(tutti topology 1
host h
core k in h
turn 1.4 us
apart 57 ns spread 9
slice send 8 20 ns
slice send 1024 85 ns spread 3
trial all_reduce 4 1 ring 32768 35.2 us spread 12
trial all_reduce 4 1 ring 65536 70 us starts 3
trial broadcast 2 2 direct 8 6 us
)";
  const auto graph = parse_graph(kText);
  ASSERT_TRUE(graph) << graph.status().text();
  EXPECT_EQ(print_graph(*graph), kText);
  EXPECT_DOUBLE_EQ(graph->slices().us(SliceWork::kSend, 1024), 0.085);
  const auto plain = parse_graph("tutti topology 1\nhost h\ncore k in h\n");
  ASSERT_TRUE(plain);
  EXPECT_NE(*plain, *graph);
  EXPECT_NE(plain->digest(), graph->digest());
}

TEST(TextTest, CommentsAndBlankLinesAreSkipped) {
  EXPECT_TRUE(parse_graph("\n # a machine\n tutti topology 1 # this form\n\n\thost  h\r\n"));
}

// Goal: a rank's graph is read by the other ranks whatever its machine calls itself. A model with '#' ended
// as a comment does, so the quotes had no end.
TEST(TextTest, ASharpInAModelIsNoComment) {
  Node host;
  host.name = "h";
  host.model = "a#b";
  Node package = host;
  package.kind = NodeKind::kPackage;
  package.name = "p";
  package.parent = 0;
  package.model = "#1 # 2";
  GraphBuilder builder;
  ASSERT_TRUE(builder.add(host));
  ASSERT_TRUE(builder.add(package));
  const Graph graph = std::move(builder).finish();
  const auto again = parse_graph(print_graph(graph));
  ASSERT_TRUE(again) << again.status().text();
  EXPECT_EQ(*again, graph);
  const auto commented = parse_graph("tutti topology 1\nhost h model \"a#b\" # \"a\" machine\n");
  ASSERT_TRUE(commented) << commented.status().text();
  EXPECT_EQ(commented->node(0).model, "a#b");
}

// Goal: each mistake is refused with its line and the expected text.
TEST(TextTest, MistakesNameTheLine) {
  const auto refusal = [](const std::string& line) {
    const auto graph = parse_graph("tutti topology 1\nhost h\npackage p in h\n" + line + "\n");
    return graph ? std::string("accepted") : std::string(graph.status().text());
  };
  EXPECT_EQ(refusal("server x"),
            "line 4: expected a kind of node, 'link', turn, call, apart, slice or trial, found 'server x'");
  EXPECT_EQ(refusal("slice send 8"), "line 4: expected a time, as '57 ns', found the end of the line");
  EXPECT_EQ(refusal("turn 1 us often"), "line 4: expected the end of the line, found 'often'");
  EXPECT_EQ(refusal("gpu"), "line 4: expected a name, found the end of the line");
  EXPECT_EQ(refusal("gpu g in q"), "line 4: expected the name of a node above, found 'q'");
  EXPECT_EQ(refusal("gpu p in h"), "line 4: gpu 'p': the name is taken");
  EXPECT_THAT(refusal("gpu g on p"), HasSubstr("line 4: expected in, bus,"));
  EXPECT_THAT(refusal("gpu g index -1"), HasSubstr("line 4: expected a number"));
  EXPECT_THAT(refusal("gpu g count 0"), HasSubstr("line 4: expected a count"));
  EXPECT_THAT(refusal("gpu g memory 5"), HasSubstr("line 4: expected a size"));
  EXPECT_THAT(refusal("gpu g speed -5 GB/s file"),
              HasSubstr("line 4: expected a positive number with a unit"));
  EXPECT_THAT(refusal("gpu g model \"x"), HasSubstr("double quotes"));
  EXPECT_THAT(refusal("gpu g in g"), HasSubstr("node above"));
  EXPECT_THAT(refusal("link h p inside -1 GB/s file 1 ns file"), HasSubstr("positive number"));
  EXPECT_THAT(refusal("link h p inside 0 GB/s file 1 ns file"),
              HasSubstr("line 4: link h p: the speed is 0"));
  EXPECT_THAT(refusal("link h p wire 1 GB/s file 1 ns file"), HasSubstr("expected inside, packages"));
  EXPECT_THAT(refusal("link h p inside 1 GB/s guess 1 ns file"), HasSubstr("expected assumed, file"));
  EXPECT_THAT(refusal("link h p inside 1 GB/s file 1 ns file more"), HasSubstr("the end of the line"));
  EXPECT_THAT(refusal("link h p inside 99999999999999999999 GB/s file 1 ns file"),
              HasSubstr("positive number"));
  EXPECT_THAT(std::string(parse_graph("").status().text()), HasSubstr("found the end of the text"));
  EXPECT_THAT(std::string(parse_graph("tutti topology 2\nhost h").status().text()), HasSubstr("line 1"));
}

TEST(UnitsTest, NumbersAreExactInBothDirections) {
  for (const uint64_t value : {uint64_t{1}, uint64_t{999}, uint64_t{1000}, uint64_t{1001},
                               uint64_t{12'500'000}, uint64_t{450'000'000'000}, uint64_t{63'015'384'615},
                               uint64_t{1'000'000'000'001}, uint64_t{9'000'000'000'000'000'001}}) {
    const std::string speed = print_speed(value);
    EXPECT_EQ(Scanner(speed).speed(), value) << speed;
    const std::string time = print_time(value);
    EXPECT_EQ(Scanner(time).time(), value) << time;
    const std::string bytes = print_bytes(value);
    EXPECT_EQ(Scanner(bytes).bytes(), value) << bytes;
  }
  EXPECT_EQ(print_speed(450'000'000'000), "450 GB/s");
  EXPECT_EQ(print_time(1500), "1.5 us");
  EXPECT_EQ(round_speed(63'015'384'615), "63 GB/s");
  EXPECT_EQ(round_speed(3'938'461'538), "3.94 GB/s");
  EXPECT_EQ(round_speed(999'900'000), "1 GB/s");
}

TEST(UnitsTest, UnitsOfTheFieldAreRead) {
  EXPECT_EQ(Scanner("400 Gbit/s").speed(), 50'000'000'000u);
  EXPECT_EQ(Scanner("0.5 TB/s").speed(), 500'000'000'000u);
  EXPECT_EQ(Scanner("64 GiB").bytes(), uint64_t{64} << 30);
  EXPECT_FALSE(Scanner("GB/s").speed());
  EXPECT_FALSE(Scanner("5 GB/sec").speed());
  EXPECT_FALSE(Scanner("1e9 B/s").speed());
  EXPECT_FALSE(Scanner("10000000000 TB/s").speed());
}

}  // namespace
}  // namespace tutti::topology
