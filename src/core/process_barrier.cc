#include "core/process_barrier.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tutti {
namespace {

// Without membarrier. A sched_yield() takes at least a tenth of a microsecond.
constexpr int kYields = 1000;

bool membarrier(int command) noexcept {
  return ::syscall(SYS_membarrier, command, 0, 0) == 0;
}

}  // namespace

void prepare_process_barrier() noexcept {
  static const bool kRegistered = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  static_cast<void>(kRegistered);
}

void process_barrier() noexcept {
  if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
  for (int i = 0; i < kYields; ++i) ::sched_yield();
}

}  // namespace tutti
