#include "tests/simt/known_memory.h"

#include <atomic>

#include "tests/simt/context.h"

namespace tutti::simt {
namespace {

std::atomic<MemoryCheck> g_check = nullptr;

}  // namespace

void set_memory_check(MemoryCheck check) {
  g_check.store(check, std::memory_order_relaxed);
}

SIMT_UNSEEN bool is_known_memory(uint64_t address, uint64_t bytes) {
  const MemoryCheck check = g_check.load(std::memory_order_relaxed);
  return check == nullptr || check(address, bytes);
}

}  // namespace tutti::simt
