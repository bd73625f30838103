// Ending a set-up from outside.
#include "bootstrap/stop.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <thread>

namespace tutti {
namespace {

std::unique_ptr<EventLoop> make_loop() {
  return std::move(*EventLoop::create());
}

bool is_woken(const EventLoop& loop) {
  pollfd entry{.fd = loop.descriptor(), .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) == 1;
}

TEST(BootstrapStopTest, WakesTheLoopThatItIsArmedWith) {
  const auto before = make_loop();
  const auto under_way = make_loop();
  BootstrapStop stop;
  EXPECT_TRUE(stop.arm(*before));
  stop.disarm();
  EXPECT_TRUE(stop.arm(*under_way));
  stop.stop();
  EXPECT_TRUE(is_woken(*under_way));
  EXPECT_FALSE(is_woken(*before)) << "nobody waits there any more";
  EXPECT_FALSE(stop.arm(*before)) << "a bootstrap that begins later is told";
  EXPECT_TRUE(stop.is_stopped());
  EXPECT_FALSE(StopWatch::start(*before, &stop).is_ok());
}

// Goal: a loop that waits without any timer or descriptor is woken, each time.
TEST(BootstrapStopTest, AWaitingLoopIsWoken) {
  const auto loop = make_loop();
  for (int i = 0; i < 3; ++i) {
    BootstrapStop stop;
    const auto watch = StopWatch::start(*loop, &stop);
    ASSERT_TRUE(watch.is_ok());
    std::thread other([&stop] { stop.stop(); });
    loop->run_until([&] { return (*watch)->is_stopped(); });
    other.join();
  }
}

// Goal: thousands of loops of one process fit the usual limit on descriptors: each takes one.
TEST(EventLoopTest, ALoopThatItsThreadDrivesTakesOneDescriptor) {
  const auto first = make_loop();
  const auto second = make_loop();
  BootstrapStop stop;
  const auto watch = StopWatch::start(*second, &stop);
  ASSERT_TRUE(watch.is_ok());
  const auto third = make_loop();
  EXPECT_EQ(third->descriptor(), second->descriptor() + 1);
}

}  // namespace
}  // namespace tutti
