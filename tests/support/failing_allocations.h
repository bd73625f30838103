// FailingAllocations: a shortage of memory at a chosen moment. Who lists failing_allocations.cc among its
// sources has its `new` replaced.
#pragma once

#include <cstdint>

namespace tutti::test {

/// While it lives, `count` allocations of the calling thread fail, after `passed` others. One at a time a
/// thread.
class FailingAllocations {
 public:
  explicit FailingAllocations(uint64_t passed, uint64_t count = 1);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  /// Whether any has failed.
  static bool have_failed();
};

}  // namespace tutti::test
