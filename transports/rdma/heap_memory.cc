#include "transports/rdma/heap_memory.h"

#include <utility>

namespace tutti::rdma {

const Region* HeapMemory::find(const Verbs& verbs, const Device& device, const std::byte* address,
                               size_t bytes) {
  if (is_empty() || !heap_->contains(address, bytes)) return nullptr;
  // Other memory may lie there since. The device would still reach the old pages.
  drop_freed();
  const auto holds = [&](const SymmetricHeap::Allocation& one) {
    return address >= one.address && address + bytes <= one.address + one.bytes;
  };
  for (const Entry& entry : entries_) {
    if (entry.device == &device && holds(entry.allocation))
      return entry.region.is_open() ? &entry.region : nullptr;
  }
  const auto allocation = heap_->find(address, bytes);
  if (!allocation) return nullptr;
  const Entry& entry = add(verbs, device, *allocation);
  return entry.region.is_open() ? &entry.region : nullptr;
}

/// A refused allocation is not tried again: each try is a system call.
HeapMemory::Entry& HeapMemory::add(const Verbs& verbs, const Device& device,
                                   const SymmetricHeap::Allocation& allocation) {
  Entry entry{.allocation = allocation, .device = &device};
  if (budget_.left_bytes >= least_left_bytes_ && allocation.bytes <= budget_.left_bytes - least_left_bytes_) {
    auto region = Region::make(verbs, device.domain(), allocation.address, allocation.bytes,
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (region) {
      entry.region = std::move(*region);
      budget_.left_bytes -= allocation.bytes;
    }
  }
  return entries_.emplace_back(std::move(entry));
}

void HeapMemory::drop() {
  // Before the look at the heap: what is freed meanwhile is found by the next call.
  free_count_ = heap_->free_count();
  std::erase_if(entries_, [this](const Entry& entry) {
    const auto now = heap_->find(entry.allocation.address, entry.allocation.bytes);
    const bool is_live = now && now->number == entry.allocation.number;
    if (!is_live && entry.region.is_open()) budget_.left_bytes += entry.allocation.bytes;
    return !is_live;
  });
}

}  // namespace tutti::rdma
