#include "core/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace tutti {
namespace {

// Descriptors plus 1. A fixed array, because a child may use only atomics and system calls.
std::array<std::atomic<int>, 4096> guarded;

void close_guarded() {
  for (std::atomic<int>& entry : guarded) {
    if (const int fd = entry.exchange(0) - 1; fd >= 0) close(fd);
  }
}

}  // namespace

void close_in_child(int fd) {
  static const int kRegistered = pthread_atfork(nullptr, nullptr, close_guarded);
  (void)kRegistered;
  for (std::atomic<int>& entry : guarded) {
    if (entry.load(std::memory_order_relaxed) != 0) continue;
    int empty = 0;
    if (entry.compare_exchange_strong(empty, fd + 1)) return;
  }
}

void keep_in_child(int fd) {
  for (std::atomic<int>& entry : guarded) {
    if (entry.load(std::memory_order_relaxed) != fd + 1) continue;
    int own = fd + 1;
    if (entry.compare_exchange_strong(own, 0)) return;
  }
}

}  // namespace tutti
