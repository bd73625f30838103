// FileDescriptor: numbers above those of the standard streams.
#include "core/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

namespace tutti::test {
namespace {

/// Frees the number 0 while it lives.
class NoStandardInput {
 public:
  NoStandardInput() : kept_(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 100)) { close(STDIN_FILENO); }
  ~NoStandardInput() {
    if (kept_ < 0) return;
    dup2(kept_, STDIN_FILENO);
    close(kept_);
  }

 private:
  int kept_;
};

// A socket with the number 0 took what the application read from or wrote to its standard streams.
TEST(FileDescriptorTest, NoDescriptorIsAStandardStream) {
  const NoStandardInput closed;
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(fd, STDIN_FILENO);
  const FileDescriptor file(fd);
  EXPECT_GT(file.get(), STDERR_FILENO);
  EXPECT_EQ(fcntl(file.get(), F_GETFD), FD_CLOEXEC);
  EXPECT_LT(fcntl(STDIN_FILENO, F_GETFD), 0) << "the old number is still open";
}

TEST(FileDescriptorTest, WithoutAFreeNumberTheFileIsClosed) {
  const NoStandardInput closed;
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(fd, STDIN_FILENO);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{.rlim_cur = 1, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  errno = 0;
  const FileDescriptor file(fd);
  const int error_number = errno;
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(file.is_open());
  EXPECT_TRUE(error_number == EMFILE || error_number == EINVAL) << error_number;
  EXPECT_LT(fcntl(STDIN_FILENO, F_GETFD), 0);
}

}  // namespace
}  // namespace tutti::test
