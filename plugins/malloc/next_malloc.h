// NextMalloc: the allocator that this library stands in front of: the next one that the loader finds, such as
// glibc's or jemalloc.
#pragma once

#include <cstddef>

namespace tutti::preload {

struct NextMalloc {
  void* (*malloc)(size_t);
  void (*free)(void*);
  void* (*calloc)(size_t, size_t);
  void* (*realloc)(void*, size_t);
  void* (*memalign)(size_t, size_t);
  int (*posix_memalign)(void**, size_t, size_t);
  void* (*aligned_alloc)(size_t, size_t);
  size_t (*malloc_usable_size)(void*);
};

/// Looked up at the first call. While that look-up lasts, the functions serve a few KiB of their own.
const NextMalloc& next_malloc();

}  // namespace tutti::preload
