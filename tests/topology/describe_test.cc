// Machines described in one line.
#include "topology/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/paths.h"
#include "topology/text.h"

namespace tutti::topology {
namespace {

using testing::HasSubstr;

Graph described(std::string_view text) {
  auto graph = parse_description(text);
  EXPECT_TRUE(graph) << graph.status().text();
  return graph ? std::move(*graph) : Graph();
}

TEST(DescribeTest, AClusterHasItsPartsAndItsFatTree) {
  const Graph graph = described("64 hosts x 8 gpus, nvswitch 450 GB/s, nic 8 x 50 GB/s, fat tree 2:1");
  EXPECT_EQ(graph.of_kind(NodeKind::kHost).size(), 64u);
  EXPECT_EQ(graph.of_kind(NodeKind::kGpu).size(), 512u);
  EXPECT_EQ(graph.of_kind(NodeKind::kNic).size(), 512u);
  EXPECT_EQ(graph.of_kind(NodeKind::kFabric).size(), 3u);  // two leaves of 32 hosts, and the spine

  const uint32_t gpu = graph.find("h0/gpu0");
  EXPECT_EQ(distance_text(graph, gpu, graph.find("h0/gpu7")), "NV1");
  EXPECT_EQ(distance_text(graph, gpu, graph.find("h0/nic0")), "PIX");
  EXPECT_EQ(distance_text(graph, gpu, graph.find("h40/gpu0")), "NET");
  WidestPaths paths(graph, gpu);
  EXPECT_EQ(paths.bytes_per_s(graph.find("h0/gpu7")), 450'000'000'000u);
  EXPECT_EQ(paths.bytes_per_s(graph.find("h1/gpu0")), 15'753'846'000u);  // the assumed PCI link
  const Edge& up = graph.edge(graph.links_of(graph.find("spine"))[0].edge);
  EXPECT_EQ(up.bytes_per_s.value, uint64_t{32} * 8 * 50'000'000'000 / 2);
  EXPECT_EQ(up.bytes_per_s.origin, Origin::kFile);
}

TEST(DescribeTest, RailsHaveTheirOwnLeaves) {
  const Graph graph = described("4 hosts x 8 gpus, nic 4 x 400 Gbit/s, rails, leaf 2 hosts, fat tree 1:1");
  EXPECT_EQ(graph.of_kind(NodeKind::kFabric).size(), 2u * 4 + 1);
  WidestPaths paths(graph, graph.find("h0/nic3"));
  EXPECT_EQ(paths.to(graph.find("h1/nic3"))->nodes.size(), 3u);
  EXPECT_EQ(paths.to(graph.find("h2/nic3"))->nodes.size(), 5u);
}

TEST(DescribeTest, GpusWithoutASwitchShareTheirSpeedAmongThePeers) {
  const Graph graph = described("8 gpus, xgmi 448 GB/s");
  EXPECT_EQ(distance_text(graph, graph.find("gpu0"), graph.find("gpu7")), "XG1");
  EXPECT_EQ(WidestPaths(graph, graph.find("gpu0")).bytes_per_s(graph.find("gpu7")), 64'000'000'000u);
}

TEST(DescribeTest, CoresLieInPackages) {
  const Graph graph = described("2 packages\n8 cores # of both\n");
  EXPECT_EQ(graph.of_kind(NodeKind::kCore).size(), 8u);
  EXPECT_EQ(distance_text(graph, graph.find("core0"), graph.find("core3")), "L3");
  EXPECT_EQ(distance_text(graph, graph.find("core0"), graph.find("core4")), "SYS");
}

TEST(DescribeTest, HostsWithoutCardsGetAssumedOnes) {
  const Graph graph = described("2 hosts x 4 cores");
  const Node& nic = graph.node(graph.find("h1/nic0"));
  EXPECT_EQ(nic.bytes_per_s.origin, Origin::kAssumed);
  EXPECT_EQ(WidestPaths(graph, graph.find("h0/core0")).bytes_per_s(graph.find("h1/core3")), 1'250'000'000u);
}

TEST(DescribeTest, MistakesNameTheLine) {
  const auto refusal = [](std::string_view text) {
    const auto graph = parse_description(text);
    return graph ? std::string("accepted") : std::string(graph.status().text());
  };
  EXPECT_THAT(refusal(""), HasSubstr("expected a size"));
  EXPECT_EQ(refusal("8 gpus,\nnvswitch -1 GB/s"),
            "line 2: expected a positive speed, as '450 GB/s', found '-1 GB/s'");
  EXPECT_THAT(refusal("8 gpus 5"), HasSubstr("expected a comma"));
  EXPECT_THAT(refusal("8 apples"), HasSubstr("expected hosts, gpus, packages or cores"));
  EXPECT_THAT(refusal("99999999 hosts x 8 gpus"), HasSubstr("expected a part of a machine"));
  EXPECT_THAT(refusal("60000 hosts x 4000 gpus"), HasSubstr("more than 262144 nodes"));
  EXPECT_THAT(refusal("8 gpus, nvlink 1 GB/s, xgmi 1 GB/s"), HasSubstr("second kind"));
  EXPECT_THAT(refusal("8 gpus, fat tree 0:1"), HasSubstr("fat tree N:M"));
  EXPECT_THAT(refusal("8 gpus, latency fast"), HasSubstr("a time"));
}

// Goal: the largest job of the promises fits: 16,384 ranks.
TEST(DescribeTest, AJobOf16384GpusIsWithinTheLimits) {
  const Graph graph =
      described("2048 hosts x 8 gpus, nvswitch 450 GB/s, nic 8 x 50 GB/s, rails, fat tree 1:1");
  EXPECT_EQ(graph.of_kind(NodeKind::kGpu).size(), 16384u);
  const auto again = parse_graph(print_graph(graph));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->digest(), graph.digest());
}

}  // namespace
}  // namespace tutti::topology
