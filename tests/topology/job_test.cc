// The graph of a job from the graphs of its hosts.
#include "topology/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/describe.h"
#include "topology/paths.h"
#include "topology/routes.h"
#include "topology/search.h"
#include "topology/text.h"

namespace tutti::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string text_of(std::string_view description) {
  const auto graph = parse_description(description);
  EXPECT_TRUE(graph) << graph.status().text();
  return graph ? print_graph(*graph) : "";
}

Graph joined(const JobTexts& texts) {
  auto graph = join_hosts(texts);
  EXPECT_TRUE(graph) << graph.status().text();
  return graph ? std::move(*graph) : Graph();
}

TEST(JobTest, EqualHostsAreStoredOnce) {
  JobTexts texts;
  for (const char* host : {"2 gpus", "4 gpus", "2 gpus", "2 gpus"}) texts.add_host(text_of(host));
  EXPECT_EQ(texts.graphs.size(), 2u);
  EXPECT_THAT(texts.graph_of_host, ElementsAre(0, 1, 0, 0));
}

// Goal: a job is what its hosts are, and its ranks reach each other.
TEST(JobTest, HostsAreJoinedByAnAssumedSwitch) {
  JobTexts texts;
  for (int host = 0; host < 3; ++host)
    texts.add_host(text_of("8 gpus, nvswitch 450 GB/s, pcie 63 GB/s, nic 8 x 50 GB/s"));
  const Graph graph = joined(texts);
  EXPECT_EQ(graph.of_kind(NodeKind::kHost).size(), 3u);
  EXPECT_EQ(WidestPaths(graph, graph.find("h0/gpu3")).bytes_per_s(graph.find("h2/gpu5")), 50'000'000'000u);
  const auto offers = search(graph);
  ASSERT_TRUE(offers);
  EXPECT_EQ(offers->ranks.size(), 24u);
  EXPECT_EQ(offers->ring_bytes_per_s, 400'000'000'000u);
  EXPECT_EQ(joined(texts).digest(), graph.digest());
}

// Goal: a job's ranks are priced with measured slices only where the measurement is of their kind of machine.
TEST(JobTest, CostsOfSlicesAreTheFirstHostsForHostsOfItsKind) {
  const std::string slices = "slice send 8 20 ns\n";
  JobTexts alike;
  alike.add_host(text_of("4 cores") + slices);
  alike.add_host(text_of("4 cores") + "slice send 8 30 ns\n");
  alike.add_host(text_of("4 cores"));
  EXPECT_DOUBLE_EQ(joined(alike).slices().us(SliceWork::kSend, 8), 0.020);
  JobTexts mixed;
  mixed.add_host(text_of("4 cores") + slices);
  mixed.add_host(text_of("2 packages, 8 cores") + slices);
  EXPECT_EQ(joined(mixed).slices(), SliceCosts());
}

// Goal: prices fold hosts that were measured one by one. Method: latencies that differ by noise; a card that
// the system shows to be slower is no noise.
TEST(JobTest, EqualHostsThatWereMeasuredApartHaveOneShape) {
  const auto host = [](int latency_ns, const char* card) {
    return "tutti topology 1\nhost box\nnuma n in box\ncore c in n\nnic x in n speed " + std::string(card) +
           " GB/s sysfs\nlink n c inside 9 GB/s measured spread 3 " + std::to_string(latency_ns) +
           " ns measured\nlink n x pci " + card + " GB/s sysfs 500 ns assumed\n";
  };
  JobTexts texts;
  for (const int latency_ns : {30, 31, 45}) texts.add_host(host(latency_ns, "9"));
  const Graph graph = joined(texts);
  const auto routes = Routes::of(graph, RanksAre::kCores);
  ASSERT_TRUE(routes) << routes.status().text();
  EXPECT_EQ(routes->shape_count(), 1u);
  EXPECT_EQ(graph.edge(graph.links_of(graph.find("h2/c"))[0].edge).latency_ns.value, 30u);
  texts.add_host(host(30, "5"));
  const Graph mixed = joined(texts);
  EXPECT_EQ(Routes::of(mixed, RanksAre::kCores)->shape_count(), 2u);
}

TEST(JobTest, HostsOfDifferentKindsAndWithoutCardsAreJoined) {
  JobTexts texts;
  texts.add_host(text_of("4 cores"));
  texts.add_host(text_of("2 packages, 8 cores, nic 5 GB/s"));
  const Graph graph = joined(texts);
  EXPECT_EQ(WidestPaths(graph, graph.find("h0/core0")).bytes_per_s(graph.find("h1/core7")), 1'250'000'000u);
  EXPECT_EQ(graph.node(graph.find("h0/network")).bytes_per_s.origin, Origin::kAssumed);
}

TEST(JobTest, SwitchesThatHostsNameAreShared) {
  const std::string host =
      "tutti topology 1\nfabric leaf\nhost box\nnuma n in box\ncore c in n\nnic x in n speed 9 GB/s file\n"
      "link n c inside 9 GB/s file 1 ns file\nlink n x pci 9 GB/s file 1 ns file\n"
      "link x leaf network 9 GB/s file 1 ns file\n";
  JobTexts texts;
  texts.add_host(host);
  texts.add_host(host);
  const Graph graph = joined(texts);
  EXPECT_THAT(graph.of_kind(NodeKind::kFabric).size(), 1u);
  EXPECT_EQ(WidestPaths(graph, graph.find("h0/c")).bytes_per_s(graph.find("h1/c")), 9'000'000'000u);
}

TEST(JobTest, OneHostKeepsItsGraph) {
  JobTexts texts;
  texts.add_host(text_of("8 gpus, nvswitch 450 GB/s"));
  EXPECT_EQ(print_graph(joined(texts)), texts.graphs[0]);
}

TEST(JobTest, AWrongTextNamesItsHost) {
  JobTexts texts;
  texts.add_host(text_of("2 gpus"));
  texts.add_host("tutti topology 1\nhost h\nhost h\n");
  EXPECT_THAT(std::string(join_hosts(texts).status().text()),
              HasSubstr("the graph of host 1: line 3: host 'h'"));
  EXPECT_THAT(std::string(join_hosts({}).status().text()), HasSubstr("without hosts"));
  texts = {};
  texts.graph_of_host = {3};
  EXPECT_THAT(std::string(join_hosts(texts).status().text()), HasSubstr("names no graph"));
}

// Goal: 2,048 equal hosts cost one text, and a graph of 16,384 GPUs.
TEST(JobTest, ALargeJobIsJoined) {
  JobTexts texts;
  const std::string host = text_of("8 gpus, nvswitch 450 GB/s, nic 8 x 50 GB/s");
  for (int i = 0; i < 2048; ++i) texts.add_host(host);
  EXPECT_EQ(texts.graphs.size(), 1u);
  EXPECT_EQ(joined(texts).of_kind(NodeKind::kGpu).size(), 16384u);
}

}  // namespace
}  // namespace tutti::topology
