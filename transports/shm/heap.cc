#include "transports/shm/heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace tutti {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugeBytes = 2u << 20;
constexpr int kHighDescriptor = 256;

// Where address space is short, the heap shrinks by this factor, down to this size.
constexpr size_t kShrink = 16;
constexpr size_t kLeastBytes = 64u << 20;
constexpr size_t kMostBytes = size_t{1} << 46;

/// SIZE_MAX without a limit.
size_t addresses_left() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const size_t taken = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return limit.rlim_cur > taken ? limit.rlim_cur - taken : 0;
}

/// The longest file that this process may make; SIZE_MAX without a limit. To make a longer one raises
/// SIGXFSZ.
size_t most_file_bytes() {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? SIZE_MAX : limit.rlim_cur;
}

size_t round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

Status name_setting(const Status& why) {
  return {why.code(),
          format("%s; TUTTI_HEAP_BYTES sets how much address space the heap of tutti_mem_alloc takes",
                 std::string(why.text()).c_str())};
}

}  // namespace

size_t SymmetricHeap::default_bytes(size_t physical, size_t addresses, size_t cores) {
  // Half of what a process has with page tables of four levels.
  constexpr size_t kAddresses = size_t{1} << 46;
  constexpr size_t kFewestHeaps = 64;
  return std::min(physical, std::min(addresses, kAddresses) / std::max(kFewestHeaps, 2 * cores));
}

Result<SymmetricHeap*> SymmetricHeap::create(size_t bytes, std::pmr::memory_resource* memory) {
  const size_t wanted = bytes > kMostBytes ? bytes : round_up(std::max<size_t>(bytes, 1), kHugeBytes);
  if (wanted > std::min(kMostBytes, most_file_bytes())) {
    const char* const limit = bytes > kMostBytes ? "2^46 bytes" : "the limit of file sizes (ulimit -f)";
    return name_setting({Code::kOutOfMemory, format("a heap of %zu bytes exceeds %s", wanted, limit)});
  }
  bytes = wanted;
  auto sparse = create_sparse_memory("tutti-heap");
  TUTTI_TRY(sparse.status());
  const Status sized = resize_memory(sparse->file, bytes);
  if (!sized) return name_setting(sized);
  auto mapping = map_memory(sparse->file, bytes);
  if (!mapping) return name_setting(mapping.status());
  auto* heap = new SymmetricHeap(memory);
  heap->file_ = std::move(sparse->file);
  // Programs and scripts use low numbers as they like.
  const int high = fcntl(heap->file_.get(), F_DUPFD_CLOEXEC, kHighDescriptor);
  if (high >= 0) heap->file_ = FileDescriptor(high);
  heap->is_limited_ = sparse->is_limited;
  heap->mapping_ = std::move(*mapping);
  heap->base_ = heap->mapping_.base();
  heap->bytes_ = bytes;
  heap->free_.emplace(0, bytes);
  return heap;
}

Result<SymmetricHeap*> SymmetricHeap::create_default(std::pmr::memory_resource* memory) {
  const size_t physical =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_t bytes =
      default_bytes(physical, addresses_left(), static_cast<size_t>(sysconf(_SC_NPROCESSORS_CONF)));
  bytes = std::min(bytes, most_file_bytes() / kHugeBytes * kHugeBytes);
  auto heap = create(bytes, memory);
  // A lack of address space must not stop programs that never use the heap.
  while (!heap && bytes > kLeastBytes) {
    bytes /= kShrink;
    heap = create(bytes, memory);
  }
  return heap;
}

SymmetricHeap* SymmetricHeap::borrow(const LentHeap& lent) {
  auto* heap = new SymmetricHeap(std::pmr::get_default_resource());
  heap->lent_ = &lent;
  heap->base_ = static_cast<std::byte*>(lent.base);
  heap->bytes_ = lent.bytes;
  return heap;
}

size_t SymmetricHeap::rounded(size_t bytes) {
  // Large allocations get whole huge pages where the kernel has them: a peer maps each as one entry.
  return round_up(bytes, bytes >= kHugeBytes ? kHugeBytes : kPageBytes);
}

Result<void*> SymmetricHeap::allocate(size_t bytes) {
  void* const memory = try_allocate(bytes);
  return memory ? Result<void*>(memory) : out_of_memory(bytes);
}

void* SymmetricHeap::try_allocate(size_t bytes) {
  if (lent_) return lent_->allocate(bytes);
  const size_t unit = bytes >= kHugeBytes ? kHugeBytes : kPageBytes;
  const bool overflows = bytes > bytes_;
  const size_t wanted = overflows ? 0 : rounded(bytes);
  const std::scoped_lock lock(mutex_);
  for (auto it = free_.begin(); !overflows && it != free_.end(); ++it) {
    const size_t start = round_up(it->first, unit);
    const size_t end = it->first + it->second;
    if (start + wanted > end) continue;
    if (is_limited_ && !take_pages(file_, start, wanted)) return nullptr;
    std::byte* address = base_ + start;
    const size_t before = start - it->first;
    const size_t after = end - start - wanted;
    // What may throw comes first.
    const auto used =
        used_.emplace(start, Allocation{.address = address, .bytes = wanted, .number = ++last_number_});
    try {
      if (before > 0 && after > 0) free_.emplace(start + wanted, after);
    } catch (...) {
      used_.erase(used.first);
      throw;
    }
    if (before > 0) {
      it->second = before;
    } else {
      auto hole = free_.extract(it);
      hole.key() = start + wanted;
      hole.mapped() = after;
      if (after > 0) free_.insert(std::move(hole));
    }
    used_count_.store(used_.size(), std::memory_order_relaxed);
    if (unit == kHugeBytes) madvise(address, wanted, MADV_HUGEPAGE);
    return address;
  }
  return nullptr;
}

Status SymmetricHeap::out_of_memory(size_t bytes) const {
  if (lent_) {
    return {Code::kOutOfMemory,
            format("the symmetric heap, which libtutti_malloc.so uses for large memory of malloc, cannot "
                   "give %zu bytes of its %zu; TUTTI_HEAP_BYTES sets its size",
                   bytes, bytes_)};
  }
  const std::scoped_lock lock(mutex_);
  size_t total = 0;
  for (const auto& [offset, length] : free_) total += length;
  return {Code::kOutOfMemory,
          format("the symmetric heap cannot give %zu bytes: %zu of %zu are free, in %zu pieces; "
                 "TUTTI_HEAP_BYTES sets its size",
                 bytes, total, bytes_, free_.size())};
}

std::optional<SymmetricHeap::Allocation> SymmetricHeap::find(const void* pointer, size_t bytes) const {
  if (!contains(pointer, bytes)) return std::nullopt;
  if (lent_) {
    void* address = nullptr;
    Allocation one;
    if (!lent_->find(pointer, bytes, &address, &one.bytes, &one.number)) return std::nullopt;
    one.address = static_cast<std::byte*>(address);
    return one;
  }
  const auto* const start = static_cast<const std::byte*>(pointer);
  const std::scoped_lock lock(mutex_);
  auto next = used_.upper_bound(static_cast<size_t>(start - base_));
  if (next == used_.begin()) return std::nullopt;
  const Allocation& one = std::prev(next)->second;
  const auto offset = static_cast<size_t>(start - one.address);
  return offset <= one.bytes && bytes <= one.bytes - offset ? std::optional(one) : std::nullopt;
}

Status SymmetricHeap::free(void* pointer) {
  const auto unknown = [pointer] {
    return Status(
        Code::kInvalidArgument,
        format("pointer %p is not memory from tutti_mem_alloc, or tutti_mem_free has freed it already",
               pointer));
  };
  if (lent_) return lent_->free(pointer) ? Status::ok() : unknown();
  const std::scoped_lock lock(mutex_);
  const auto offset = static_cast<size_t>(static_cast<std::byte*>(pointer) - base_);
  const auto found = used_.find(offset);
  if (found == used_.end()) return unknown();
  size_t bytes = found->second.bytes;
  used_.erase(found);
  used_count_.store(used_.size(), std::memory_order_relaxed);
  free_count_.fetch_add(1, std::memory_order_release);
  // Returns the pages to the system. The next touch finds zeros. The system refuses this for locked pages.
  bool is_zero = madvise(pointer, bytes, MADV_REMOVE) == 0;
  if (!is_zero && munlock(pointer, bytes) == 0) is_zero = madvise(pointer, bytes, MADV_REMOVE) == 0;
  if (!is_zero) std::memset(pointer, 0, bytes);
  auto next = free_.lower_bound(offset);
  decltype(free_)::node_type hole;
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    hole = free_.extract(next++);
  }
  const auto previous = next == free_.begin() ? free_.end() : std::prev(next);
  if (previous != free_.end() && previous->first + previous->second == offset) {
    previous->second += bytes;
  } else if (hole) {
    hole.key() = offset;
    hole.mapped() = bytes;
    free_.insert(std::move(hole));
  } else {
    free_.emplace(offset, bytes);
  }
  return Status::ok();
}

bool SymmetricHeap::grow(void* pointer, size_t bytes) {
  const std::scoped_lock lock(mutex_);
  const auto found = used_.find(static_cast<size_t>(static_cast<std::byte*>(pointer) - base_));
  if (found == used_.end() || bytes > bytes_) return false;
  const size_t end = found->first + found->second.bytes;
  const size_t length = round_up(bytes, kPageBytes);
  if (length <= found->second.bytes) return true;
  const size_t wanted = length - found->second.bytes;
  const auto hole = free_.find(end);
  if (hole == free_.end() || hole->second < wanted) return false;
  if (is_limited_ && !take_pages(file_, end, wanted)) return false;
  found->second.bytes += wanted;
  auto rest = free_.extract(hole);
  rest.key() += wanted;
  rest.mapped() -= wanted;
  if (rest.mapped() > 0) free_.insert(std::move(rest));
  return true;
}

}  // namespace tutti
