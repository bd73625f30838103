// Ending a set-up from outside.
#include "bootstrap/stop.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

namespace tutti {
namespace {

FileDescriptor make_event() {
  return FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

bool is_signalled(const FileDescriptor& event) {
  eventfd_t count = 0;
  return eventfd_read(event.get(), &count) == 0;
}

TEST(BootstrapStopTest, SignalsTheEventThatItIsArmedWith) {
  const FileDescriptor before = make_event();
  const FileDescriptor under_way = make_event();
  BootstrapStop stop;
  EXPECT_TRUE(stop.arm(before.get()));
  stop.disarm();
  EXPECT_TRUE(stop.arm(under_way.get()));
  stop.stop();
  EXPECT_TRUE(is_signalled(under_way));
  EXPECT_FALSE(is_signalled(before)) << "nobody waits there any more";
  EXPECT_FALSE(stop.arm(before.get())) << "a bootstrap that begins later is told";
  stop.stop();
  EXPECT_FALSE(is_signalled(before)) << "the stop was not armed with that";
  EXPECT_TRUE(stop.is_stopped());
}

}  // namespace
}  // namespace tutti
