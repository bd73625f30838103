// Local sockets: who is trusted.
#include "comm/local_socket.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

namespace tutti::test {
namespace {

std::string free_name(const char* what) {
  return "tutti-test-" + std::string(what) + "-" + std::to_string(getpid());
}

/// Another user, for this thread alone: the library function would change all threads.
class OtherUser {
 public:
  OtherUser() { syscall(SYS_setresuid, -1, kNobody, -1); }
  ~OtherUser() { syscall(SYS_setresuid, -1, 0, -1); }

 private:
  static constexpr long kNobody = 65534;
};

// A rank told the key of its job to whoever had taken the name where the maker of the id listens.
TEST(LocalSocketTest, AnotherUsersListenerIsNobody) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const std::string name = free_name("user");
  FileDescriptor listener;
  {
    const OtherUser other;
    auto open = local_listen(name);
    ASSERT_TRUE(open.status().is_ok()) << open.status().text();
    listener = std::move(*open);
  }
  const auto connection = local_connect(name);
  EXPECT_EQ(connection.status().code(), Code::kPeerLost) << connection.status().text();
}

TEST(LocalSocketTest, OurOwnListenerIsFoundUntilItCloses) {
  const std::string name = free_name("own");
  auto listener = local_listen(name);
  ASSERT_TRUE(listener.status().is_ok()) << listener.status().text();
  EXPECT_TRUE(local_connect(name).status().is_ok());
  EXPECT_TRUE(local_accept(*listener).is_open());
  listener->reset();
  EXPECT_EQ(local_connect(name).status().code(), Code::kPeerLost);
}

}  // namespace
}  // namespace tutti::test
