// Tests of placement: which core a rank gets, and which ranks are neighbours.
#include "topology/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"
#include "topology/describe.h"
#include "topology/job.h"
#include "topology/text.h"

namespace tutti::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Graph described(const char* text) {
  auto graph = parse_description(text);
  EXPECT_TRUE(graph) << graph.status().text();
  return graph ? std::move(*graph) : Graph();
}

CpuSet only(std::initializer_list<size_t> cpus) {
  CpuSet set;
  for (const size_t cpu : cpus) set.set(cpu);
  return set;
}

CpuSet all() {
  return CpuSet().set();
}

Placement place(const Graph& graph, const std::vector<uint32_t>& host_of, const std::vector<CpuSet>& cpus) {
  const auto routes = Routes::of(graph, RanksAre::kCores);
  EXPECT_TRUE(routes) << routes.status().text();
  auto placement = place_ranks(*routes, host_of, cpus);
  EXPECT_TRUE(placement) << placement.status().text();
  return placement ? std::move(*placement) : Placement();
}

TEST(PlacementTest, UnboundRanksTakeTheCoresInTurn) {
  const Placement placement = place(described("4 cores"), {0, 0, 0, 0, 0}, std::vector<CpuSet>(5, all()));
  EXPECT_THAT(placement.places, ElementsAre(0, 1, 2, 3, 0));
  EXPECT_THAT(placement.order, IsEmpty());
  EXPECT_THAT(placement.levels, IsEmpty());
}

// Goal: a rank that its launcher has bound to a core's second thread is bound. It counted as unbound, and one
// such rank left its host without levels. Method: two packages of two cores, whose second threads are 4 to 7.
TEST(PlacementTest, RanksOnSecondThreadsAreBoundToTheirCores) {
  const auto graph = parse_graph(R"(tutti topology 1
host h
package p0 in h
core c0 in p0 index 0 count 2
core c1 in p0 index 1 count 2
package p1 in h
core c2 in p1 index 2 count 2
core c3 in p1 index 3 count 2
link h p0 inside 9 GB/s file 9 ns file
link h p1 inside 9 GB/s file 9 ns file
link p0 c0 inside 9 GB/s file 9 ns file
link p0 c1 inside 9 GB/s file 9 ns file
link p1 c2 inside 9 GB/s file 9 ns file
link p1 c3 inside 9 GB/s file 9 ns file
)");
  ASSERT_TRUE(graph) << graph.status().text();
  const std::vector<CpuSet> cpus = {only({0, 4}), with_first_siblings(only({6}), 4), only({1}),
                                    with_first_siblings(only({7}), 4)};
  const Placement placement = place(*graph, {0, 0, 0, 0}, cpus);
  EXPECT_THAT(placement.places, ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(placement.levels, ElementsAre(ElementsAre(0, 1, 0, 1)));
}

// Goal: bound ranks have neighbours and groups. Method: ranks on two packages in turns.
TEST(PlacementTest, BoundRanksAreOrderedAndGroupedByTheirCores) {
  const Graph graph = described("2 packages, 8 cores");
  const std::vector<CpuSet> cpus = {only({0}), only({4}), only({1}), only({5})};
  const Placement placement = place(graph, {0, 0, 0, 0}, cpus);
  EXPECT_THAT(placement.places, ElementsAre(0, 4, 1, 5));
  EXPECT_THAT(placement.order, ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(placement.levels, ElementsAre(ElementsAre(0, 1, 0, 1)));
}

/// GPU i has the address 0000:0i:00.0.
Graph linked_gpus(int gpus, const std::vector<std::pair<int, int>>& links) {
  std::string text = "tutti topology 1\nhost h\n";
  for (int i = 0; i < gpus; ++i) text += format("gpu g%d in h bus 0000:%02x:00.0\n", i, i);
  for (const auto& [a, b] : links) text += format("link g%d g%d nvlink 50 GB/s nvml 500 ns assumed\n", a, b);
  auto graph = parse_graph(text);
  EXPECT_TRUE(graph) << graph.status().text();
  return graph ? std::move(*graph) : Graph();
}

Result<Placement> place_devices(const Graph& graph, std::span<const std::string> pci_addresses) {
  const auto routes = Routes::of(graph, RanksAre::kGpus);
  TUTTI_TRY(routes.status());
  return topology::place_devices(*routes, pci_addresses);
}

std::vector<std::string> addresses_of(const std::vector<int>& gpus) {
  std::vector<std::string> addresses;
  for (const int gpu : gpus) addresses.push_back(format("0000:%02x:00.0", gpu));
  return addresses;
}

// Goal: rings of ranks on devices follow the links, whatever device a rank has.
TEST(PlacementTest, RingsOfDevicesFollowTheirLinks) {
  const Graph ring = linked_gpus(4, {{0, 2}, {2, 1}, {1, 3}, {3, 0}});
  for (const std::vector<int>& gpus : {std::vector<int>{0, 1, 2, 3}, {2, 1, 0, 3}, {3, 2, 1, 0}}) {
    const auto placed = place_devices(ring, addresses_of(gpus));
    ASSERT_TRUE(placed) << placed.status().text();
    ASSERT_FALSE(placed->order.empty());
    ASSERT_EQ(placed->order.size() % 4, 0u);
    for (size_t i = 0; i < placed->order.size(); ++i) {
      const int gpu = gpus[placed->order[i]];
      const int next = gpus[placed->order[i % 4 == 3 ? i - 3 : i + 1]];
      EXPECT_NE(gpu / 2, next / 2) << "no link joins 0 and 1, nor 2 and 3";
    }
  }
}

// Goal: a mesh gives as many rings as a plan may have, and they share few links: more than three rings need.
TEST(PlacementTest, AMeshOfDevicesHasSeveralRings) {
  std::vector<std::pair<int, int>> links;
  for (int a = 0; a < 8; ++a) {
    for (int b = a + 1; b < 8; ++b) links.emplace_back(a, b);
  }
  const auto mesh = place_devices(linked_gpus(8, links), addresses_of({0, 1, 2, 3, 4, 5, 6, 7}));
  ASSERT_TRUE(mesh) << mesh.status().text();
  ASSERT_EQ(mesh->order.size(), size_t{8} * kPlanChannels);
  std::set<std::pair<uint32_t, uint32_t>> hops;
  for (size_t i = 0; i < mesh->order.size(); ++i)
    hops.emplace(mesh->order[i], mesh->order[i % 8 == 7 ? i - 7 : i + 1]);
  EXPECT_GT(hops.size(), 3u * 8);
}

TEST(PlacementTest, DevicesThatNoLinksJoinStandInRankOrder) {
  const auto apart = place_devices(linked_gpus(3, {{0, 1}}), addresses_of({0, 1, 2}));
  ASSERT_TRUE(apart);
  EXPECT_THAT(apart->order, IsEmpty());
}

TEST(PlacementTest, DevicesThatTheGraphDoesNotHaveAreRefused) {
  const Graph graph = linked_gpus(3, {{0, 1}, {1, 2}, {2, 0}});
  EXPECT_FALSE(place_devices(graph, addresses_of({0, 1, 3})));
  EXPECT_FALSE(place_devices(graph, addresses_of({0, 1, 1})));
  EXPECT_FALSE(place_devices(graph, std::vector<std::string>{"", "", ""}));
  EXPECT_FALSE(
      place_devices(described("2 hosts x 2 gpus, nvlink 50 GB/s, nic 5 GB/s"), addresses_of({0, 1})));
}

TEST(PlacementTest, OneUnboundRankMakesItsHostUnordered) {
  const Graph graph = described("2 packages, 8 cores");
  const Placement placement = place(graph, {0, 0, 0}, {only({4}), all(), only({1})});
  EXPECT_THAT(placement.places, ElementsAre(4, 0, 1));
  EXPECT_THAT(placement.order, IsEmpty());
  EXPECT_THAT(placement.levels, IsEmpty());
}

// A host's ranks follow each other even if the launcher deals ranks out in turns.
TEST(PlacementTest, HostsFollowEachOther) {
  JobTexts texts;
  texts.add_host(print_graph(described("2 cores")));
  texts.add_host(print_graph(described("2 cores")));
  const auto job = join_hosts(texts);
  ASSERT_TRUE(job) << job.status().text();
  const Placement placement = place(*job, {0, 1, 0, 1}, std::vector<CpuSet>(4, all()));
  EXPECT_THAT(placement.order, ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(placement.places, ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(order_by_hosts(std::vector<uint32_t>{0, 1, 0, 1}), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(order_by_hosts(std::vector<uint32_t>{0, 0, 1, 1}), IsEmpty());
}

// Goal: every level that the graph shows is known, near ones first. Method: bound ranks on hosts of two
// packages, two hosts below each switch, dealt out to hosts in turns.
TEST(PlacementTest, LevelsGoFromCachesToHostsBelowOneSwitch) {
  const Graph job = described("4 hosts x 4 cores, 2 packages, nic 10 Gbit/s, fat tree 1:1, leaf 2 hosts");
  std::vector<uint32_t> host_of;
  std::vector<CpuSet> cpus;
  for (uint32_t rank = 0; rank < 16; ++rank) {
    host_of.push_back(rank % 4);
    cpus.push_back(only({rank / 4}));
  }
  const Placement placement = place(job, host_of, cpus);
  ASSERT_EQ(placement.levels.size(), 3u);
  EXPECT_THAT(placement.levels[0], ElementsAre(0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7));
  EXPECT_THAT(placement.levels[1], ElementsAre(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_THAT(placement.levels[2], ElementsAre(0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1));
}

// Hosts remain a level when their ranks may run anywhere.
TEST(PlacementTest, UnboundRanksHaveHostsAsTheirOnlyLevel) {
  const Graph job = described("2 hosts x 8 cores, 2 packages, nic 10 Gbit/s");
  const Placement placement = place(job, {0, 0, 1, 1}, std::vector<CpuSet>(4, all()));
  EXPECT_THAT(placement.levels, ElementsAre(ElementsAre(0, 0, 1, 1)));
}

// Goal: rings together use all cards. Method: two cards a host; each ring enters the hosts at a rank with
// another card.
TEST(PlacementTest, EachCardHasARing) {
  const Graph job = described("2 hosts x 4 cores, nic 2 x 100 Gbit/s");
  const auto routes = Routes::of(job, RanksAre::kCores);
  ASSERT_TRUE(routes) << routes.status().text();
  const Placement placement = place(job, {0, 0, 0, 0, 1, 1, 1, 1}, std::vector<CpuSet>(8, all()));
  ASSERT_EQ(placement.order.size(), 16u);
  std::set<uint32_t> cards;
  for (size_t channel = 0; channel < 2; ++channel) {
    const auto order = std::span(placement.order).subspan(8 * channel, 8);
    const auto entry = std::ranges::find_if(order, [](uint32_t rank) { return rank >= 4; });
    cards.insert(routes->nic_of()[placement.places[*entry]]);
    EXPECT_THAT(order, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  }
  EXPECT_EQ(cards.size(), 2u);
}

TEST(PlacementTest, AHostThatTheGraphDoesNotHaveIsAnError) {
  const Graph graph = described("4 cores");
  const auto routes = Routes::of(graph, RanksAre::kCores);
  const std::vector<uint32_t> host_of = {0, 1};
  const auto placement = place_ranks(*routes, host_of, std::vector<CpuSet>(2, all()));
  EXPECT_EQ(placement.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(placement.status().text()), ::testing::HasSubstr("rank 1 is on host 1"));
}

}  // namespace
}  // namespace tutti::topology
