// Graph and GraphBuilder: what is refused, what can be asked, and the digest.
#include "topology/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Node make_node(NodeKind kind, const std::string& name, uint32_t parent = kNoNode) {
  Node node;
  node.kind = kind;
  node.name = name;
  node.parent = parent;
  return node;
}

Edge make_edge(uint32_t a, uint32_t b, uint64_t bytes_per_s = 1000) {
  Edge edge;
  edge.a = a;
  edge.b = b;
  edge.bytes_per_s = {bytes_per_s};
  return edge;
}

/// A host with a package and two GPUs, which one link joins.
GraphBuilder small_machine() {
  GraphBuilder builder;
  EXPECT_TRUE(builder.add(make_node(NodeKind::kHost, "h")));
  EXPECT_TRUE(builder.add(make_node(NodeKind::kPackage, "p", 0)));
  EXPECT_TRUE(builder.add(make_node(NodeKind::kGpu, "g0", 1)));
  EXPECT_TRUE(builder.add(make_node(NodeKind::kGpu, "g1", 1)));
  EXPECT_TRUE(builder.connect(make_edge(1, 2)));
  EXPECT_TRUE(builder.connect(make_edge(1, 3)));
  EXPECT_TRUE(builder.connect(make_edge(3, 2)));
  return builder;
}

TEST(GraphTest, KnowsParentsChildrenAndLinks) {
  const Graph graph = small_machine().finish();
  EXPECT_THAT(graph.children_of(kNoNode), ElementsAre(0));
  EXPECT_THAT(graph.children_of(1), ElementsAre(2, 3));
  EXPECT_TRUE(graph.children_of(3).empty());
  ASSERT_EQ(graph.links_of(2).size(), 2u);
  EXPECT_EQ(graph.links_of(2)[0].other, 1u);
  EXPECT_EQ(graph.links_of(2)[1].other, 3u);
  EXPECT_TRUE(graph.links_of(0).empty());
  EXPECT_THAT(graph.of_kind(NodeKind::kGpu), ElementsAre(2, 3));
  EXPECT_EQ(graph.find("g1"), 3u);
  EXPECT_EQ(graph.find("g2"), kNoNode);
  EXPECT_EQ(graph.around(3, NodeKind::kHost), 0u);
  EXPECT_EQ(graph.around(3, NodeKind::kGpu), 3u);
  EXPECT_EQ(graph.around(3, NodeKind::kNuma), kNoNode);
}

// Goal: nothing wrong gets into a graph, and the message says what is wrong.
TEST(GraphTest, RefusesWrongNodes) {
  const auto refusal = [](const Node& node) {
    GraphBuilder builder = small_machine();
    const auto added = builder.add(node);
    return added ? std::string() : std::string(added.status().text());
  };
  EXPECT_THAT(refusal(make_node(NodeKind::kHost, "")), HasSubstr("1 to 64"));
  EXPECT_THAT(refusal(make_node(NodeKind::kHost, std::string(65, 'a'))), HasSubstr("1 to 64"));
  EXPECT_THAT(refusal(make_node(NodeKind::kHost, "a b")), HasSubstr("a_b"));
  EXPECT_THAT(refusal(make_node(NodeKind::kHost, "g0")), HasSubstr("taken"));
  EXPECT_THAT(refusal(make_node(NodeKind::kGpu, "x", 9)), HasSubstr("does not exist"));
  EXPECT_THAT(refusal(make_node(NodeKind::kGpu, "x", 2)), HasSubstr("cannot lie in gpu 'g0'"));
  EXPECT_THAT(refusal(make_node(NodeKind::kHost, "x", 1)), HasSubstr("cannot lie in package"));
  Node odd = make_node(NodeKind::kGpu, "x", 1);
  odd.model = "a\"b";
  EXPECT_THAT(refusal(odd), HasSubstr("model"));
  odd.model.clear();
  odd.bus_id = "0000 00";
  EXPECT_THAT(refusal(odd), HasSubstr("bus id"));
  odd.bus_id.clear();
  odd.count = 0;
  EXPECT_THAT(refusal(odd), HasSubstr("count"));
}

TEST(GraphTest, RefusesWrongLinks) {
  const auto refusal = [](const Edge& edge) { return std::string(small_machine().connect(edge).text()); };
  EXPECT_THAT(refusal(make_edge(0, 9)), HasSubstr("does not exist"));
  EXPECT_THAT(refusal(make_edge(2, 2)), HasSubstr("same node"));
  EXPECT_THAT(refusal(make_edge(0, 1, 0)), HasSubstr("speed is 0"));
  EXPECT_THAT(refusal(make_edge(2, 3)), HasSubstr("second link"));
  Edge other_kind = make_edge(2, 3);
  other_kind.kind = LinkKind::kNvlink;
  EXPECT_EQ(refusal(other_kind), "");
}

TEST(GraphTest, RefusesChainsThatAreTooDeepAndGraphsThatAreTooLarge) {
  GraphBuilder builder;
  ASSERT_TRUE(builder.add(make_node(NodeKind::kPciSwitch, "s0")));
  Status status;
  for (uint32_t i = 1; status && i < 1000; ++i) {
    status = builder.add(make_node(NodeKind::kPciSwitch, "s" + std::to_string(i), i - 1)).status();
  }
  EXPECT_THAT(std::string(status.text()), HasSubstr("nodes around it"));

  GraphBuilder wide;
  status = {};
  uint32_t count = 0;
  for (; status && count < 1'000'000; ++count) {
    status = wide.add(make_node(NodeKind::kHost, "h" + std::to_string(count))).status();
  }
  EXPECT_THAT(std::string(status.text()), HasSubstr("more than 262144 nodes"));
}

TEST(GraphTest, UnusedNamesAreUnique) {
  GraphBuilder builder = small_machine();
  EXPECT_EQ(builder.unused_name("g2"), "g2");
  EXPECT_EQ(builder.unused_name("g0"), "g0.1");
  ASSERT_TRUE(builder.add(make_node(NodeKind::kGpu, "g0.2", 1)));
  EXPECT_EQ(builder.unused_name("g0"), "g0.3");
  EXPECT_EQ(builder.unused_name(" "), "_");
  const std::string longest(64, 'n');
  ASSERT_TRUE(builder.add(make_node(NodeKind::kGpu, longest, 1)));
  EXPECT_TRUE(builder.add(make_node(NodeKind::kGpu, builder.unused_name(longest), 1)));
}

// Goal: ranks that compare digests find any difference.
TEST(GraphTest, EveryFieldChangesTheDigest) {
  const Graph graph = small_machine().finish();
  EXPECT_EQ(graph.digest(), small_machine().finish().digest());
  const auto digest_after = [](const auto& change) {
    GraphBuilder builder = small_machine();
    change(builder);
    return std::move(builder).finish().digest();
  };
  EXPECT_NE(graph.digest(), digest_after([](auto& b) { b.node(2).bus_id = "0000:01:00.0"; }));
  EXPECT_NE(graph.digest(), digest_after([](auto& b) { b.node(2).model = "m"; }));
  EXPECT_NE(graph.digest(), digest_after([](auto& b) { b.node(2).os_index = 0; }));
  EXPECT_NE(graph.digest(), digest_after([](auto& b) { b.node(2).count = 2; }));
  EXPECT_NE(graph.digest(), digest_after([](auto& b) { b.node(2).memory_bytes = 1; }));
  EXPECT_NE(graph.digest(), digest_after([](auto& b) { b.node(2).bytes_per_s.value = 1; }));
  EXPECT_NE(graph.digest(), digest_after([](auto& b) { b.edges()[0].count = 2; }));
  EXPECT_NE(graph.digest(), digest_after([](auto& b) { b.edges()[0].bytes_per_s.value = 999; }));
  EXPECT_NE(graph.digest(), digest_after([](auto& b) { b.edges()[0].latency_ns.origin = Origin::kFile; }));
  EXPECT_NE(graph.digest(), digest_after([](auto& b) { b.edges()[0].latency_ns.spread_percent = 1; }));
}

TEST(GraphTest, ABuilderContinuesFromAGraph) {
  const Graph graph = small_machine().finish();
  EXPECT_EQ(GraphBuilder(graph).finish(), graph);
  GraphBuilder builder(graph);
  EXPECT_FALSE(builder.connect(make_edge(2, 3)));
  ASSERT_NE(builder.edge_between(3, 2, LinkKind::kInside), nullptr);
  EXPECT_EQ(builder.edge_between(3, 2, LinkKind::kPci), nullptr);
}

}  // namespace
}  // namespace tutti::topology
