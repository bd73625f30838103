// LentHeap: how libtutti_malloc.so, once preloaded, lends its symmetric heap to the tutti of the same
// process.
//
// The two libraries may come from different builds. So the interface uses C types and has a version.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {
extern "C" {

struct LentHeap {
  static constexpr uint32_t kVersion = 1;

  uint32_t version;
  int file;  ///< as SymmetricHeap::fd
  void* base;
  size_t bytes;
  void* (*allocate)(size_t bytes);  ///< zeroed, aligned to 4,096 bytes; null: no room
  bool (*free)(void* pointer);      ///< false: not the start of a live allocation
  /// The live allocation that holds all these bytes, as SymmetricHeap::find. False: none.
  bool (*find)(const void* pointer, size_t bytes, void** start, size_t* length, uint64_t* number);
  uint64_t (*free_count)();
};

/// Exported by libtutti_malloc.so. Null where this process has no such heap.
using LendHeap = const LentHeap*();
constexpr const char* kLendHeapName = "tutti_lend_heap";

}  // extern "C"
}  // namespace tutti
