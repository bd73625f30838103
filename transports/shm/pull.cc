#include "transports/shm/pull.h"

#include <sys/uio.h>

#include <cerrno>

namespace tutti {

bool pull(int pid, uint64_t address, void* target, size_t bytes) {
  while (bytes > 0) {
    const iovec local{target, bytes};
    const iovec remote{reinterpret_cast<void*>(address), bytes};
    const ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    const auto copied = static_cast<size_t>(got);
    target = static_cast<std::byte*>(target) + copied;
    address += copied;
    bytes -= copied;
  }
  return true;
}

}  // namespace tutti
