// Tests of placement: which core a rank gets, and which ranks are neighbours.
#include "topology/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_THAT(placement.group_of, IsEmpty());
}

// Goal: bound ranks have neighbours and groups. Method: ranks on two packages in turns.
TEST(PlacementTest, BoundRanksAreOrderedAndGroupedByTheirCores) {
  const Graph graph = described("2 packages, 8 cores");
  const std::vector<CpuSet> cpus = {only({0}), only({4}), only({1}), only({5})};
  const Placement placement = place(graph, {0, 0, 0, 0}, cpus);
  EXPECT_THAT(placement.places, ElementsAre(0, 4, 1, 5));
  EXPECT_THAT(placement.order, ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(placement.group_of, ElementsAre(0, 1, 0, 1));
}

TEST(PlacementTest, OneUnboundRankMakesItsHostUnordered) {
  const Graph graph = described("2 packages, 8 cores");
  const Placement placement = place(graph, {0, 0, 0}, {only({4}), all(), only({1})});
  EXPECT_THAT(placement.places, ElementsAre(4, 0, 1));
  EXPECT_THAT(placement.order, IsEmpty());
  EXPECT_THAT(placement.group_of, IsEmpty());
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
