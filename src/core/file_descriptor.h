// FileDescriptor: the owner of one open file, socket, or event source.
//
// Every descriptor of the library goes through this class, so that none has the number 0, 1 or 2. In a
// process that has closed its standard streams, the application's output would otherwise go into our sockets.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace tutti {

/// The same open file under a number above those of the standard streams; closes `fd` if the number changes.
/// -1, with errno, if `fd` is negative or no number is free.
int above_standard_streams(int fd);

/// Owns a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  /// `fd` may be negative. The number may change: from here on use `get`. Closed, with errno, if no number is
  /// free.
  explicit FileDescriptor(int fd) : fd_(above_standard_streams(fd)) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

/// Writes all bytes to a descriptor that blocks. False, with errno, if that fails.
bool write_all(int fd, std::span<const std::byte> bytes);
/// Reads from a descriptor that blocks. The bytes read, fewer than asked only at the end; empty, with errno,
/// if that fails.
std::optional<size_t> read_all(int fd, std::span<std::byte> bytes);

}  // namespace tutti
