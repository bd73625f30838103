// Symmetric heap: memory of one process that every process of the host may map as a whole, so that
// collectives read and write user buffers without a copy, a ptrace right or a kernel module.
//
// One sparse anonymous file a process, mapped once at its full length here and once by each peer: an address
// here plus a constant is the same byte there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "core/result.h"
#include "transports/shm/memory.h"

namespace tutti {

class SymmetricHeap {
 public:
  /// Reserves `bytes` of address space; memory is taken when allocations are touched.
  static Result<SymmetricHeap*> create(size_t bytes);

  /// 4096-byte aligned and zeroed. Errors: kOutOfMemory, naming what was asked and what is free.
  Result<void*> allocate(size_t bytes);
  /// Errors: kInvalidArgument when `pointer` is not the start of a live allocation.
  Status free(void* pointer);

  bool contains(const void* pointer, size_t bytes) const {
    const auto offset = static_cast<size_t>(static_cast<const std::byte*>(pointer) - mapping_.base());
    return offset < mapping_.bytes() && bytes <= mapping_.bytes() - offset;
  }
  std::byte* base() const { return mapping_.base(); }
  size_t bytes() const { return mapping_.bytes(); }
  int fd() const { return file_.get(); }

 private:
  SymmetricHeap() = default;

  FileDescriptor file_;
  Mapping mapping_;
  std::mutex mutex_;
  std::map<size_t, size_t> free_;  ///< offset -> bytes, no two adjacent
  std::map<size_t, size_t> used_;  ///< offset -> bytes
};

}  // namespace tutti
