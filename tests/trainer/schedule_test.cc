// Schedules of pipelines: what they are, what is wrong with broken ones, and how they look.
#include "trainer/schedule.h"

#include <gtest/gtest.h>

#include "trainer/error.h"

namespace tutti::trainer {
namespace {

using Kind = Action::Kind;

Schedule make(const std::string& name, size_t ranks, size_t micro_batches, size_t chunks = 1) {
  return Schedule::named(name, {.ranks = ranks, .micro_batches = micro_batches, .chunks = chunks});
}

TEST(ScheduleTest, IsPrintedAsOneLineForEachRank) {
  EXPECT_EQ(make("gpipe", 2, 3).text(), "rank 0: F0 F1 F2 B0 B1 B2 U\nrank 1: F0 F1 F2 B0 B1 B2 U\n");
  EXPECT_EQ(make("1f1b", 2, 3).text(), "rank 0: F0 F1 B0 F2 B1 B2 U\nrank 1: F0 B0 F1 B1 F2 B2 U\n");
  EXPECT_EQ(make("pipedream", 2, 2).text(), "rank 0: F0 F1 B0 U B1 U\nrank 1: F0 B0 U F1 B1 U\n");
  EXPECT_EQ(make("1f1b", 2, 2, 2).text(),
            "rank 0: F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0 U\n"
            "rank 1: F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0 U\n");
}

// Goal: every schedule works, has the bubble of the formula and keeps as many micro-batches as it says.
TEST(ScheduleTest, HasTheBubbleOfTheFormulaForManyShapes) {
  for (size_t ranks = 2; ranks <= 8; ++ranks)
    for (const size_t groups : {1, 2, 5}) {
      const size_t m = groups * ranks;
      for (const size_t chunks : {1, 2, 3})
        for (const char* name : {"gpipe", "1f1b"}) {
          const bool interleaved = chunks > 1;
          const Schedule schedule = make(name, ranks, m, chunks);
          ASSERT_EQ(schedule.problem(), "") << schedule.text();
          const auto idle = static_cast<double>(ranks - 1);
          EXPECT_NEAR(bubble_of(schedule.simulate(), ranks), idle / (idle + static_cast<double>(m * chunks)),
                      1e-9)
              << schedule.text();
          if (interleaved) continue;
          EXPECT_EQ(schedule.alive_max(0), std::string(name) == "gpipe" ? m : ranks);
        }
      EXPECT_EQ(make("pipedream", ranks, m).problem(), "");
    }
  // Fewer micro-batches than ranks.
  EXPECT_EQ(make("1f1b", 4, 2).problem(), "");
  EXPECT_EQ(make("1f1b", 4, 2).alive_max(0), 2U);
}

// Goal: the check finds what would hang or compute something else. Method: a good schedule, broken by hand.
TEST(ScheduleTest, ChecksForDeadlockMissingPassesAndOrderOfMessages) {
  const Schedule good = make("1f1b", 2, 2);
  const auto broken = [&](auto change) {
    std::vector<std::vector<Action>> lists = {good.of(0), good.of(1)};
    change(lists);
    return Schedule(good.shape(), lists).problem();
  };
  EXPECT_EQ(broken([](auto& lists) { std::swap(lists[1][0], lists[1][1]); }),
            "rank 0 waits for ever before B0\nrank 1 waits for ever before B0\n");
  EXPECT_EQ(broken([](auto& lists) { lists[0].erase(lists[0].begin() + 3); }), "a pass is missing\n");
  EXPECT_EQ(broken([](auto& lists) { lists[0].insert(lists[0].begin(), lists[0][0]); }),
            "F0.0 occurs twice\n");
  EXPECT_EQ(broken([](auto& lists) { std::swap(lists[0][0], lists[0][1]); }),
            "rank 1 receives the messages of rank 0 in another order than they are sent\n");
}

TEST(ScheduleTest, NamesWhatAShapeCannotHave) {
  EXPECT_THROW(make("1f1b", 3, 4, 2), Error);
  EXPECT_THROW(make("pipedream", 3, 3, 2), Error);
  EXPECT_THROW(make("backwards", 3, 3), Error);
}

TEST(ScheduleTest, IsDrawnWithABarForEachPass) {
  const std::string svg = draw(strokes_of(make("1f1b", 3, 4).simulate()), 3, "a title");
  size_t bars = 0;
  for (size_t at = svg.find("<rect x"); at != std::string::npos; at = svg.find("<rect x", at + 1)) ++bars;
  EXPECT_EQ(bars, 3U * 2 * 4);
  EXPECT_NE(svg.find("a title"), std::string::npos);
  EXPECT_NE(draw({}, 1, "nothing").find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace tutti::trainer
