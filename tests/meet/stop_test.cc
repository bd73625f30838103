// Ending a set-up from outside: at any time by who wants it ended, and for a loss only until the last word.
#include "meet/stop.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

namespace tutti {
namespace {

struct Connection {
  Connection() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    near = FileDescriptor(ends[0]);
    far = FileDescriptor(ends[1]);
  }
  bool is_open() const { return send(near.get(), "x", 1, MSG_NOSIGNAL) == 1; }
  FileDescriptor near;
  FileDescriptor far;
};

TEST(SetUpStopTest, ALossEndsASetUpUntilItsLastWord) {
  Connection lost;
  SetUpStop early;
  EXPECT_TRUE(early.arm(lost.near.get()));
  early.stop_early();
  EXPECT_FALSE(lost.is_open());
  EXPECT_FALSE(early.begin_last()) << "the last word is not said any more";

  Connection kept;
  SetUpStop late;
  EXPECT_TRUE(late.arm(kept.near.get()));
  EXPECT_TRUE(late.begin_last());
  late.stop_early();
  EXPECT_TRUE(kept.is_open()) << "others may be through already";
  late.stop();
  EXPECT_FALSE(kept.is_open()) << "an abort ends it still";
}

}  // namespace
}  // namespace tutti
