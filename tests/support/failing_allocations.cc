#include "tests/support/failing_allocations.h"

#include <cstdlib>
#include <new>

namespace {

/// For the calling thread: allocations that succeed, then allocations that fail.
struct Shortage {
  uint64_t passing = 0;
  uint64_t failing = 0;
  bool has_failed = false;
};
constinit thread_local Shortage shortage;

/// Whether the next allocation fails.
bool is_short() {
  if (shortage.failing == 0) return false;
  if (shortage.passing > 0) {
    --shortage.passing;
    return false;
  }
  --shortage.failing;
  shortage.has_failed = true;
  return true;
}

}  // namespace

void* operator new(std::size_t bytes) {
  void* const memory = is_short() ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// The library's nothrow new would call the one above; a sanitizer's does not.
void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return is_short() ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

namespace tutti::test {

FailingAllocations::FailingAllocations(uint64_t passed, uint64_t count) {
  shortage = {.passing = passed, .failing = count};
}

FailingAllocations::~FailingAllocations() {
  shortage.failing = 0;
}

bool FailingAllocations::have_failed() {
  return shortage.has_failed;
}

}  // namespace tutti::test
