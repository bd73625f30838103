#include "transports/shm/heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <string>

namespace tutti {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugeBytes = 2u << 20;

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

Result<SymmetricHeap*> SymmetricHeap::create(size_t bytes) {
  bytes = round_up(bytes, kHugeBytes);
  auto sparse = create_sparse_memory("tutti-heap");
  TUTTI_TRY(sparse.status());
  const Status sized = resize_memory(sparse->file, bytes);
  if (!sized) return name_setting(sized);
  auto mapping = map_memory(sparse->file, bytes);
  if (!mapping) return name_setting(mapping.status());
  auto* heap = new SymmetricHeap;
  heap->file_ = std::move(sparse->file);
  heap->is_limited_ = sparse->is_limited;
  heap->mapping_ = std::move(*mapping);
  heap->free_.emplace(0, bytes);
  return heap;
}

Result<void*> SymmetricHeap::allocate(size_t bytes) {
  // Large allocations get whole huge pages where the kernel has them: a peer maps each as one entry.
  const size_t unit = bytes >= kHugeBytes ? kHugeBytes : kPageBytes;
  const bool overflows = bytes > mapping_.bytes();
  const size_t wanted = overflows ? 0 : round_up(bytes, unit);
  const std::scoped_lock lock(mutex_);
  for (auto it = free_.begin(); !overflows && it != free_.end(); ++it) {
    const size_t start = round_up(it->first, unit);
    const size_t end = it->first + it->second;
    if (start + wanted > end) continue;
    if (is_limited_) TUTTI_TRY(take_pages(file_, start, wanted));
    const size_t before = start - it->first;
    const size_t after = end - start - wanted;
    const size_t hole = it->first;
    free_.erase(it);
    if (before > 0) free_.emplace(hole, before);
    if (after > 0) free_.emplace(start + wanted, after);
    std::byte* address = mapping_.base() + start;
    used_.emplace(start, Allocation{.address = address, .bytes = wanted, .number = ++last_number_});
    used_count_.store(used_.size(), std::memory_order_relaxed);
    if (unit == kHugeBytes) madvise(address, wanted, MADV_HUGEPAGE);
    return static_cast<void*>(address);
  }
  size_t total = 0;
  for (const auto& [offset, length] : free_) total += length;
  return Status(Code::kOutOfMemory,
                format("the symmetric heap cannot give %zu bytes: %zu of %zu are free, in %zu pieces; "
                       "TUTTI_HEAP_BYTES sets its size",
                       bytes, total, mapping_.bytes(), free_.size()));
}

std::optional<SymmetricHeap::Allocation> SymmetricHeap::find(const void* pointer, size_t bytes) const {
  if (!contains(pointer, bytes)) return std::nullopt;
  const auto* const start = static_cast<const std::byte*>(pointer);
  const std::scoped_lock lock(mutex_);
  auto next = used_.upper_bound(static_cast<size_t>(start - mapping_.base()));
  if (next == used_.begin()) return std::nullopt;
  const Allocation& one = std::prev(next)->second;
  const auto offset = static_cast<size_t>(start - one.address);
  return offset <= one.bytes && bytes <= one.bytes - offset ? std::optional(one) : std::nullopt;
}

Status SymmetricHeap::free(void* pointer) {
  const std::scoped_lock lock(mutex_);
  const auto offset = static_cast<size_t>(static_cast<std::byte*>(pointer) - mapping_.base());
  const auto found = used_.find(offset);
  if (found == used_.end()) {
    return {Code::kInvalidArgument,
            format("pointer %p is not memory from tutti_mem_alloc, or tutti_mem_free has freed it already",
                   pointer)};
  }
  size_t bytes = found->second.bytes;
  used_.erase(found);
  used_count_.store(used_.size(), std::memory_order_relaxed);
  free_count_.fetch_add(1, std::memory_order_release);
  // Returns the pages to the system. The next touch finds zeros.
  madvise(pointer, bytes, MADV_REMOVE);
  size_t start = offset;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == start) {
      start = previous->first;
      bytes += previous->second;
      free_.erase(previous);
    }
  }
  free_.emplace(start, bytes);
  return Status::ok();
}

}  // namespace tutti
