// Memory of a device that network cards reach and processors do not.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

/// Messages up to this size travel behind their header, out of memory that a processor fills.
inline constexpr uint32_t kMostPackedBytes = 1024;

/// Memory of a device, exported for network cards.
struct DeviceSpan {
  std::byte* address = nullptr;  ///< at which this process's device knows it; at a page's beginning
  uint64_t bytes = 0;            ///< whole pages
  int descriptor = -1;           ///< of the dma-buf, which begins at `address`; borrowed for the call
};

/// Copies between memory of the rank's device and host memory.
class DeviceCopier {
 public:
  virtual ~DeviceCopier() = default;
  /// Copies, and waits for the copy alone: a user's stream may meanwhile wait for the operation. False: the
  /// copy has failed, and the communicator is in error.
  virtual bool copy(void* to, const void* from, uint64_t bytes) = 0;
};

}  // namespace tutti
