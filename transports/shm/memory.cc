#include "transports/shm/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

namespace tutti {

Mapping::Mapping(Mapping&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    reset();
    base_ = std::exchange(other.base_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Mapping::reset() {
  if (base_ != nullptr) munmap(base_, bytes_);
  base_ = nullptr;
  bytes_ = 0;
}

namespace {

bool is_short_of_resources(int error_number) {
  return error_number == EMFILE || error_number == ENFILE || error_number == ENOMEM;
}

/// A file in `folder` without a name.
Result<FileDescriptor> create_nameless(const char* folder) {
  std::string path = std::string(folder) + "/tutti-XXXXXX";
  FileDescriptor file(mkostemp(path.data(), O_CLOEXEC));
  if (!file.is_open()) return system_error(format("a file in %s", folder), errno);
  unlink(path.c_str());
  return file;
}

/// In the place of memfd_create, which has failed with `error_number`. `is_good` may refuse a file.
Result<FileDescriptor> create_elsewhere(int error_number,
                                        const std::function<Status(const FileDescriptor&)>& is_good) {
  std::string tried(system_error("memfd_create", error_number).text());
  for (const char* folder : {"/dev/shm", "/tmp"}) {
    auto file = create_nameless(folder);
    const Status good = file ? is_good(*file) : file.status();
    if (good) return file;
    tried += "; in its place " + std::string(good.text());
  }
  return Status(Code::kSystemError, tried);
}

}  // namespace

Status resize_memory(const FileDescriptor& file, size_t bytes) {
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) == 0) return Status::ok();
  return system_error(format("sizing shared memory to %zu bytes", bytes), errno);
}

Result<FileDescriptor> create_memory(const char* name, size_t bytes) {
  FileDescriptor file(memfd_create(name, MFD_CLOEXEC));
  if (file.is_open()) {
    TUTTI_TRY(resize_memory(file, bytes));
    return file;
  }
  if (is_short_of_resources(errno)) return system_error("memfd_create", errno);
  return create_elsewhere(errno,
                          [bytes](const FileDescriptor& other) { return take_pages(other, 0, bytes); });
}

Result<SparseFile> create_sparse_memory(const char* name) {
  SparseFile sparse{FileDescriptor(memfd_create(name, MFD_CLOEXEC)), false};
  if (sparse.file.is_open()) return sparse;
  if (is_short_of_resources(errno)) return system_error("memfd_create", errno);
  auto other = create_elsewhere(errno, [](const FileDescriptor&) { return Status::ok(); });
  TUTTI_TRY(other.status());
  return SparseFile{std::move(*other), true};
}

Status take_pages(const FileDescriptor& file, size_t offset, size_t bytes) {
  const int error_number = posix_fallocate(file.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes));
  if (error_number == 0) return Status::ok();
  return {Code::kOutOfMemory,
          format("its file system has no room for %zu bytes: %s", bytes,
                 std::string(system_error("posix_fallocate", error_number).text()).c_str())};
}

Result<Mapping> map_memory(const FileDescriptor& file, size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (base == MAP_FAILED) return system_error(format("mapping %zu bytes of shared memory", bytes), errno);
  return Mapping(static_cast<std::byte*>(base), bytes);
}

Result<Mapping> map_plain(size_t bytes) {
  constexpr int kKind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kKind, -1, 0);
  if (base == MAP_FAILED) return system_error(format("mapping %zu bytes of memory", bytes), errno);
  return Mapping(static_cast<std::byte*>(base), bytes);
}

void prefault(std::byte* address, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  madvise(address, bytes, MADV_POPULATE_WRITE);
#else
  static_cast<void>(address);
  static_cast<void>(bytes);
#endif
}

}  // namespace tutti
