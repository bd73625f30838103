#include "transports/shm/pull.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace tutti {

int pull(int pid, uint64_t address, void* target, size_t bytes) {
  while (bytes > 0) {
    const iovec local{target, bytes};
    const iovec remote{reinterpret_cast<void*>(address), bytes};
    const ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? errno : EFAULT;
    const auto copied = static_cast<size_t>(got);
    target = static_cast<std::byte*>(target) + copied;
    address += copied;
    bytes -= copied;
  }
  return 0;
}

bool can_be_pulled(const void* buffer) {
  std::byte first{};
  return pull(getpid(), reinterpret_cast<uint64_t>(buffer), &first, sizeof(first)) == 0;
}

}  // namespace tutti
