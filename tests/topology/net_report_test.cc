// Goal: what tutti-topo --net found is judged and shown rightly. Method: reports made by hand, no network.
#include "tools/tutti_topo/net_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tutti::tool {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

NetRail port(const char* name, uint32_t mtu_bytes = 4096) {
  return {.transport = "rdma",
          .name = name,
          .address = "10.0.0.1",
          .mbit_per_s = 100'000,
          .mtu_bytes = mtu_bytes};
}

NetPair pair(const NetRail& a, const NetRail& b, double latency_us, double there, double back) {
  return {.host_a = 0,
          .rail_a = a,
          .host_b = 1,
          .rail_b = b,
          .figures = {.latency_us = latency_us,
                      .there_bytes_per_s = there,
                      .back_bytes_per_s = back,
                      .failure = {}},
          .remarks = {}};
}

NetReport two_hosts(std::vector<NetPair> pairs) {
  return {.hosts = {{.rank = 0, .name = "n1", .rails = {port("a:1")}, .why_no_rdma = {}},
                    {.rank = 4, .name = "n2", .rails = {port("a:1")}, .why_no_rdma = "no library"}},
          .pairs = std::move(pairs)};
}

// Goal: pairs that are like the best one of their kind get no remark.
TEST(NetReportTest, AlikePairsAreNotRemarked) {
  NetReport report = two_hosts(
      {pair(port("a:1"), port("a:1"), 2, 11e9, 12e9), pair(port("b:1"), port("b:1"), 2.5, 10e9, 11e9)});
  judge(report);
  EXPECT_THAT(report.pairs[0].remarks, IsEmpty());
  EXPECT_THAT(report.pairs[1].remarks, IsEmpty());
  EXPECT_FALSE(has_failure(report));
}

// Goal: what is odd about a pair that works is told in words.
TEST(NetReportTest, OddPairsAreRemarked) {
  NetReport report = two_hosts(
      {pair(port("a:1"), port("a:1"), 2, 11e9, 12e9), pair(port("b:1"), port("b:1", 1024), 9, 4e9, 11e9)});
  judge(report);
  EXPECT_THAT(report.pairs[1].remarks, ElementsAre(HasSubstr("MTU 4096 and 1024"),
                                                   HasSubstr("best rdma pair of this rate has 11 GB/s"),
                                                   HasSubstr("one direction"), HasSubstr("takes 2.0 us")));
}

// Goal: a pair is compared with pairs of its own kind only: TCP is slower than RDMA, 10 Gbit/s than 100.
TEST(NetReportTest, OnlyPairsOfOneKindAreCompared) {
  NetRail slow = port("c:1");
  slow.mbit_per_s = 10'000;
  NetRail tcp = port("eth0");
  tcp.transport = "tcp";
  NetReport report = two_hosts({pair(port("a:1"), port("a:1"), 2, 11e9, 11e9), pair(slow, slow, 9, 1e9, 1e9),
                                pair(tcp, tcp, 30, 2e9, 2e9)});
  judge(report);
  for (const NetPair& one : report.pairs) EXPECT_THAT(one.remarks, IsEmpty()) << one.rail_a.name;
}

// Goal: a failed pair is shown with its reason, counted, and no measure for the others.
TEST(NetReportTest, FailedPairsAreShownAndCounted) {
  NetReport report =
      two_hosts({pair(port("a:1"), port("a:1"), 2, 11e9, 11e9), pair(port("b:1"), port("b:1"), 0, 0, 0)});
  report.pairs[1].figures.failure = "the peer's device did not acknowledge a packet";
  judge(report);
  EXPECT_THAT(report.pairs[0].remarks, IsEmpty());
  EXPECT_TRUE(has_failure(report));
  const std::string text = show_net(report);
  EXPECT_THAT(text, HasSubstr("n2 (rank 4)"));
  EXPECT_THAT(text, HasSubstr("no RDMA: no library"));
  EXPECT_THAT(text, HasSubstr("FAILED: the peer's device did not acknowledge"));
  EXPECT_THAT(text, HasSubstr("1 of 2 pairs work"));
}

// Goal: JSON names both ends of each pair, and what ranks exchange comes back unchanged.
TEST(NetReportTest, JsonHoldsEverything) {
  NetReport report = two_hosts({pair(port("a:1"), port("b:1", 1024), 2, 11e9, 10e9)});
  judge(report);
  const auto json = nlohmann::json::parse(show_net_json(report));
  const auto& one = json.at("pairs").at(0);
  EXPECT_EQ(one.at("a"), nlohmann::json({{"rank", 0}, {"rail", "a:1"}}));
  EXPECT_EQ(one.at("b"), nlohmann::json({{"rank", 4}, {"rail", "b:1"}}));
  EXPECT_EQ(one.at("back_bytes_per_s"), 10e9);
  EXPECT_THAT(one.at("remarks").get<std::vector<std::string>>(), Contains(HasSubstr("MTU")));
  EXPECT_EQ(json.at("hosts").at(1).at("rails").at(0).at("mtu_bytes"), 4096);

  const nlohmann::json sent = report.pairs[0];
  const auto received = sent.get<NetPair>();
  EXPECT_EQ(nlohmann::json(received), sent);
  EXPECT_EQ(received.rail_b.mtu_bytes, 1024u);
}

}  // namespace
}  // namespace tutti::tool
