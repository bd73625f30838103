#include "net/process_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <string>

#include "core/result.h"

namespace tutti {
namespace {

bool is_meant(const struct stat& found, const ProcessFile& file) {
  return static_cast<uint32_t>(found.st_dev) == file.device && found.st_ino == file.inode;
}

}  // namespace

ProcessFile name_file(int fd) {
  struct stat found {};
  if (fstat(fd, &found) != 0) return {};
  return {
      .fd = fd, .device = static_cast<uint32_t>(found.st_dev), .inode = static_cast<uint64_t>(found.st_ino)};
}

FileDescriptor open_file_of(int64_t pid, const ProcessFile& file) {
  if (file.fd < 0) return {};
  const std::string path = format("/proc/%lld/fd/%d", static_cast<long long>(pid), file.fd);
  struct stat found {};
  // Before it is opened: to open some other file could have an effect.
  if (stat(path.c_str(), &found) != 0 || !is_meant(found, file)) return {};
  const bool is_pipe = S_ISFIFO(found.st_mode);
  FileDescriptor opened(
      open(path.c_str(), (is_pipe ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!opened.is_open() || fstat(opened.get(), &found) != 0 || !is_meant(found, file)) return {};
  return opened;
}

}  // namespace tutti
