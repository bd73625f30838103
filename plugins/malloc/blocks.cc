#include "blocks.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory_resource>
#include <new>

#include "next_malloc.h"

namespace tutti::preload {
namespace {

/// glibc maps blocks from this size on by themselves.
constexpr size_t kDefaultLeastBytes = 128 << 10;
constexpr size_t kNever = SIZE_MAX;

/// free() must not change errno.
class KeptErrno {
 public:
  KeptErrno() = default;
  ~KeptErrno() { errno = value_; }

 private:
  const int value_ = errno;
};

/// Reads a number of bytes. Returns nothing if the variable is not set. Reports an invalid number, and
/// returns `otherwise`.
std::optional<size_t> read_bytes(const char* name, size_t otherwise) {
  const char* const text = getenv(name);
  if (text == nullptr || *text == 0) return std::nullopt;
  size_t bytes = 0;
  for (const char* at = text; *at != 0; ++at) {
    const bool is_digit = *at >= '0' && *at <= '9';
    if (!is_digit || __builtin_mul_overflow(bytes, 10, &bytes) ||
        __builtin_add_overflow(bytes, static_cast<size_t>(*at - '0'), &bytes)) {
      say("TUTTI_MALLOC_BYTES and TUTTI_HEAP_BYTES must be numbers of bytes. No memory is shared");
      return otherwise;
    }
  }
  return bytes;
}

/// Whole mappings.
class Mappings : public std::pmr::memory_resource {
  void* do_allocate(size_t bytes, size_t) override {
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return memory;
  }
  void do_deallocate(void* memory, size_t bytes, size_t) override { munmap(memory, bytes); }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
};

/// Memory of the heap's tables, which are used with the mutex: the next allocator's locks may be held by a
/// thread that waits for the mutex in fork(). Never destroyed.
std::pmr::memory_resource* table_memory() {
  static auto* const kMappings = new Mappings;
  return new std::pmr::unsynchronized_pool_resource(kMappings);
}

size_t read_least_bytes() {
  const size_t bytes = read_bytes("TUTTI_MALLOC_BYTES", 0).value_or(kDefaultLeastBytes);
  return bytes == 0 ? kNever : std::max(bytes, kLeastBlockBytes);
}

}  // namespace

constinit Blocks blocks;

void say(const char* text) {
  for (const char* part : {"tutti: libtutti_malloc.so: ", text, "\n"}) {
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
}

void end_process(const char* text) {
  say(text);
  abort();
}

std::optional<SpareBlocks::Block> SpareBlocks::take(size_t bytes) {
  const size_t most = SymmetricHeap::rounded(bytes) / 4 * 5;
  size_t best = count_;
  for (size_t i = 0; i < count_; ++i) {
    const size_t there = blocks_[i].bytes;
    if (there >= bytes && there <= most && (best == count_ || there < blocks_[best].bytes)) best = i;
  }
  return best == count_ ? std::nullopt : std::optional(remove(best));
}

void SpareBlocks::add(Block block) {
  blocks_[count_++] = block;
  bytes_ += block.bytes;
}

bool SpareBlocks::has(const void* address) const {
  return std::any_of(blocks_.begin(), blocks_.begin() + count_,
                     [address](const Block& one) { return one.address == address; });
}

SpareBlocks::Block SpareBlocks::remove(size_t index) {
  const Block block = blocks_[index];
  std::copy(blocks_.begin() + index + 1, blocks_.begin() + count_, blocks_.begin() + index);
  --count_;
  bytes_ -= block.bytes;
  return block;
}

bool Blocks::is_large(size_t bytes) {
  size_t least = least_bytes_.load(std::memory_order_relaxed);
  if (least == 0) {
    least = read_least_bytes();
    least_bytes_.store(least, std::memory_order_relaxed);
  }
  return least != kNever && bytes >= least;
}

/// With the mutex.
bool Blocks::has_heap() {
  if (state_ == State::kNotYet) make_heap();
  return state_ == State::kOwn;
}

void Blocks::make_heap() {
  state_ = State::kNone;
  if (sysconf(_SC_PAGESIZE) != long{kBlockAlignment}) return;  // the heap counts pages of 4 KiB
  static_cast<void>(next_malloc());                            // registers the fork handlers
  const auto wanted = read_bytes("TUTTI_HEAP_BYTES", kNever);
  if (wanted == kNever || !has_fork_handlers_.load(std::memory_order_acquire)) return;
  auto heap = wanted.value_or(0) == 0 ? SymmetricHeap::create_default(table_memory())
                                      : SymmetricHeap::create(*wanted, table_memory());
  struct stat file {};
  if (!heap || fstat((*heap)->fd(), &file) != 0) return;
  heap_ = *heap;
  device_ = file.st_dev;
  inode_ = file.st_ino;
  // At once, or each allocation would split the mapping.
  madvise(heap_->base(), heap_->bytes(), MADV_HUGEPAGE);
  lent_ = {.version = LentHeap::kVersion,
           .file = heap_->fd(),
           .base = heap_->base(),
           .bytes = heap_->bytes(),
           .allocate = lend_allocate,
           .free = lend_free,
           .find = lend_find,
           .free_count = lend_free_count};
  bytes_.store(heap_->bytes(), std::memory_order_relaxed);
  base_.store(heap_->base(), std::memory_order_release);
  state_ = State::kOwn;
}

bool Blocks::has_file() const {
  struct stat file {};
  return fstat(heap_->fd(), &file) == 0 && file.st_dev == device_ && file.st_ino == inode_;
}

void Blocks::drop_spare(bool all) {
  while (all || spare_.is_over()) {
    const auto block = spare_.take_oldest();
    if (!block) return;
    static_cast<void>(heap_->free(block->address));
  }
}

size_t Blocks::locked_bytes_of(const void* block) const {
  const auto found = heap_->find(block, 1);
  if (!found || found->address != block || spare_.has(block)) {
    end_process("free or realloc of memory that malloc did not return, or that is free already");
  }
  return found->bytes;
}

void* Blocks::allocate(size_t bytes, bool zeroed) try {
  if (!is_large(bytes)) return nullptr;
  const KeptErrno kept;
  std::unique_lock lock(mutex_);
  if (!has_heap() || bytes > heap_->bytes()) return nullptr;
  if (const auto spare = spare_.take(bytes)) {
    lock.unlock();
    return zeroed ? std::memset(spare->address, 0, bytes) : spare->address;
  }
  void* const memory = heap_->try_allocate(bytes);
  if (memory != nullptr) return memory;
  drop_spare(true);
  return heap_->try_allocate(bytes);
} catch (const std::bad_alloc&) {
  return nullptr;
}

size_t Blocks::bytes_of(void* block) {
  const std::scoped_lock lock(mutex_);
  return locked_bytes_of(block);
}

bool Blocks::grow(void* block, size_t bytes) try {
  const KeptErrno kept;
  const std::scoped_lock lock(mutex_);
  static_cast<void>(locked_bytes_of(block));
  return state_ == State::kOwn && heap_->grow(block, bytes);
} catch (const std::bad_alloc&) {
  return false;
}

void Blocks::free(void* block) try {
  const KeptErrno kept;
  const std::scoped_lock lock(mutex_);
  const size_t bytes = locked_bytes_of(block);
  if (state_ == State::kCopy) {
    // Its place stays taken: there are no new blocks.
    madvise(block, bytes, MADV_DONTNEED);
  } else if (bytes > SpareBlocks::kMostBytes) {
    static_cast<void>(heap_->free(block));
  } else {
    spare_.add({static_cast<std::byte*>(block), bytes});
    drop_spare(false);
  }
} catch (const std::bad_alloc&) {
  // The heap's table has no room: the pages are returned, but the addresses stay unused.
}

const LentHeap* Blocks::lend() try {
  if (!is_large(kNever - 1)) return nullptr;
  const std::scoped_lock lock(mutex_);
  return has_heap() && has_file() ? &lent_ : nullptr;
} catch (const std::bad_alloc&) {
  return nullptr;
}

void* Blocks::lend_allocate(size_t bytes) try {
  const std::scoped_lock lock(blocks.mutex_);
  return blocks.heap_->try_allocate(bytes);
} catch (const std::bad_alloc&) {
  return nullptr;
}

bool Blocks::lend_free(void* pointer) try {
  const std::scoped_lock lock(blocks.mutex_);
  return !blocks.spare_.has(pointer) && blocks.heap_->free(pointer).is_ok();
} catch (const std::bad_alloc&) {
  return true;  // as in free()
}

bool Blocks::lend_find(const void* pointer, size_t bytes, void** start, size_t* length, uint64_t* number) {
  const std::scoped_lock lock(blocks.mutex_);
  const auto found = blocks.heap_->find(pointer, bytes);
  if (!found) return false;
  *start = found->address;
  *length = found->bytes;
  *number = found->number;
  return true;
}

uint64_t Blocks::lend_free_count() {
  return blocks.heap_->free_count();
}

extern "C" __attribute__((visibility("default"))) const LentHeap* tutti_lend_heap() {
  return blocks.lend();
}

}  // namespace tutti::preload
