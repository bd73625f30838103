// libtutti_malloc.so: preloaded, it gives every program buffers that ranks of the same host read and write
// without a copy. It stands in front of malloc and its kin: large blocks lie in a symmetric heap, the rest
// goes to the next allocator.
//
//     LD_PRELOAD=libtutti_malloc.so ./program
#include <malloc.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "blocks.h"
#include "next_malloc.h"

#define TUTTI_REPLACES extern "C" __attribute__((visibility("default")))

namespace {

using tutti::preload::blocks;
using tutti::preload::kBlockAlignment;
using tutti::preload::kLeastBlockBytes;
using tutti::preload::next_malloc;

/// Null: the next allocator serves the request.
void* block_of(size_t bytes, size_t alignment = 1, bool zeroed = false) {
  if (bytes < kLeastBlockBytes) [[likely]]
    return nullptr;
  return alignment <= kBlockAlignment ? blocks.allocate(bytes, zeroed) : nullptr;
}

/// Moves a block to new memory. A block that grows gets a quarter more, because it may grow again.
void* move_block(void* pointer, size_t old_bytes, size_t bytes) {
  const bool may_grow_on = bytes > old_bytes && bytes <= SIZE_MAX / 2;
  void* memory = may_grow_on ? block_of(bytes + bytes / 4) : nullptr;
  if (memory == nullptr) memory = malloc(bytes);
  if (memory == nullptr) return nullptr;
  std::memcpy(memory, pointer, std::min(old_bytes, bytes));
  free(pointer);
  return memory;
}

}  // namespace

TUTTI_REPLACES void* malloc(size_t bytes) noexcept {
  void* const block = block_of(bytes);
  return block ? block : next_malloc().malloc(bytes);
}

TUTTI_REPLACES void free(void* pointer) noexcept {
  if (blocks.holds(pointer)) return blocks.free(pointer);
  next_malloc().free(pointer);
}

TUTTI_REPLACES void* calloc(size_t count, size_t bytes) noexcept {
  size_t all = 0;
  void* const block = __builtin_mul_overflow(count, bytes, &all) ? nullptr : block_of(all, 1, true);
  return block ? block : next_malloc().calloc(count, bytes);
}

TUTTI_REPLACES void* realloc(void* pointer, size_t bytes) noexcept {
  if (pointer == nullptr) return malloc(bytes);
  if (blocks.holds(pointer)) {
    if (bytes == 0) {
      blocks.free(pointer);
      return nullptr;
    }
    const size_t old = blocks.bytes_of(pointer);
    const bool stays = bytes <= old ? bytes >= old / 2 : blocks.grow(pointer, bytes);
    return stays ? pointer : move_block(pointer, old, bytes);
  }
  if (void* const block = block_of(bytes)) {
    std::memcpy(block, pointer, std::min(next_malloc().malloc_usable_size(pointer), bytes));
    next_malloc().free(pointer);
    return block;
  }
  return next_malloc().realloc(pointer, bytes);
}

TUTTI_REPLACES void* memalign(size_t alignment, size_t bytes) noexcept {
  void* const block = block_of(bytes, alignment);
  return block ? block : next_malloc().memalign(alignment, bytes);
}

TUTTI_REPLACES void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  void* const block = std::has_single_bit(alignment) ? block_of(bytes, alignment) : nullptr;
  return block ? block : next_malloc().aligned_alloc(alignment, bytes);
}

TUTTI_REPLACES int posix_memalign(void** pointer, size_t alignment, size_t bytes) noexcept {
  if (std::has_single_bit(alignment) && alignment % sizeof(void*) == 0) {
    if (void* const block = block_of(bytes, alignment)) {
      *pointer = block;
      return 0;
    }
  }
  return next_malloc().posix_memalign(pointer, alignment, bytes);
}

TUTTI_REPLACES void* valloc(size_t bytes) noexcept {
  return memalign(kBlockAlignment, bytes);
}

TUTTI_REPLACES void* pvalloc(size_t bytes) noexcept {
  const size_t pages = bytes / kBlockAlignment + (bytes % kBlockAlignment != 0);
  if (pages <= SIZE_MAX / kBlockAlignment) return memalign(kBlockAlignment, pages * kBlockAlignment);
  errno = ENOMEM;
  return nullptr;
}

TUTTI_REPLACES size_t malloc_usable_size(void* pointer) noexcept {
  return blocks.holds(pointer) ? blocks.bytes_of(pointer) : next_malloc().malloc_usable_size(pointer);
}

// Of C23. glibc's own versions know only glibc's memory.
TUTTI_REPLACES void free_sized(void* pointer, size_t) noexcept {
  free(pointer);
}

TUTTI_REPLACES void free_aligned_sized(void* pointer, size_t, size_t) noexcept {
  free(pointer);
}
