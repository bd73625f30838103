#include "shared_blocks.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "transports/shm/lent_heap.h"

namespace tutti::preload {
namespace {

/// glibc maps blocks from this size on by themselves.
constexpr size_t kDefaultLeastBytes = 128 << 10;

void say(const char* text) {
  for (const char* part : {"tutti: libtutti_malloc.so: ", text, "\n"}) {
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
}

[[noreturn]] void end_process(const char* text) {
  say(text);
  abort();
}

/// TUTTI_MALLOC_BYTES; SIZE_MAX: no blocks.
size_t read_least_bytes() {
  const char* const text = getenv("TUTTI_MALLOC_BYTES");
  if (text == nullptr || *text == 0) return kDefaultLeastBytes;
  char* end = nullptr;
  const unsigned long long bytes = strtoull(text, &end, 10);
  if (*end != 0 || *text == '-')
    end_process("TUTTI_MALLOC_BYTES must be a number of bytes, or 0 for no blocks");
  return bytes == 0 ? SIZE_MAX : std::max<size_t>(bytes, kLeastBlockBytes);
}

/// Freed blocks that wait for their next use, the oldest first.
class SpareBlocks {
 public:
  struct Block {
    std::byte* address = nullptr;
    size_t bytes = 0;
  };

  /// The smallest one that has `bytes` and at most a quarter more than a new one would take.
  std::optional<Block> take(size_t bytes) {
    const size_t most = SymmetricHeap::rounded(bytes) / 4 * 5;
    size_t best = count_;
    for (size_t i = 0; i < count_; ++i) {
      const size_t there = blocks_[i].bytes;
      if (there >= bytes && there <= most && (best == count_ || there < blocks_[best].bytes)) best = i;
    }
    return best == count_ ? std::nullopt : std::optional(remove(best));
  }
  void add(Block block) {
    blocks_[count_++] = block;
    bytes_ += block.bytes;
  }
  /// The oldest one, while there are too many, or always.
  std::optional<Block> drop(bool all) {
    const bool is_over = all ? count_ > 0 : count_ == kBlocks || bytes_ > kBytes;
    return is_over ? std::optional(remove(0)) : std::nullopt;
  }

 private:
  static constexpr size_t kBlocks = 32;
  static constexpr size_t kBytes = 256 << 20;

  Block remove(size_t index) {
    const Block block = blocks_[index];
    std::copy(blocks_.begin() + index + 1, blocks_.begin() + count_, blocks_.begin() + index);
    --count_;
    bytes_ -= block.bytes;
    return block;
  }

  std::array<Block, kBlocks> blocks_{};
  size_t count_ = 0;
  size_t bytes_ = 0;
};

struct State {
  std::mutex mutex;
  SymmetricHeap* heap = nullptr;  ///< guarded by mutex
  SpareBlocks spare;
  LentHeap lent{};
  bool has_tried = false;
  bool has_handlers = false;
  bool is_copy = false;  ///< the heap holds a copy of the parent's blocks: no new blocks
  int pipe[2] = {-1, -1};
  std::atomic<size_t> least_bytes{0};  ///< 0: not read yet
  std::atomic<std::byte*> base{nullptr};
  std::atomic<size_t> bytes{0};
};

// malloc is called before constructors run.
constinit State state;

void drop_spare_blocks(bool all) {
  while (const auto block = state.spare.drop(all)) (void)state.heap->free(block->address);
}

/// No other thread is in the heap while it is forked. The parent waits until the child has its copy.
void before_fork() {
  state.mutex.lock();
  if (state.heap == nullptr || state.is_copy) return;
  drop_spare_blocks(true);
  if (state.heap->is_empty() || pipe2(state.pipe, O_CLOEXEC) == 0) return;
  say("fork: no descriptors for a pipe, so the child may see what its parent writes meanwhile");
}

void close_end(int& end) {
  close(end);
  end = -1;
}

void after_fork_in_parent() {
  if (state.pipe[0] != -1) {
    close_end(state.pipe[1]);
    char byte = 0;
    // Ends when the child closes its end or dies.
    while (read(state.pipe[0], &byte, 1) < 0 && errno == EINTR) {
    }
    close_end(state.pipe[0]);
  }
  state.mutex.unlock();
}

/// The file shows what the parent writes from now on. So the child reads what is there now.
void copy_blocks() {
  const int file = state.heap->fd();
  std::byte* const base = state.heap->base();
  if (mmap(base, state.heap->bytes(), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED) {
    end_process("fork: no memory of its own for the child");
  }
  off_t end = 0;
  for (off_t start = lseek(file, 0, SEEK_DATA); start >= 0; start = lseek(file, end, SEEK_DATA)) {
    end = lseek(file, start, SEEK_HOLE);
    while (start < end) {
      const ssize_t got = pread(file, base + start, static_cast<size_t>(end - start), start);
      if (got <= 0 && errno != EINTR) end_process("fork: the child cannot read its parent's blocks");
      start += std::max<ssize_t>(got, 0);
    }
  }
}

void after_fork_in_child() {
  if (state.heap != nullptr && state.heap->is_empty()) {
    // This process makes a heap of its own when it needs one, by its own settings.
    state.least_bytes.store(0, std::memory_order_relaxed);
    state.base.store(nullptr, std::memory_order_relaxed);
    delete std::exchange(state.heap, nullptr);
    state.has_tried = false;
    state.is_copy = false;
  } else if (state.heap != nullptr && !state.is_copy) {
    copy_blocks();
    state.is_copy = true;
  }
  for (int& end : state.pipe) {
    if (end != -1) close_end(end);
  }
  state.mutex.unlock();
}

void* heap_allocate(size_t bytes) {
  const std::scoped_lock lock(state.mutex);
  auto memory = state.heap->allocate(bytes);
  return memory ? *memory : nullptr;
}

bool heap_free(void* pointer) {
  const std::scoped_lock lock(state.mutex);
  return state.heap->free(pointer).is_ok();
}

bool heap_find(const void* pointer, size_t bytes, void** start, size_t* length, uint64_t* number) {
  const std::scoped_lock lock(state.mutex);
  const auto found = state.heap->find(pointer, bytes);
  if (!found) return false;
  *start = found->address;
  *length = found->bytes;
  *number = found->number;
  return true;
}

uint64_t heap_free_count() {
  return state.heap->free_count();
}

/// With the mutex. False: there are no blocks.
bool has_heap() {
  if (state.has_tried) return state.heap != nullptr && !state.is_copy;
  state.has_tried = true;
  const char* const wanted = getenv("TUTTI_HEAP_BYTES");
  const size_t bytes = wanted == nullptr ? 0 : strtoull(wanted, nullptr, 10);
  auto heap = bytes == 0 ? SymmetricHeap::create_default() : SymmetricHeap::create(bytes);
  if (!heap) return false;
  if (!state.has_handlers && pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0) {
    delete *heap;
    return false;
  }
  state.has_handlers = true;
  state.heap = *heap;
  state.lent = {.version = LentHeap::kVersion,
                .file = state.heap->fd(),
                .base = state.heap->base(),
                .bytes = state.heap->bytes(),
                .allocate = heap_allocate,
                .free = heap_free,
                .find = heap_find,
                .free_count = heap_free_count};
  state.bytes.store(state.heap->bytes(), std::memory_order_relaxed);
  state.base.store(state.heap->base(), std::memory_order_release);
  return true;
}

/// With the mutex.
size_t locked_block_bytes(void* block) {
  const auto found = state.heap->find(block, 1);
  if (!found || found->address != block) end_process("free or realloc of memory that malloc did not return");
  return found->bytes;
}

bool is_large(size_t bytes) {
  size_t least = state.least_bytes.load(std::memory_order_relaxed);
  if (least == 0) {
    least = read_least_bytes();
    state.least_bytes.store(least, std::memory_order_relaxed);
  }
  return bytes >= least;
}

}  // namespace

void* allocate_block(size_t bytes, bool zeroed) {
  if (!is_large(bytes)) return nullptr;
  const std::scoped_lock lock(state.mutex);
  if (!has_heap() || bytes > state.heap->bytes()) return nullptr;
  if (const auto spare = state.spare.take(bytes)) {
    return zeroed ? std::memset(spare->address, 0, bytes) : spare->address;
  }
  auto memory = state.heap->allocate(bytes);
  return memory ? *memory : nullptr;
}

bool is_block(const void* pointer) {
  const std::byte* const base = state.base.load(std::memory_order_acquire);
  return base != nullptr && static_cast<size_t>(static_cast<const std::byte*>(pointer) - base) <
                                state.bytes.load(std::memory_order_relaxed);
}

size_t block_bytes(void* block) {
  const std::scoped_lock lock(state.mutex);
  return locked_block_bytes(block);
}

void free_block(void* block) {
  const std::scoped_lock lock(state.mutex);
  const size_t bytes = locked_block_bytes(block);
  if (state.is_copy) {
    madvise(block, bytes, MADV_DONTNEED);
    (void)state.heap->free(block);
    return;
  }
  state.spare.add({static_cast<std::byte*>(block), bytes});
  drop_spare_blocks(false);
}

extern "C" __attribute__((visibility("default"))) const LentHeap* tutti_lend_heap() {
  const std::scoped_lock lock(state.mutex);
  return is_large(SIZE_MAX - 1) && has_heap() ? &state.lent : nullptr;
}

}  // namespace tutti::preload
