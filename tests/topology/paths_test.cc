// Widest paths with their tie-breaking, and distances.
#include "topology/paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/describe.h"
#include "topology/routes.h"
#include "topology/text.h"

namespace tutti::topology {
namespace {

using testing::ElementsAre;

Graph graph_of(const std::string& lines) {
  auto graph = parse_graph("tutti topology 1\n" + lines);
  EXPECT_TRUE(graph) << graph.status().text();
  return graph ? std::move(*graph) : Graph();
}

std::vector<std::string> names(const Graph& graph, const Path& path) {
  std::vector<std::string> result;
  for (const uint32_t node : path.nodes) result.push_back(graph.node(node).name);
  return result;
}

std::vector<std::string> way(const Graph& graph, const char* from, const char* to) {
  const auto path = WidestPaths(graph, graph.find(from)).to(graph.find(to));
  return path ? names(graph, *path) : std::vector<std::string>{};
}

// Three ways from a to b: over s1 and s2 with 10, over s3 with 5.
constexpr const char* kDiamond = R"(host h
switch s1 in h
switch s2 in h
switch s3 in h
gpu a in h
gpu b in h
link a s1 pci 10 B/s file 1 ns file
link s1 b pci 10 B/s file LATENCY ns file
link a s2 pci 10 B/s file 1 ns file
link s2 b pci 20 B/s file 5 ns file
link a s3 pci 5 B/s file 0 ns file
link s3 b pci 50 B/s file 0 ns file
)";

Graph diamond(const std::string& latency) {
  std::string text = kDiamond;
  return graph_of(text.replace(text.find("LATENCY"), 7, latency));
}

TEST(PathsTest, WidthThenLatencyThenTheLowestNodeDecides) {
  EXPECT_THAT(way(diamond("9"), "a", "b"), ElementsAre("a", "s2", "b"));
  EXPECT_THAT(way(diamond("4"), "a", "b"), ElementsAre("a", "s1", "b"));
  const Graph equal = diamond("5");
  EXPECT_THAT(way(equal, "a", "b"), ElementsAre("a", "s1", "b"));
  const auto path = WidestPaths(equal, equal.find("a")).to(equal.find("b"));
  EXPECT_EQ(path->bytes_per_s, 10u);
  EXPECT_EQ(path->latency_ns, 6u);
}

TEST(PathsTest, TheWidestWayMayBeTheLongest) {
  const Graph graph = graph_of(R"(host h
switch s1 in h
switch s2 in h
gpu a in h
gpu b in h
link a b pci 1 B/s file 1 ns file
link a s1 pci 9 B/s file 1 ns file
link s1 s2 pci 8 B/s file 1 ns file
link s2 b pci 9 B/s file 1 ns file
)");
  EXPECT_THAT(way(graph, "a", "b"), ElementsAre("a", "s1", "s2", "b"));
  EXPECT_EQ(WidestPaths(graph, graph.find("a")).bytes_per_s(graph.find("b")), 8u);
}

// Goal: end points forward nothing; a host's traffic stays inside.
TEST(PathsTest, BytesDoNotPassThroughEndPoints) {
  const Graph graph = graph_of(R"(fabric f
host h
numa n in h
gpu a in n
gpu b in n
gpu c in n
nic x in n
nic y in n
link a b nvlink 50 GB/s file 1 ns file
link b c nvlink 50 GB/s file 1 ns file
link n a pci 1 GB/s file 1 ns file
link n c pci 1 GB/s file 1 ns file
link x a pci 9 GB/s file 1 ns file
link y c pci 9 GB/s file 1 ns file
link x f network 9 GB/s file 1 ns file
link y f network 9 GB/s file 1 ns file
)");
  EXPECT_THAT(way(graph, "a", "c"), ElementsAre("a", "n", "c"));
  EXPECT_THAT(way(graph, "x", "y"), ElementsAre());
  EXPECT_THAT(way(graph, "a", "f"), ElementsAre("a", "x", "f"));
}

// Goal: a card that bytes reach from its host and from the network passes them on either way. The nearer way
// to the card, which leads over another card, hid the one that goes on: a crash. Method: the card x is joined
// to both switches, but far from its host.
TEST(PathsTest, ACardOnTwoSwitchesIsReachedFromBothSides) {
  const Graph graph = graph_of(R"(fabric f1
fabric f2
host a
core a0 in a
nic x in a
nic y in a
host b
core b0 in b
nic z in b
link a a0 inside 10 GB/s file 1 ns file
link a x pci 10 GB/s file 5000 ns file
link a y pci 10 GB/s file 100 ns file
link b b0 inside 10 GB/s file 1 ns file
link b z pci 10 GB/s file 100 ns file
link x f1 network 10 GB/s file 10 ns file
link x f2 network 10 GB/s file 10 ns file
link y f1 network 10 GB/s file 10 ns file
link z f2 network 10 GB/s file 10 ns file
)");
  EXPECT_THAT(way(graph, "a0", "b0"), ElementsAre("a0", "a", "x", "f2", "z", "b", "b0"));
  EXPECT_THAT(way(graph, "b0", "a0"), ElementsAre("b0", "b", "z", "f2", "x", "a", "a0"));
  EXPECT_THAT(way(graph, "a0", "x"), ElementsAre("a0", "a", "x"));
}

// Goal: hosts that meet at the second switch of a card are joined.
TEST(PathsTest, RoutesTakeASwitchThatBothCardsAreJoinedTo) {
  const Graph graph = graph_of(R"(fabric f1
fabric f2
host a
core a0 in a
nic x in a
host b
core b0 in b
nic z in b
link a a0 inside 10 GB/s file 1 ns file
link a x pci 10 GB/s file 100 ns file
link b b0 inside 10 GB/s file 1 ns file
link b z pci 10 GB/s file 100 ns file
link x f1 network 10 GB/s file 10 ns file
link x f2 network 10 GB/s file 10 ns file
link z f2 network 10 GB/s file 10 ns file
)");
  auto routes = Routes::of(graph, RanksAre::kCores);
  ASSERT_TRUE(routes) << routes.status().text();
  for (const auto& [from, to] : {std::pair(0u, 1u), {1u, 0u}}) {
    std::vector<uint32_t> arcs;
    EXPECT_TRUE(routes->add_route(from, to, arcs));
    EXPECT_EQ(arcs.size(), 6u) << "core, host, card, f2, card, host, core";
    EXPECT_TRUE(routes->meet_elsewhere(from, to));
  }
}

TEST(PathsTest, APathToItselfIsEmptyAndAPathNowhereIsNone) {
  const Graph graph = graph_of("host h\ngpu a in h\ngpu b in h\n");
  EXPECT_THAT(way(graph, "a", "a"), ElementsAre("a"));
  EXPECT_FALSE(WidestPaths(graph, graph.find("a")).to(graph.find("b")));
  EXPECT_EQ(WidestPaths(graph, graph.find("a")).bytes_per_s(graph.find("b")), 0u);
}

// Goal: what is kept from one path to the next changes no path. Method: all targets in turn, of several
// widths, with one search and with a search for each.
TEST(PathsTest, PathsDoNotDependOnThoseBefore) {
  const auto graph =
      parse_description("4 hosts x 4 gpus, pcie 63 GB/s, nic 2 x 50 GB/s, leaf 2 hosts, fat tree 2:1");
  ASSERT_TRUE(graph) << graph.status().text();
  for (const uint32_t from : graph->of_kind(NodeKind::kGpu)) {
    WidestPaths kept(*graph, from);
    for (uint32_t to = 0; to < graph->nodes().size(); ++to) {
      const auto path = kept.to(to);
      const auto fresh = WidestPaths(*graph, from).to(to);
      ASSERT_EQ(path.has_value(), fresh.has_value());
      if (!path) continue;
      EXPECT_EQ(path->nodes, fresh->nodes);
      EXPECT_EQ(path->edges, fresh->edges);
    }
  }
}

TEST(DistanceTest, SaysWhatNvidiaSmiSays) {
  const Graph graph = graph_of(R"(host h
host other
package p0 in h
package p1 in h
numa n0 in p0
numa n1 in p1
bridge b0 in n0
bridge b1 in n0
switch s0 in b0
switch s1 in s0
switch s2 in s0
gpu g0 in s1
nic same in s1
nic next in s2
nic above in s0
nic bridge in b0
nic node in b1
nic far in n1
nic lost in h
gpu outside in other
gpu g1 in s2
nvswitch nv in h
link g0 nv nvlink count 18 450 GB/s file 1 ns file
link g1 nv nvlink count 12 300 GB/s file 1 ns file
)");
  const auto distance = [&](const char* name) {
    EXPECT_EQ(distance_text(graph, graph.find("g0"), graph.find(name)),
              distance_text(graph, graph.find(name), graph.find("g0")));
    return distance_text(graph, graph.find("g0"), graph.find(name));
  };
  EXPECT_EQ(distance("g0"), "X");
  EXPECT_EQ(distance("g1"), "NV12");
  EXPECT_EQ(distance("same"), "PIX");
  EXPECT_EQ(distance("above"), "PXB");
  EXPECT_EQ(distance("next"), "PXB");
  EXPECT_EQ(distance("bridge"), "PHB");
  EXPECT_EQ(distance("node"), "NODE");
  EXPECT_EQ(distance("far"), "SYS");
  EXPECT_EQ(distance("lost"), "SYS");
  EXPECT_EQ(distance("outside"), "NET");
}

TEST(DistanceTest, WithoutHostBridgesTheProcessorIsTheBridge) {
  const Graph graph = graph_of("host h\npackage p in h\nnuma n in p\ngpu a in n\nnic b in n\n");
  EXPECT_EQ(distance_text(graph, graph.find("a"), graph.find("b")), "PHB");
}

}  // namespace
}  // namespace tutti::topology
