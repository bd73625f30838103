// SharedBlocks: large blocks of malloc in a symmetric heap, so that ranks of this host read and write them
// without a copy.
//
// A block that is freed waits for the next one of its size, for a while, so that a loop does not take its
// pages anew each time. Thread-safe. A forked child gets a copy of all blocks in memory of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>

#include "transports/shm/heap.h"

namespace tutti::preload {

/// Smaller memory always comes from the next allocator.
constexpr size_t kLeastBlockBytes = 64 << 10;
/// The heap aligns its memory to this.
constexpr size_t kBlockAlignment = 4096;

/// Null: the next allocator serves this size. `zeroed` as for calloc.
void* allocate_block(size_t bytes, bool zeroed);
/// Whether a block lies, or has lain, here. Two loads.
bool is_block(const void* pointer);
/// The bytes of a live block. What is_block() says yes to, but is none: ends the process with a message.
size_t block_bytes(void* block);
void free_block(void* block);

}  // namespace tutti::preload
