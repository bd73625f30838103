#include "transports/shm/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
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

Result<FileDescriptor> create_memory(const char* name, size_t bytes) {
  FileDescriptor file(memfd_create(name, MFD_CLOEXEC));
  if (!file.is_open()) return system_error("memfd_create", errno);
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    return system_error(format("sizing shared memory to %zu bytes", bytes), errno);
  }
  return file;
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
