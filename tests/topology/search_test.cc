// Maximum flow, rings inside a host, and what a whole job is offered.
#include "topology/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/topology/shared_files.h"
#include "topology/describe.h"
#include "topology/file.h"
#include "topology/flow.h"
#include "topology/rings.h"
#include "topology/text.h"

namespace tutti::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kGiga = 1'000'000'000;

Graph described(std::string_view text) {
  auto graph = parse_description(text);
  EXPECT_TRUE(graph) << graph.status().text();
  return graph ? std::move(*graph) : Graph();
}

Graph graph_of(const std::string& lines) {
  auto graph = parse_graph("tutti topology 1\n" + lines);
  EXPECT_TRUE(graph) << graph.status().text();
  return graph ? std::move(*graph) : Graph();
}

Offers offers_of(const Graph& graph) {
  auto offers = search(graph);
  EXPECT_TRUE(offers) << offers.status().text();
  return offers ? std::move(*offers) : Offers();
}

/// Every channel holds every rank once, and every tree has one root that all ranks reach.
void expect_right_orders(const Offers& offers) {
  const size_t count = offers.ranks.size();
  EXPECT_FALSE(offers.rings.empty());
  EXPECT_EQ(offers.nic_of.size(), count);
  for (const auto& ring : offers.rings) {
    EXPECT_EQ(ring.size(), count);
    EXPECT_EQ(std::set<uint32_t>(ring.begin(), ring.end()).size(), count);
    EXPECT_LT(*std::max_element(ring.begin(), ring.end()), count);
  }
  for (const auto& parent : offers.trees) {
    ASSERT_EQ(parent.size(), count);
    EXPECT_EQ(std::count(parent.begin(), parent.end(), kNoNode), 1);
    for (uint32_t rank = 0; rank < count; ++rank) {
      size_t steps = 0;
      for (uint32_t at = rank; parent[at] != kNoNode && steps <= count; at = parent[at]) ++steps;
      EXPECT_LE(steps, count) << "a circle in a tree";
    }
  }
  for (const Level& level : offers.levels) {
    EXPECT_EQ(level.group_of.size(), count);
    EXPECT_EQ(*std::max_element(level.group_of.begin(), level.group_of.end()) + 1, level.group_count);
  }
  // A rounding error of a byte for each channel is no excess.
  EXPECT_LE(offers.ring_bytes_per_s, offers.bound_bytes_per_s + 1000);
  EXPECT_LE(offers.tree_bytes_per_s, offers.bound_bytes_per_s + 1000);
  EXPECT_LE(offers.hierarchy_bytes_per_s, offers.bound_bytes_per_s + 1000);
}

TEST(FlowTest, IsTheNarrowestCut) {
  const Graph graph = graph_of(R"(host h
switch s in h
switch t in h
gpu a in h
gpu b in h
link a s pci 10 B/s file 1 ns file
link a t pci 4 B/s file 1 ns file
link s t pci 3 B/s file 1 ns file
link s b pci 5 B/s file 1 ns file
link t b pci 9 B/s file 1 ns file
)");
  const uint32_t a[] = {graph.find("a")};
  const uint32_t b[] = {graph.find("b")};
  EXPECT_EQ(max_flow(graph, a, b), 12u);
  EXPECT_EQ(max_flow(graph, b, a), 12u);
}

// Method: all cuts of small random graphs.
TEST(FlowTest, EqualsTheBestOfAllCuts) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    constexpr uint32_t kNodes = 7;
    GraphBuilder builder;
    for (uint32_t i = 0; i < kNodes; ++i) {
      Node node;
      node.kind = NodeKind::kFabric;
      node.name = "n" + std::to_string(i);
      ASSERT_TRUE(builder.add(node));
    }
    for (uint32_t i = 0; i < kNodes; ++i) {
      for (uint32_t j = 0; j < i; ++j) {
        Edge edge;
        edge.a = j;
        edge.b = i;
        edge.bytes_per_s.value = random() % 10;
        (void)builder.connect(edge).is_ok();  // no link of speed 0
      }
    }
    const Graph graph = std::move(builder).finish();
    uint64_t best = UINT64_MAX;
    for (uint32_t side = 1; side < 1u << kNodes; side += 2) {
      if ((side >> (kNodes - 1) & 1) != 0) continue;  // node 0 inside, the last outside
      uint64_t cut = 0;
      for (const Edge& edge : graph.edges()) {
        if ((side >> edge.a & 1) != (side >> edge.b & 1)) cut += edge.bytes_per_s.value;
      }
      best = std::min(best, cut);
    }
    const uint32_t from[] = {0};
    const uint32_t to[] = {kNodes - 1};
    EXPECT_EQ(max_flow(graph, from, to), best);
  }
}

TEST(RingsTest, ASwitchNeedsOneRing) {
  const Graph graph = described("8 gpus, nvswitch 450 GB/s");
  const auto gpus = graph.of_kind(NodeKind::kGpu);
  const HostRings found = find_host_rings(graph, gpus);
  EXPECT_EQ(found.rings.size(), 1u);
  EXPECT_EQ(found.bytes_per_s, 450 * kGiga);
  EXPECT_TRUE(found.complete);
}

// Goal: the links of a mesh are all used. Four GPUs have no two rings that share no link, but six that use
// each link twice.
TEST(RingsTest, AMeshOfFourIsSaturated) {
  const Graph graph = described("4 gpus, nvlink 450 GB/s, pcie 1 MB/s");
  const auto gpus = graph.of_kind(NodeKind::kGpu);
  const HostRings found = find_host_rings(graph, gpus);
  EXPECT_EQ(found.bytes_per_s, 450 * kGiga);
}

TEST(RingsTest, AMeshOfEightReachesNearlyAllOfItsLinks) {
  const Graph graph = described("8 gpus, xgmi 448 GB/s, pcie 1 MB/s");
  const auto gpus = graph.of_kind(NodeKind::kGpu);
  EXPECT_GE(find_host_rings(graph, gpus).bytes_per_s, 6 * 64 * kGiga);
}

// GPU 0 and 2 share no link; the order must go around.
TEST(RingsTest, TheOrderFollowsTheLinks) {
  const Graph graph = graph_of(R"(host h
package p in h
gpu g0 in p
gpu g1 in p
gpu g2 in p
gpu g3 in p
link p g0 pci 1 GB/s file 1 ns file
link p g1 pci 1 GB/s file 1 ns file
link p g2 pci 1 GB/s file 1 ns file
link p g3 pci 1 GB/s file 1 ns file
link g0 g2 nvlink 50 GB/s file 1 ns file
link g2 g1 nvlink 50 GB/s file 1 ns file
link g1 g3 nvlink 50 GB/s file 1 ns file
link g3 g0 nvlink 50 GB/s file 1 ns file
)");
  const auto gpus = graph.of_kind(NodeKind::kGpu);
  const HostRings found = find_host_rings(graph, gpus);
  EXPECT_EQ(found.bytes_per_s, 100 * kGiga);
  EXPECT_THAT(found.rings, ElementsAre(ElementsAre(0, 2, 1, 3), ElementsAre(0, 3, 1, 2)));
}

TEST(RingsTest, PartsThatNothingJoinsHaveNoSpeed) {
  const Graph graph = graph_of("host h\ngpu a in h\ngpu b in h\n");
  const auto gpus = graph.of_kind(NodeKind::kGpu);
  EXPECT_EQ(find_host_rings(graph, gpus).bytes_per_s, 0u);
  const Offers offers = offers_of(graph);
  EXPECT_EQ(offers.ring_bytes_per_s, 0u);
  EXPECT_EQ(offers.ring_limit, "some ranks are not joined");
}

TEST(SearchTest, AServerOfEightGpus) {
  const Offers offers =
      offers_of(described("8 gpus, 2 packages, nvswitch 450 GB/s, pcie 63 GB/s, nic 8 x 50 GB/s"));
  expect_right_orders(offers);
  EXPECT_EQ(offers.ring_bytes_per_s, 450 * kGiga);
  EXPECT_THAT(offers.ring_limit, HasSubstr("nvlink"));
  EXPECT_EQ(offers.bound_at, "each rank");
  EXPECT_NEAR(static_cast<double>(offers.bound_bytes_per_s), 513e9, 1e3) << "NVLink and PCI together";
  EXPECT_TRUE(offers.levels.empty()) << "NVLink makes all GPUs neighbours";
  EXPECT_EQ(std::set<uint32_t>(offers.nic_of.begin(), offers.nic_of.end()).size(), 8u);
}

// Goal: on rails every channel uses every card of every host, and no byte climbs to the spine but where the
// ring closes.
TEST(SearchTest, AClusterOnRailsUsesAllItsCards) {
  const Graph graph =
      described("64 hosts x 8 gpus, nvswitch 450 GB/s, pcie 63 GB/s, nic 8 x 50 GB/s, rails, fat tree 2:1");
  const Offers offers = offers_of(graph);
  expect_right_orders(offers);
  EXPECT_EQ(offers.rings.size(), 8u);
  EXPECT_EQ(offers.ring_bytes_per_s, 400 * kGiga);
  EXPECT_THAT(offers.ring_limit, HasSubstr("network"));
  EXPECT_EQ(offers.bound_at, "host");
  ASSERT_EQ(offers.levels.size(), 2u);
  EXPECT_EQ(offers.levels[0].kind, NodeKind::kHost);
  EXPECT_EQ(offers.levels[0].group_count, 64u);
  EXPECT_EQ(offers.levels[1].kind, NodeKind::kFabric);
  EXPECT_EQ(offers.levels[1].group_count, 2u);
  EXPECT_GT(offers.hierarchy_bytes_per_s, 200 * kGiga);
  for (size_t rank = 0; rank < offers.ranks.size(); ++rank) {
    EXPECT_EQ(graph.node(offers.nic_of[rank]).parent, graph.node(offers.ranks[rank]).parent);
  }
}

TEST(SearchTest, CoresAreRanksWhereThereIsNoGpu) {
  const Offers offers = offers_of(described("2 packages, 8 cores"));
  expect_right_orders(offers);
  ASSERT_EQ(offers.levels.size(), 1u);
  EXPECT_EQ(offers.levels[0].group_count, 2u);
  EXPECT_THAT(offers.levels[0].group_of, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
}

// A level with two caches of one host was once called after the host.
TEST(SearchTest, LevelsAreNamedAfterWhatTheirGroupsShare) {
  const Graph graph = graph_of(R"(host h
l3 c0 in h
l3 c1 in h
core k0 in c0
core k1 in c0
core k2 in c1
core k3 in c1
)");
  const Offers offers = offers_of(graph);
  ASSERT_EQ(offers.levels.size(), 1u);
  EXPECT_EQ(offers.levels[0].kind, NodeKind::kL3);
}

TEST(SearchTest, OneRankIsRefused) {
  EXPECT_THAT(std::string(search(described("1 gpu")).status().text()),
              HasSubstr("needs two GPUs or two cores, found 1"));
}

// Cores that lie in no host were counted as ranks, so a search divided by their number, which was 0, and
// predictions read the first of no ranks.
TEST(SearchTest, RanksOutsideHostsAreRefused) {
  const std::string text = "package p\ncore c0 in p\ncore c1 in p\n";
  EXPECT_THAT(std::string(search(graph_of(text)).status().text()), HasSubstr("lie in hosts; of 2, 0 do"));
  EXPECT_THAT(std::string(search(graph_of(text + "host h\ncore c2 in h\n")).status().text()),
              HasSubstr("lie in hosts; of 3, 1 do"));
  EXPECT_EQ(offers_of(graph_of(text + "host h\ncore c2 in h\ncore c3 in h\n")).ranks.size(), 2u);
}

TEST(SearchTest, EqualGraphsGiveEqualOffers) {
  const char* text = "16 hosts x 4 gpus, nvlink 300 GB/s, nic 4 x 25 GB/s, fat tree 1:1, leaf 4 hosts";
  const Offers first = offers_of(described(text));
  const Offers again = offers_of(described(text));
  EXPECT_EQ(first.rings, again.rings);
  EXPECT_EQ(first.trees, again.trees);
  EXPECT_EQ(first.nic_of, again.nic_of);
}

TEST(SearchTest, EveryMachineGetsRightOrders) {
  auto files = test::files_under(TUTTI_MACHINES);
  for (const std::string& path : test::files_under(TUTTI_REAL_MACHINES)) files.push_back(path);
  for (const std::string& path : files) {
    SCOPED_TRACE(path);
    const auto machine = read_topology(path);
    if (!machine) continue;
    const auto offers = search(machine->graph);
    if (offers) expect_right_orders(*offers);
  }
}

// Goal: 16,384 ranks are searched with work and memory that grow with the result only.
TEST(SearchTest, AJobOf16384Ranks) {
  const Offers offers = offers_of(described(
      "2048 hosts x 8 gpus, nvswitch 450 GB/s, pcie 63 GB/s, nic 8 x 50 GB/s, rails, fat tree 2:1"));
  EXPECT_EQ(offers.ring_bytes_per_s, 400 * kGiga);
  EXPECT_EQ(offers.rings.size(), 8u);
  EXPECT_EQ(offers.levels.size(), 2u);
}

}  // namespace
}  // namespace tutti::topology
