// Local sockets: who is trusted, and what happens where descriptors have run out.
#include "net/local_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <string>

#include "tests/support/no_descriptors.h"

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
TEST(LocalSocketTest, AnotherUsersListenerIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const std::string name = free_name("user");
  FileDescriptor listener;
  {
    const OtherUser other;
    auto open = local_listen(name);
    ASSERT_TRUE(open.status().is_ok()) << open.status().text();
    listener = std::move(*open);
  }
  const auto connection = local_connect(name, UINT64_MAX);
  EXPECT_EQ(connection.status().code(), Code::kInvalidUsage) << connection.status().text();
}

TEST(LocalSocketTest, OurOwnListenerIsFoundUntilItCloses) {
  const std::string name = free_name("own");
  auto listener = local_listen(name);
  ASSERT_TRUE(listener.status().is_ok()) << listener.status().text();
  EXPECT_TRUE(local_connect(name, UINT64_MAX).status().is_ok());
  EXPECT_TRUE(local_accept(*listener).is_open());
  listener->reset();
  EXPECT_EQ(local_connect(name, UINT64_MAX).status().code(), Code::kPeerLost);
}

// A process that took a guessable name and accepted nothing kept ranks in connect() for ever.
TEST(LocalSocketTest, AListenerThatTakesNobodyIsLeftAtTheDeadline) {
  const std::string name = free_name("busy");
  auto listener = local_listen(name);
  ASSERT_TRUE(listener.status().is_ok()) << listener.status().text();
  ASSERT_EQ(listen(listener->get(), 0), 0) << "one place in its queue";
  ASSERT_TRUE(local_connect(name, UINT64_MAX).status().is_ok());
  EXPECT_EQ(local_connect(name, 0).status().code(), Code::kTimeout);
  const auto is_aborted = [] { return Status(Code::kAborted, "by another thread"); };
  EXPECT_EQ(local_connect(name, UINT64_MAX, is_aborted).status().code(), Code::kAborted);
  EXPECT_TRUE(local_accept(*listener).is_open());
  EXPECT_TRUE(local_connect(name, 0).status().is_ok());
}

// One who connected without end kept the control thread in one call for ever.
TEST(LocalSocketTest, StrangersAreTurnedAwayAFewAtATime) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const std::string name = free_name("flood");
  auto listener = local_listen(name);
  ASSERT_TRUE(listener.status().is_ok()) << listener.status().text();
  {
    const OtherUser other;
    // Closed at once: what waits in the queue remembers who came. The listener's user has root's rights.
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(local_connect(name, UINT64_MAX).status().is_ok());
  }
  const auto own = local_connect(name, UINT64_MAX);
  ASSERT_TRUE(own.status().is_ok()) << own.status().text();
  EXPECT_FALSE(local_accept(*listener).is_open());
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_TRUE(local_accept(*listener).is_open());
}

// A message whose descriptors did not fit looked like one of another version.
TEST(LocalSocketTest, DescriptorsThatDoNotFitNameTheLimit) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const FileDescriptor from(ends[0]);
  const FileDescriptor to(ends[1]);
  const std::byte nothing{};
  const int file = from.get();
  ASSERT_TRUE(local_send(from.get(), std::span(&nothing, 1), std::span(&file, 1), UINT64_MAX));
  const NoDescriptors none;
  const auto message = local_receive(to.get(), UINT64_MAX);
  EXPECT_EQ(message.status().code(), Code::kSystemError);
  EXPECT_NE(message.status().text().find("ulimit -n"), std::string::npos) << message.status().text();
}

}  // namespace
}  // namespace tutti::test
