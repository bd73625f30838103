// FailingAllocations: a shortage of memory at a chosen moment. failing_allocations.cc replaces `new` in every
// program that links it.
#pragma once

#include <cstdint>

namespace tutti::test {

/// While this object lives, `count` allocations of the calling thread fail, after `passed` that succeed. One
/// object at a time for each thread.
class FailingAllocations {
 public:
  explicit FailingAllocations(uint64_t passed, uint64_t count = 1);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  /// Whether any allocation has failed.
  static bool have_failed();
};

}  // namespace tutti::test
