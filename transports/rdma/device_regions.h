// DeviceRegions: memory of the rank's GPU that its RDMA devices know, so that messages go from card to card
// without host memory between them.
//
// The memory is registered at the first call that uses it (device/card_buffers.h). It does not count in the
// budget for slots: nothing of the host is locked.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "transports/device_span.h"
#include "transports/rdma/device.h"

namespace tutti::rdma {

/// Any thread. A region that is found is valid until its remove().
class DeviceRegions {
 public:
  /// Registers memory with `devices`. Returns a number above 0. Errors: as Region::make; then nothing is
  /// registered.
  Result<uint64_t> add(const Verbs& verbs, const DeviceSpan& span, const std::vector<const Device*>& devices);
  void remove(uint64_t number);
  const Region* find(const Device& device, const std::byte* address, size_t bytes) const;
  /// Whether an address lies in memory that was added, also when it has been removed since.
  bool holds(const void* address) const {
    const auto value = reinterpret_cast<uintptr_t>(address);
    if (value < lowest_.load(std::memory_order_relaxed) || value >= highest_.load(std::memory_order_relaxed))
      return false;
    return is_in_span(value);
  }

  /// Null: no operation of this rank uses device memory.
  DeviceCopier* copier = nullptr;

 private:
  struct Entry {
    uint64_t number = 0;
    const std::byte* address = nullptr;
    uint64_t bytes = 0;
    std::vector<std::pair<const Device*, Region>> regions = {};
  };
  struct Span {
    uintptr_t begin = 0;
    uintptr_t end = 0;
  };

  bool is_in_span(uintptr_t address) const;

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<Span> spans_;  ///< of all entries so far, without overlap
  uint64_t last_number_ = 0;
  std::atomic<uintptr_t> lowest_{UINTPTR_MAX};
  std::atomic<uintptr_t> highest_{0};
};

}  // namespace tutti::rdma
