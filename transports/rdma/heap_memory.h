// HeapMemory: the parts of the process's symmetric heap (tutti_mem_alloc) that the rank's devices know.
//
// The first long message out of an allocation, or into it, registers all of it with the device. The
// registration stays until the process frees the allocation, and goes in the rank's next turn after that.
// Half of TUTTI_IB_PINNED_BYTES is for it: the other half stays for slots, through which a refused
// allocation's messages go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transports/rdma/device.h"
#include "transports/shm/heap.h"

namespace tutti::rdma {

class HeapMemory {
 public:
  /// `heap`: null if there is none. Both outlive the object.
  HeapMemory(const SymmetricHeap* heap, PinBudget& budget)
      : heap_(heap), budget_(budget), least_left_bytes_(budget.left_bytes / 2) {}

  /// The registration of the allocation that holds all these bytes, made now if need be. Null: there is no
  /// such allocation, or the budget or the system's limit refuses it. Valid until the next call.
  const Region* find(const Verbs& verbs, const Device& device, const std::byte* address, size_t bytes);
  bool is_empty() const { return heap_ == nullptr || heap_->is_empty(); }
  /// Ends the registrations of what the process has freed. No operation uses that.
  void drop_freed() {
    if (heap_ != nullptr && heap_->free_count() != free_count_) [[unlikely]]
      drop();
  }

 private:
  struct Entry {
    SymmetricHeap::Allocation allocation;
    const Device* device = nullptr;
    Region region = {};  ///< not open: refused
  };

  void drop();
  Entry& add(const Verbs& verbs, const Device& device, const SymmetricHeap::Allocation& allocation);

  const SymmetricHeap* heap_;
  PinBudget& budget_;
  uint64_t least_left_bytes_;
  uint64_t free_count_ = 0;  ///< of the heap, when all of `entries_` lived
  std::vector<Entry> entries_;
};

}  // namespace tutti::rdma
