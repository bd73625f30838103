// FileDescriptor: numbers above those of the standard streams. Reading and writing all of it.
#include "core/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <thread>
#include <vector>

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

// Method: a pipe holds 64 KiB, so most writes and reads are partial.
TEST(FileDescriptorTest, AllBytesPassAPipe) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  std::vector<std::byte> sent(1 << 20);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i % 251);
  bool is_written = false;
  std::jthread thread([&] {
    is_written = write_all(writer.get(), sent);
    writer.reset();
  });
  std::vector<std::byte> received(sent.size() + 1);
  EXPECT_EQ(read_all(reader.get(), std::span(received).first(3)), 3u);
  EXPECT_EQ(read_all(reader.get(), std::span(received).subspan(3)), sent.size() - 3) << "fewer at the end";
  thread.join();
  EXPECT_TRUE(is_written);
  received.pop_back();
  EXPECT_TRUE(received == sent);
  EXPECT_EQ(read_all(reader.get(), received), 0u);
}

TEST(FileDescriptorTest, ErrorsOfReadingAndWritingAreLeftInErrno) {
  const FileDescriptor full(open("/dev/full", O_RDWR | O_CLOEXEC));
  const std::array<std::byte, 8> bytes{};
  EXPECT_FALSE(write_all(full.get(), bytes));
  EXPECT_EQ(errno, ENOSPC);
  std::array<std::byte, 8> room{};
  const FileDescriptor folder(open("/", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(read_all(folder.get(), room), std::nullopt);
  EXPECT_EQ(errno, EISDIR);
}

}  // namespace
}  // namespace tutti::test
