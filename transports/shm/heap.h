// Symmetric heap: memory of one process that every process of the host may map. Collectives then use user
// buffers without a copy, a ptrace right or a kernel module.
//
// One sparse anonymous file per process, which the process and its peers map once at full length. So an
// address here plus a constant is the same byte in the peer.
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
  /// Reserves address space. Pages are taken at the first touch. Errors: kSystemError, kOutOfMemory; the text
  /// of a heap that is too large names TUTTI_HEAP_BYTES.
  static Result<SymmetricHeap*> create(size_t bytes);

  /// As long as the physical memory, but short enough that a process can map the heaps of two ranks for each
  /// core, of 64 at least. `addresses`: bytes of address space that are left, SIZE_MAX without a limit.
  static size_t default_bytes(size_t physical, size_t addresses, size_t cores);

  /// Zeroed, aligned to 4,096 bytes. Errors: kOutOfMemory, with the bytes asked for and free.
  Result<void*> allocate(size_t bytes);
  /// Errors: kInvalidArgument if `pointer` is not the start of a live allocation.
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
  bool is_limited_ = false;  ///< as in SparseFile
  Mapping mapping_;
  std::mutex mutex_;
  std::map<size_t, size_t> free_;  ///< offset -> bytes, no two adjacent
  std::map<size_t, size_t> used_;  ///< offset -> bytes
};

}  // namespace tutti
