// CardBuffers: the allocations of a rank's device that its network cards know.
//
// The first long message out of an allocation, or into it, registers all of it. An allocation is known by the
// driver's number, not by its address, because other memory may lie there later. A freed allocation stays
// registered, and its memory taken, until it is one of the oldest or other memory takes its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "device/staging_device.h"
#include "transports/transport.h"

namespace tutti {

/// One thread at a time.
class CardBuffers {
 public:
  /// The rank's network. Its functions may be called by any thread.
  struct Network {
    std::function<Result<MemoryHandle>(const DeviceSpan&)> add;
    std::function<void(MemoryHandle)> remove;
  };
  /// A registration that an operation uses. It lasts while anybody holds it.
  using Hold = std::shared_ptr<const void>;
  /// Allocations registered at a time, as far as operations let go of them.
  static constexpr size_t kMost = 64;

  /// `device` outlives the object.
  CardBuffers(const StagingDevice& device, Network network, uint32_t rank);
  /// What is held still is no longer deregistered: the network does that when it ends.
  ~CardBuffers();
  CardBuffers(const CardBuffers&) = delete;
  CardBuffers& operator=(const CardBuffers&) = delete;

  /// Registers memory of the device for a moment. Errors: why cards cannot access it.
  Status probe() const;
  /// The registration of the allocation that holds a buffer, made now if need be. Null: it is refused, or is
  /// no memory of the device.
  Hold find(const void* address);
  /// Why the last allocation was refused; empty: none was.
  const std::string& refusal() const { return refusal_; }

 private:
  struct Life;
  struct Registration;
  struct Entry {
    uint64_t number = 0;  ///< of the allocation
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
    Hold hold = {};  ///< null: refused
    uint64_t last_use = 0;
  };

  Hold add(uint64_t number, const void* address);
  void drop_oldest();

  const StagingDevice& device_;
  uint32_t rank_;
  std::shared_ptr<Life> life_;
  std::vector<Entry> entries_;
  uint64_t uses_ = 0;
  std::string refusal_;
};

}  // namespace tutti
