// StagingDevice: what a rank whose calls pass through host memory asks of its CUDA device: copies between the
// two, in stream order, and the hand-over from a stream to the host and back.
//
// One build runs with and without CUDA: this header knows nothing of it (as comm/device_rank.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/result.h"
#include "device/device_rank.h"

namespace tutti {
namespace cuda {
class Context;
}

/// A copy between memory of the device and of the host.
struct StagingCopy {
  void* to = nullptr;
  const void* from = nullptr;
  uint64_t bytes = 0;
};

class StagingDevice {
 public:
  /// Nothing that `queue` was given may be under way.
  virtual ~StagingDevice() = default;

  /// Lets the device reach [address, address + bytes), whole pages, for as long as this lives. Errors:
  /// kOutOfMemory, kSystemError.
  virtual Status lend(std::byte* address, uint64_t bytes) = 0;

  /// Whether a stream of the user's is being captured. Errors: kInvalidArgument (none of the rank's device),
  /// kInvalidUsage (a capture that has failed).
  virtual Result<bool> is_captured(DeviceStream stream) const = 0;
  /// Ok when the device can work on memory at `address`. `name`: of the argument.
  virtual Status check_pointer(std::string_view name, const void* address) const = 0;

  /// Queues, behind all that was queued before on whatever stream: the copies `in`; a notice to the host, for
  /// `wait_until_reached`; a wait for `release`; the copies `out`. Does not wait. Its number, from 1 on. By
  /// one thread at a time. Errors: kSystemError; then part of it may be queued, and all waits are released.
  virtual Result<uint32_t> queue(std::span<const StagingCopy> in, std::span<const StagingCopy> out,
                                 DeviceStream stream) = 0;
  /// Copies at once, after all that was queued, and waits for it. Not beside `queue`. Errors: kSystemError.
  virtual Status copy(std::span<const StagingCopy> copies) = 0;

  /// As DeviceRank::order_streams. By one thread at a time.
  virtual Status order_streams(std::span<void* const> earlier, std::span<void* const> later) = 0;

  // Any thread:

  /// Waits until a stream has come to the notice of that number; false: not within the time.
  virtual bool wait_until_reached(uint32_t number, uint64_t patience_ms) = 0;
  /// Streams pass the wait of that number and all earlier ones.
  virtual void release(uint32_t number) = 0;
  /// Whether all that was queued has ended. Errors: what failed on the device.
  virtual Result<bool> is_done() const = 0;
};

/// What Devices::open_staging gives. The context outlives it. Errors: kOutOfMemory, kSystemError.
Result<std::unique_ptr<StagingDevice>> open_staging_device(const cuda::Context& context, uint32_t rank);

}  // namespace tutti
