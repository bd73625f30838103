// Pull: one copy out of another process's memory by a system call (cross-memory attach) of about a
// microsecond, where the kernel allows it. It replaces two copies through shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transports/carriage_trials.h"

namespace tutti {

/// Copies [address, address + bytes) of process `pid` to `target`. 0, or an errno: ESRCH if the process has
/// ended, EFAULT if this memory cannot be read from other processes. No allocation.
int pull(int pid, uint64_t address, void* target, size_t bytes);

/// Whether other processes can pull from this buffer of this process, by its first and last byte: not if a
/// driver has mapped it, as for cudaHostAlloc. A system call, unless the buffer is empty.
bool can_be_pulled(const void* buffer, uint64_t bytes);

/// `can_be_pulled` of the buffers of many calls. Asks the kernel about the buffer of the last call only now
/// and then: the program may have mapped other memory there.
class PullableBuffer {
 public:
  /// Calls with one answer. The system call then takes less than a thousandth of the time of the pulls.
  static constexpr uint32_t kMostCalls = 256;

  bool can_be_pulled(const void* buffer, uint64_t bytes) {
    if (calls_left_ > 0 && buffer == buffer_ && bytes <= bytes_) {
      --calls_left_;
      return true;
    }
    calls_left_ = 0;
    if (!tutti::can_be_pulled(buffer, bytes)) return false;
    calls_left_ = kMostCalls - 1;
    buffer_ = buffer;
    bytes_ = bytes;
    return true;
  }

 private:
  const void* buffer_ = nullptr;
  uint64_t bytes_ = 0;
  uint32_t calls_left_ = 0;  ///< that need not ask about this buffer
};

/// What pulling costs on this machine. The first call measures it: this process pulls from itself 16 times.
/// {}: the kernel does not allow it.
const PullCost& pull_cost();

}  // namespace tutti
