// Symmetric heap: memory of one process that every process of the host may map. Collectives then use user
// buffers without a copy, a ptrace right or a kernel module.
//
// One sparse anonymous file per process, which the process and its peers map once at full length. So an
// address here plus a constant is the same byte in the peer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <mutex>
#include <optional>

#include "core/result.h"
#include "transports/shm/lent_heap.h"
#include "transports/shm/memory.h"

namespace tutti {

class SymmetricHeap {
 public:
  /// Memory that allocate() has returned. No other allocation, before or after, has its number.
  struct Allocation {
    std::byte* address = nullptr;
    size_t bytes = 0;
    uint64_t number = 0;
  };

  /// Reserves address space. Pages are taken at the first touch. Errors: kSystemError, kOutOfMemory (also a
  /// limit of file sizes); the text of a heap that is too large names TUTTI_HEAP_BYTES.
  /// `memory`: of the heap's tables.
  static Result<SymmetricHeap*> create(size_t bytes,
                                       std::pmr::memory_resource* memory = std::pmr::get_default_resource());
  /// As long as default_bytes() says, or shorter where address space is short. Errors: as create.
  static Result<SymmetricHeap*> create_default(
      std::pmr::memory_resource* memory = std::pmr::get_default_resource());
  /// A heap that another library of this process owns: every call goes there. `lent` is never destroyed.
  static SymmetricHeap* borrow(const LentHeap& lent);

  /// As long as the physical memory, but short enough that a process can map the heaps of two ranks for each
  /// core, of 64 at least. `addresses`: bytes of address space that are left, SIZE_MAX without a limit.
  static size_t default_bytes(size_t physical, size_t addresses, size_t cores);

  /// What an allocation of `bytes` takes: whole pages, from 2 MiB on whole huge pages.
  static size_t rounded(size_t bytes);
  /// Zeroed, aligned to 4,096 bytes. Errors: kOutOfMemory, with the bytes asked for and free.
  Result<void*> allocate(size_t bytes);
  /// The same; null on failure. Takes memory for the heap's tables only.
  void* try_allocate(size_t bytes);
  /// Errors: kInvalidArgument if `pointer` is not the start of a live allocation.
  Status free(void* pointer);
  /// Makes a live allocation longer in place. False: other memory lies behind it, or there are no pages.
  bool grow(void* pointer, size_t bytes);
  /// Calls visit(allocation) for each live allocation, by address. Allocates nothing.
  template <class Visit>
  void for_each(const Visit& visit) const {
    const std::scoped_lock lock(mutex_);
    for (const auto& [offset, one] : used_) visit(one);
  }

  bool contains(const void* pointer, size_t bytes) const {
    const auto offset = static_cast<size_t>(static_cast<const std::byte*>(pointer) - base_);
    return offset < bytes_ && bytes <= bytes_ - offset;
  }
  /// The live allocation that holds all these bytes. Thread-safe, as all of this class.
  std::optional<Allocation> find(const void* pointer, size_t bytes) const;
  /// While it stays the same, every allocation that find() has returned lives.
  uint64_t free_count() const {
    return lent_ ? lent_->free_count() : free_count_.load(std::memory_order_acquire);
  }
  bool is_empty() const { return !lent_ && used_count_.load(std::memory_order_relaxed) == 0; }
  std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  int fd() const { return lent_ ? lent_->file : file_.get(); }

 private:
  explicit SymmetricHeap(std::pmr::memory_resource* memory) : free_(memory), used_(memory) {}
  Status out_of_memory(size_t bytes) const;

  const LentHeap* lent_ = nullptr;  ///< null: the heap is this object's own
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
  FileDescriptor file_;
  bool is_limited_ = false;  ///< as in SparseFile
  Mapping mapping_;
  mutable std::mutex mutex_;
  std::pmr::map<size_t, size_t> free_;      ///< offset -> bytes, no two adjacent
  std::pmr::map<size_t, Allocation> used_;  ///< by offset
  uint64_t last_number_ = 0;
  std::atomic<uint64_t> free_count_ = 0;
  std::atomic<size_t> used_count_ = 0;
};

}  // namespace tutti
