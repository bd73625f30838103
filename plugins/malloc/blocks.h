// Blocks: large memory of malloc, in a symmetric heap, so that ranks of this host read and write it without a
// copy. There is one object per process. It has a constant initializer, because malloc is called before
// constructors run.
//
// A freed block waits for the next one of its size, so that a loop does not take its pages anew each time.
// Thread-safe. Nothing here throws or changes errno.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <mutex>
#include <optional>

#include "transports/shm/heap.h"
#include "transports/shm/lent_heap.h"

namespace tutti::preload {

/// Smaller memory always comes from the next allocator.
constexpr size_t kLeastBlockBytes = 64 << 10;
constexpr size_t kBlockAlignment = 4096;

/// Prints one line on standard error.
void say(const char* text);
[[noreturn]] void end_process(const char* text);

/// Freed blocks that wait for their next use, the oldest first.
class SpareBlocks {
 public:
  struct Block {
    std::byte* address = nullptr;
    size_t bytes = 0;
  };
  static constexpr size_t kMostBytes = 256 << 20;

  /// The smallest one that has `bytes` and at most a quarter more than a new one would take.
  std::optional<Block> take(size_t bytes);
  void add(Block block);
  bool has(const void* address) const;
  std::optional<Block> take_oldest() { return count_ > 0 ? std::optional(remove(0)) : std::nullopt; }
  bool is_over() const { return count_ == kMostBlocks || bytes_ > kMostBytes; }

 private:
  static constexpr size_t kMostBlocks = 32;
  Block remove(size_t index);

  std::array<Block, kMostBlocks> blocks_{};
  size_t count_ = 0;
  size_t bytes_ = 0;
};

class Blocks {
 public:
  /// Null: the next allocator serves this size. `zeroed` as for calloc.
  void* allocate(size_t bytes, bool zeroed);
  /// Whether a block lies, or has lain, here. Takes no lock.
  bool holds(const void* pointer) const {
    const std::byte* const base = base_.load(std::memory_order_acquire);
    return base != nullptr && static_cast<size_t>(static_cast<const std::byte*>(pointer) - base) <
                                  bytes_.load(std::memory_order_relaxed);
  }
  // The process ends with a message if no block begins at `block`.
  size_t bytes_of(void* block);
  /// Makes a block longer in place. False: there is no room behind it.
  bool grow(void* block, size_t bytes);
  void free(void* block);
  /// Null: this process has no blocks. Makes the heap if need be.
  const LentHeap* lend();

  // Handlers of fork(), in forking.cc.
  void set_fork_handlers();
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

 private:
  enum class State {
    kNotYet,  ///< no heap was needed
    kNone,    ///< there can be no heap
    kOwn,
    kCopy,  ///< of the parent's blocks, after a fork: no new ones
  };
  enum Fork : int { kRead = 0, kWrite = 1 };

  bool is_large(size_t bytes);
  bool has_heap();
  void make_heap();
  bool has_file() const;
  void drop_spare(bool all);
  size_t locked_bytes_of(const void* block) const;
  void end_fork(bool has_own);
  void copy_for_child();
  void copy_block(const SymmetricHeap::Allocation& block, bool reads_file) const;

  static void* lend_allocate(size_t bytes);
  static bool lend_free(void* pointer);
  static bool lend_find(const void* pointer, size_t bytes, void** start, size_t* length, uint64_t* number);
  static uint64_t lend_free_count();

  std::mutex mutex_;
  // Guarded by mutex_.
  State state_ = State::kNotYet;
  SymmetricHeap* heap_ = nullptr;
  dev_t device_ = 0;  ///< of the heap's file: a program may have closed the descriptor
  ino_t inode_ = 0;
  SpareBlocks spare_;
  LentHeap lent_{};
  std::array<int, 2> pipe_{-1, -1};  ///< during a fork
  sigset_t signals_{};               ///< the forking thread's
  int cancellation_ = 0;             ///< the same

  std::atomic<bool> has_fork_handlers_{false};
  std::atomic<size_t> least_bytes_{0};  ///< 0: not read yet
  std::atomic<std::byte*> base_{nullptr};
  std::atomic<size_t> bytes_{0};
};

extern Blocks blocks;

}  // namespace tutti::preload
