// Shared memory: anonymous files (memfd), whose descriptors peers map. Without names, nothing is left behind
// after kill -9, and /dev/shm may be full. Where a sandbox refuses memfd_create, a file in /dev/shm or /tmp
// that was removed at once takes its place.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/file_descriptor.h"
#include "core/result.h"

namespace tutti {

class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* base, size_t bytes) : base_(base), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { reset(); }

  std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  void reset();

 private:
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
};

/// An anonymous file, of which every byte may be used. Errors: kSystemError, kOutOfMemory.
Result<FileDescriptor> create_memory(const char* name, size_t bytes);

/// An anonymous file of 0 bytes that takes pages at the first touch.
struct SparseFile {
  FileDescriptor file;
  /// The file lies in a file system that may become full. Call `take_pages` before the first touch: without
  /// room, a touch would end the process.
  bool is_limited = false;
};
/// Errors: kSystemError.
Result<SparseFile> create_sparse_memory(const char* name);
/// Errors: kSystemError, kOutOfMemory.
Status resize_memory(const FileDescriptor& file, size_t bytes);
/// Errors: kOutOfMemory.
Status take_pages(const FileDescriptor& file, size_t offset, size_t bytes);

/// Maps the whole file, readable and writable. Errors: kSystemError, kOutOfMemory.
Result<Mapping> map_memory(const FileDescriptor& file, size_t bytes);

/// Zeroed private memory; pages are taken at the first touch. Errors: kSystemError, kOutOfMemory.
Result<Mapping> map_plain(size_t bytes);

/// A hint to take the pages now, so that the first use is not slow.
void prefault(std::byte* address, size_t bytes);

}  // namespace tutti
