// Which network cards the ranks of a host use first.
#include "topology/cards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/describe.h"
#include "topology/text.h"

namespace tutti::topology {
namespace {

using testing::ElementsAre;

Graph described(const std::string& text) {
  auto graph = parse_description(text);
  EXPECT_TRUE(graph) << graph.status().text();
  return graph ? std::move(*graph) : Graph();
}

std::vector<size_t> near(const CardOrder& order) {
  std::vector<size_t> cards;
  for (size_t i = 0; i < order.near_count; ++i) cards.push_back(order.uses[i].card);
  return cards;
}

TEST(CardsTest, EachGpuOfADgxHasACardOfItsOwn) {
  const Graph graph = described("8 gpus, 2 packages, nvswitch 450 GB/s, pcie 63 GB/s, nic 8 x 400 Gbit/s");
  const auto gpus = graph.of_kind(NodeKind::kGpu);
  const auto cards = graph.of_kind(NodeKind::kNic);
  ASSERT_EQ(gpus.size(), 8u);
  ASSERT_EQ(cards.size(), 8u);
  for (size_t i = 0; i < gpus.size(); ++i) {
    const CardOrder order = order_cards(graph, cards, gpus, i);
    EXPECT_THAT(near(order), ElementsAre(i));
    EXPECT_EQ(order.uses[0].distance, Distance::kPix);
    ASSERT_EQ(order.uses.size(), 8u);
    // Cards of the own package before those of the other one.
    for (size_t j = 0; j < 8; ++j) EXPECT_EQ(order.uses[j].card / 4 == i / 4, j < 4) << i << " " << j;
  }
}

TEST(CardsTest, GpusThatShareTheirCardsBeginWithDifferentOnes) {
  const Graph graph = described("4 gpus, 2 packages, pcie 31 GB/s, nic 2 x 100 Gbit/s");
  const auto cards = graph.of_kind(NodeKind::kNic);
  const auto gpus = graph.of_kind(NodeKind::kGpu);
  std::vector<size_t> first;
  for (size_t i = 0; i < gpus.size(); ++i) first.push_back(order_cards(graph, cards, gpus, i).uses[0].card);
  EXPECT_THAT(first, ElementsAre(0, 0, 1, 1));
}

TEST(CardsTest, RanksAnywhereShareEqualCardsOut) {
  const Graph graph;
  const std::vector<uint32_t> cards(4, kNoNode);
  const auto firsts = [&](size_t ranks) {
    std::vector<size_t> first;
    const std::vector<uint32_t> nodes(ranks, kNoNode);
    for (size_t i = 0; i < ranks; ++i) {
      const CardOrder order = order_cards(graph, cards, nodes, i);
      EXPECT_EQ(order.near_count, 4u) << "all are as near";
      first.push_back(order.uses[0].card);
    }
    return first;
  };
  EXPECT_THAT(firsts(1), ElementsAre(0));
  EXPECT_THAT(firsts(2), ElementsAre(0, 2));
  EXPECT_THAT(firsts(4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(firsts(6), ElementsAre(0, 1, 2, 3, 0, 1));
  EXPECT_TRUE(order_cards(graph, {}, std::vector<uint32_t>{kNoNode}, 0).uses.empty());
}

// Two packages with a card each, four cores each.
constexpr const char* kTwoPackages = R"(tutti topology 1
host h
package p0 in h
numa n0 in p0
core c0 in n0 index 0
core c1 in n0 index 1
bridge b0 in n0
nic x in b0 bus 0000:17:00.0
package p1 in h
numa n1 in p1
core c2 in n1 index 2
core c3 in n1 index 3 count 2
bridge b1 in n1
nic y in b1 bus 0000:b1:00.0
)";

TEST(CardsTest, ARankOnCoresUsesTheCardOfItsPackage) {
  const auto graph = parse_graph(kTwoPackages);
  ASSERT_TRUE(graph) << graph.status().text();
  const std::vector<uint32_t> cards = {at_bus(*graph, "17:00.0"), at_bus(*graph, "0000:B1:00.0")};
  EXPECT_EQ(cards[0], graph->find("x"));
  EXPECT_EQ(cards[1], graph->find("y"));
  EXPECT_EQ(at_bus(*graph, "0000:18:00.0"), kNoNode);
  EXPECT_EQ(at_bus(*graph, ""), kNoNode);
  std::vector<uint32_t> ranks;
  for (const uint32_t cpus : {0b1000u, 0b1100u, 0b0010u, 0b0011u, 0b1111u, 0b0110u})
    ranks.push_back(core_of(*graph, CpuSet(cpus)));
  EXPECT_EQ(ranks[0], graph->find("c3"));
  EXPECT_EQ(ranks[1], graph->find("c2"));
  EXPECT_EQ(ranks[2], graph->find("c1"));
  EXPECT_EQ(ranks[4], kNoNode) << "anywhere";
  EXPECT_EQ(ranks[5], kNoNode) << "in both packages";
  EXPECT_EQ(core_of(*graph, CpuSet(1u << 9)), kNoNode) << "a core that the graph does not have";
  EXPECT_EQ(core_of(*graph, with_first_siblings(CpuSet(1u << 9), 6)), graph->find("c3"))
      << "its second thread";
  EXPECT_THAT(near(order_cards(*graph, cards, ranks, 0)), ElementsAre(1));
  EXPECT_THAT(near(order_cards(*graph, cards, ranks, 2)), ElementsAre(0));
  EXPECT_EQ(order_cards(*graph, cards, ranks, 4).near_count, 2u);
}

}  // namespace
}  // namespace tutti::topology
