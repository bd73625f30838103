// StagingDevice: what a rank with staged calls needs from its CUDA device: copies to and from the host in
// stream order, and the hand-over between stream and host. Nothing of CUDA is included here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "core/result.h"
#include "device/device_rank.h"
#include "transports/device_span.h"

namespace tutti {
namespace cuda {
class Context;
}

/// A copy between device and host memory.
struct StagingCopy {
  void* to = nullptr;
  const void* from = nullptr;
  uint64_t bytes = 0;
};

/// Host memory that a device reaches. `owner` frees the memory: the device may keep both for later stagings,
/// because taking memory back waits for the device.
struct StagingMemory {
  std::byte* base = nullptr;
  uint64_t bytes = 0;
  std::shared_ptr<void> owner = {};
};

class StagingDevice {
 public:
  /// No work of `queue` may be under way.
  virtual ~StagingDevice() = default;

  /// Lets the device reach the memory, whole pages, for the life of this object. Errors: kOutOfMemory,
  /// kSystemError.
  virtual Status lend(StagingMemory memory) = 0;
  /// Memory of at least `bytes` that an earlier staging of this device was lent, for the life of this object;
  /// null: there is none.
  virtual StagingMemory find_lent(uint64_t bytes) = 0;

  /// Whether a user's stream is being captured. Errors: kInvalidArgument (not a stream of the rank's device),
  /// kInvalidUsage (a failed capture).
  virtual Result<bool> is_captured(DeviceStream stream) const = 0;
  /// Ok if the device can use `address`. `name`: of the argument.
  virtual Status check_pointer(std::string_view name, const void* address) const = 0;

  /// Queues, behind all earlier work on any stream: the copies `in`, a notice for `wait_until_reached`, a
  /// wait for `release`, the copies `out`. Does not wait. Returns its number, from 1 on. One thread at a
  /// time. `goes_on`: the next piece of the same call follows, on the same stream. Its copies `in` come
  /// before this piece's wait. Errors: kSystemError; then a part may be queued, and all waits are released.
  virtual Result<uint32_t> queue(std::span<const StagingCopy> in, std::span<const StagingCopy> out,
                                 DeviceStream stream, bool goes_on) = 0;
  /// The same on a stream that is being captured, behind earlier operations of the capture. Each launch of
  /// the graph calls `replay` with a name of the operation, on a thread of the driver that may not wait, and
  /// then waits for `release_captured`. Errors: kSystemError; then the capture may hold a part.
  virtual Status capture(std::span<const StagingCopy> in, std::span<const StagingCopy> out,
                         DeviceStream stream, bool goes_on, std::function<void(void*)> replay) = 0;
  /// Waits until all work on the rank's own stream has ended. Errors: kSystemError.
  virtual Status synchronize() = 0;
  /// Copies after all earlier work, and waits until done. Not at the same time as `queue`. Errors:
  /// kSystemError.
  virtual Status copy(std::span<const StagingCopy> copies) = 0;

  // Memory that network cards access (device/card_buffers.h). Any thread.

  /// Call it first, at set-up. Errors: as check_card_access; kOutOfMemory, kSystemError.
  virtual Status open_card_access() = 0;
  /// Exports the allocation of a buffer and gives `use` its span; the export ends with the call. Errors: as
  /// export_to_cards, and those of `use`.
  virtual Status export_to_cards(const void* address,
                                 const std::function<Status(const DeviceSpan&)>& use) const = 0;
  /// As allocation_number.
  virtual uint64_t allocation_number(const void* address) const = 0;
  /// The same for memory of the device that is allocated for `use` alone.
  virtual Status export_sample(const std::function<Status(const DeviceSpan&)>& use) const = 0;
  /// As show_card_writes.
  virtual Status show_card_writes() const = 0;
  /// Copies beside all streams, and waits. One thread at a time. Errors: kTimeout (the copy stands behind
  /// what a stream waits for), kAborted (`is_in_vain`, which is asked while it waits), kSystemError.
  virtual Status copy_beside(const StagingCopy& copy, const std::function<bool()>& is_in_vain) = 0;

  /// As DeviceRank::order_streams. One thread at a time.
  virtual Status order_streams(std::span<void* const> earlier, std::span<void* const> later) = 0;

  // Any thread:

  /// Waits until a stream reaches the notice of this number; false: not within `patience_ms`.
  virtual bool wait_until_reached(uint32_t number, uint64_t patience_ms) = 0;
  /// Lets streams pass the wait of this number and all earlier ones.
  virtual void release(uint32_t number) = 0;
  /// Lets the graph that replays the captured operation go on.
  virtual void release_captured(void* name) = 0;
  /// Whether all queued work has ended. Errors: a failure of the device.
  virtual Result<bool> is_done() const = 0;
};

/// Implements Devices::open_staging. The context outlives the result. Errors: kOutOfMemory, kSystemError.
Result<std::unique_ptr<StagingDevice>> open_staging_device(const cuda::Context& context, uint32_t rank);

}  // namespace tutti
