// The watchdog: expires once for a row that lasts, never for one that ends.
#include "perf/watchdog.h"

#include <gtest/gtest.h>

#include <future>

namespace tutti::perf {
namespace {

TEST(WatchdogTest, ARowThatLastsIsNamed) {
  std::promise<std::string> expired;
  Watchdog watchdog(std::chrono::milliseconds(5), [&](const std::string& row) { expired.set_value(row); });
  watchdog.begin("all_reduce 8 B");
  EXPECT_EQ(expired.get_future().get(), "all_reduce 8 B");
}

TEST(WatchdogTest, ARowThatEndsAndAnIdleWatchdogNeverExpire) {
  bool expired = false;
  {
    Watchdog watchdog(std::chrono::hours(1), [&](const std::string&) { expired = true; });
    watchdog.begin("row");
    watchdog.end();
    watchdog.begin("next row");
  }
  {
    Watchdog disabled(std::chrono::milliseconds(0), [&](const std::string&) { expired = true; });
    disabled.begin("row");
    disabled.end();
  }
  EXPECT_FALSE(expired);
}

}  // namespace
}  // namespace tutti::perf
