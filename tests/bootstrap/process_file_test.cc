// Files of another process, opened through /proc: only the one that was meant.
#include "net/process_file.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace tutti::test {
namespace {

/// A file in memory with one byte.
FileDescriptor make_file(char byte) {
  FileDescriptor file(memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(pwrite(file.get(), &byte, 1, 0), 1);
  return file;
}

/// Whether a child process that has no descriptor of this one opens `file` of it and reads `byte`.
bool child_reads(const ProcessFile& file, char byte) {
  const pid_t owner = getpid();
  const pid_t child = fork();
  if (child == 0) {
    syscall(SYS_close_range, 3u, ~0u, 0u);  // glibc has had it since 2.34
    const FileDescriptor opened = open_file_of(owner, file);
    char found = 0;
    _exit(opened.is_open() && pread(opened.get(), &found, 1, 0) == 1 && found == byte ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(ProcessFileTest, AnotherProcessOpensTheFile) {
  const FileDescriptor file = make_file('a');
  EXPECT_TRUE(child_reads(name_file(file.get()), 'a'));
}

// Goal: a number that means another file there, as in another PID namespace or after a restart, is refused.
TEST(ProcessFileTest, AnotherFileUnderTheNumberIsRefused) {
  const FileDescriptor meant = make_file('a');
  const FileDescriptor other = make_file('b');
  ProcessFile name = name_file(meant.get());
  name.fd = other.get();
  EXPECT_FALSE(open_file_of(getpid(), name).is_open());
  name.fd = 100'000'000;
  EXPECT_FALSE(open_file_of(getpid(), name).is_open());
  EXPECT_FALSE(open_file_of(getpid(), ProcessFile{}).is_open());
  EXPECT_FALSE(open_file_of(-1, name_file(meant.get())).is_open());
}

// Goal: who opens a pipe's reading end sees that its last writer has gone. It says that a process has ended.
TEST(ProcessFileTest, APipeThatWasOpenedTellsThatItsWriterHasGone) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  const FileDescriptor opened = open_file_of(getpid(), name_file(reader.get()));
  ASSERT_TRUE(opened.is_open());
  pollfd state{.fd = opened.get(), .events = 0, .revents = 0};
  EXPECT_EQ(poll(&state, 1, 0), 0);
  writer.reset();
  EXPECT_EQ(poll(&state, 1, 0), 1);
  EXPECT_NE(state.revents & POLLHUP, 0);
}

}  // namespace
}  // namespace tutti::test
