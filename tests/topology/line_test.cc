// A cache line between two cores (topology/line.h), with threads in their place.
#include "topology/line.h"

#include <gtest/gtest.h>

#include <thread>

namespace tutti::topology {
namespace {

constexpr LineTrips kTrips{.count = 32, .stretch = 8, .patience = std::chrono::seconds(20)};

// Goal: probes follow each other on the same lines, and each ends with a time.
TEST(LineTest, TwoThreadsFindEachOtherInEachProbe) {
  LinePair lines;
  bool good = true;
  std::thread other([&] {
    for (uint32_t number = 1; number <= 20; ++number) good = answer_line(lines, number, kTrips) && good;
  });
  for (uint32_t number = 1; number <= 20; ++number) EXPECT_GT(send_line(lines, number, kTrips), 0);
  other.join();
  EXPECT_TRUE(good);
}

// Goal: nobody waits forever for a core that is not there, and what it left behind is no answer to a later
// probe.
TEST(LineTest, AMissingCoreIsGivenUp) {
  LinePair lines;
  const LineTrips impatient{.count = 32, .stretch = 8, .patience = std::chrono::milliseconds(1)};
  EXPECT_EQ(send_line(lines, 1, impatient), 0);
  EXPECT_FALSE(answer_line(lines, 1, impatient)) << "the first turn is answered, the second one never comes";
  EXPECT_EQ(send_line(lines, 2, impatient), 0) << "the answer to probe 1 is none to probe 2";
  std::thread other([&] { EXPECT_TRUE(answer_line(lines, 3, kTrips)); });
  EXPECT_GT(send_line(lines, 3, kTrips), 0);
  other.join();
}

}  // namespace
}  // namespace tutti::topology
