#include "tests/simt/multicast.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "engine/cuda/multimem.h"
#include "tests/simt/scheduler.h"

namespace tutti::simt {
namespace {

// Kernels name memory by its address alone, as on a device; so the process has one list of what is where.
// Without a lock: the thread sanitizer would take it for an edge between the fibers.
constexpr size_t kMostMemories = 256;
const MulticastMemory* g_memories[kMostMemories];

/// Replaces an entry of the list.
void replace(const MulticastMemory* from, const MulticastMemory* to) {
  for (const MulticastMemory*& entry : g_memories) {
    const MulticastMemory* expected = from;
    if (__atomic_compare_exchange_n(&entry, &expected, to, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
  }
  std::abort();
}

/// The memory that the address lies in.
SIMT_UNSEEN const MulticastMemory& find(const void* address) {
  for (const MulticastMemory* const& entry : g_memories) {
    const MulticastMemory* const memory = __atomic_load_n(&entry, __ATOMIC_RELAXED);
    if (memory != nullptr && address >= memory->begin() && address < memory->begin() + memory->bytes())
      return *memory;
  }
  std::fprintf(stderr, "%p is no multicast address\n", address);
  std::abort();
}

std::byte* reserve(size_t bytes) {
  void* const reserved = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) std::abort();
  return static_cast<std::byte*>(reserved);
}

}  // namespace

MulticastMemory::MulticastMemory(Copies copies, size_t bytes)
    : copies_(new Copies(std::move(copies))), bytes_(bytes), begin_(reserve(bytes)) {
  replace(nullptr, this);
}

MulticastMemory::MulticastMemory(std::byte* begin, size_t bytes, std::function<Copies()> find)
    : find_(std::move(find)), copies_(nullptr), bytes_(bytes), begin_(begin) {
  replace(nullptr, this);
}

MulticastMemory::~MulticastMemory() {
  replace(this, nullptr);
  if (!find_) munmap(begin_, bytes_);
  delete copies_.load();
}

// The thread sanitizer sees this: all that read are behind who has opened them, which is an edge, once. Not
// call_once: its variables of the thread would seem to be shared by the thread's fibers.
const MulticastMemory::Copies& MulticastMemory::copies() const {
  const Copies* known = copies_.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  const auto* const found = new Copies(find_());
  if (copies_.compare_exchange_strong(known, found, std::memory_order_acq_rel)) return *found;
  delete found;
  return *known;
}

}  // namespace tutti::simt

namespace simulator {

SIMT_UNSEEN uint32_t multicast_members(const void* address) {
  return static_cast<uint32_t>(tutti::simt::find(address).copies().size());
}
SIMT_UNSEEN void* multicast_copy(const void* address, uint32_t member) {
  const tutti::simt::MulticastMemory& memory = tutti::simt::find(address);
  return memory.copies()[member] + (static_cast<const std::byte*>(address) - memory.begin());
}

}  // namespace simulator
