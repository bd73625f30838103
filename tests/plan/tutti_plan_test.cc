// Goal: what tutti-plan says of right and wrong plans, and that its whole output is a plan text again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/text.h"
#include "tests/plan/sample_plans.h"
#include "tools/sizes.h"
#include "tools/tutti_plan/report.h"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;
using tool::parse_bytes;
using tool::report_plans;

TEST(TuttiPlanTest, RightPlansAreProvedAndPriced) {
  const PlanSet plans = ring_all_reduce(4);
  const auto report = report_plans(plans, {.block_bytes = 4000});
  EXPECT_TRUE(report.is_right);
  EXPECT_THAT(report.text, HasSubstr("no race (out of place, in place, by reference)\n"));
  EXPECT_THAT(report.text, HasSubstr("4 ranks, 4 lanes, 28 steps (at most 7 a rank)"));
  EXPECT_THAT(report.text, HasSubstr("24000 bytes over links"));
  EXPECT_THAT(report.text, HasSubstr("predicted time"));
}

TEST(TuttiPlanTest, WrongPlansAreRefusedWithTheReason) {
  PlanSet plans = star_gather(3, 0);
  plans[0].lanes[0].steps.pop_back();
  const auto report = report_plans(plans, {.block_bytes = 4000});
  EXPECT_FALSE(report.is_right);
  EXPECT_THAT(report.text,
              HasSubstr("REFUSED: rank 2 lane 0 step 0 (input 0 -> link 0@0 ref, chunks 2) sends"));
}

TEST(TuttiPlanTest, TheOutputCanBeReadBack) {
  const PlanSet plans = two_lane_all_gather(3);
  const auto read = parse_plans(report_plans(plans, {.block_bytes = 64}).text + print_plans(plans));
  ASSERT_TRUE(read) << read.status().text();
  EXPECT_EQ(*read, plans);
}

TEST(TuttiPlanTest, BytesHaveUnits) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("64K"), 65536u);
  EXPECT_EQ(parse_bytes("1.5m"), 1536u * 1024);
  EXPECT_EQ(parse_bytes("2G"), uint64_t{2} << 30);
  EXPECT_EQ(parse_bytes("1048576G"), uint64_t{1} << 50);
  for (const char* wrong : {"1048577G", "", "K", "-1", "12Q", "1KK", "1e30", "nan", " 1", "0x10"}) {
    EXPECT_EQ(parse_bytes(wrong), std::nullopt) << wrong;
  }
}

TEST(TuttiPlanTest, BytesBetweenHostsAreReported) {
  const std::vector<uint32_t> host_of = {0, 0, 1, 1};
  const auto report = report_plans(ring_all_reduce(4), {.block_bytes = 4000, .costs = {.host_of = host_of}});
  EXPECT_THAT(report.text, HasSubstr("24000 bytes over links"));
  EXPECT_THAT(report.text, HasSubstr("12000 of these bytes between hosts"));
  EXPECT_THAT(report.text, HasSubstr("on 2 cores a host"));
}

TEST(TuttiPlanTest, HostsAreANumberOrAList) {
  using Hosts = std::vector<uint32_t>;
  EXPECT_EQ(tool::parse_hosts("1", 3), (Hosts{0, 0, 0}));
  EXPECT_EQ(tool::parse_hosts("2", 5), (Hosts{0, 0, 0, 1, 1}));
  EXPECT_EQ(tool::parse_hosts("3", 3), (Hosts{0, 1, 2}));
  EXPECT_EQ(tool::parse_hosts("7,3,7,0", 4), (Hosts{0, 1, 0, 2}));
  for (const char* wrong :
       {"", "0", "4", "-1", "x", "1,", ",1", "1,1", "1,1,1,1", "1,x,1", "1 1 1", "99999999999999999999"}) {
    EXPECT_EQ(tool::parse_hosts(wrong, 3), std::nullopt) << wrong;
  }
}

TEST(TuttiPlanTest, EveryCollectiveIsListed) {
  const std::string list = tool::list_algorithms();
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (collective == Collective::kSendRecv) continue;
    EXPECT_THAT(list, HasSubstr(std::string(collective_name(collective))));
  }
}

}  // namespace
}  // namespace tutti::test
