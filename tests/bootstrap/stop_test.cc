// Ending a set-up from outside.
#include "bootstrap/stop.h"

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

TEST(SetUpStopTest, HangsUpTheConnectionThatItIsArmedWith) {
  Connection before;
  Connection under_way;
  BootstrapStop stop;
  EXPECT_TRUE(stop.arm(before.near.get()));
  stop.disarm();
  EXPECT_TRUE(stop.arm(under_way.near.get()));
  stop.stop();
  EXPECT_FALSE(under_way.is_open());
  EXPECT_TRUE(before.is_open()) << "nobody waits there any more";
  EXPECT_FALSE(stop.arm(before.near.get())) << "a set-up that begins later is told";
  stop.stop();
  EXPECT_TRUE(before.is_open()) << "it was not armed with that";
  EXPECT_TRUE(stop.is_stopped());
}

}  // namespace
}  // namespace tutti
