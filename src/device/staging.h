// Staging: the calls of a rank on a device, as calls on host memory.
//
// Where not all ranks of a communicator reach each other's device memory, all run on the host's engine. A
// rank on a device then copies what a call reads to host memory, and what it writes back from there. All
// calls of the rank use the same memory in turn: a stream begins to fill it when what was queued before has
// been copied out of it.
//
// The memory is of the symmetric heap, lent to the device: peers of the host read and write it in place, as
// they would a host rank's own. It grows to the longest call, at least to twice what it was, and is kept
// until the end: to take memory from a device waits for the device, which may wait for this very rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "device/staging_device.h"
#include "engine/call.h"
#include "transports/shm/heap.h"
#include "transports/shm/memory.h"

namespace tutti {

/// A call on a stream that has been staged: what the host runs in its place, once the stream has come to it.
template <class Anything>
struct StagedCall {
  Anything call;  ///< on host memory; `scale`, too, lies there
  uint32_t number = 0;
};

class Staging {
 public:
  struct Options {
    uint32_t rank = 0;
    uint32_t rank_count = 1;
    std::string why;       ///< calls are staged: "rank 1 is in host memory"
    uint32_t sharers = 1;  ///< ranks of this process on the device
    uint32_t queues = 1;   ///< Config::device_queues
  };

  /// `heap` outlives it.
  Staging(std::unique_ptr<StagingDevice> device, SymmetricHeap& heap, Options options)
      : options_(std::move(options)), heap_(heap), device_(std::move(device)) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  StagingDevice& device() const { return *device_; }
  const std::string& why() const { return options_.why; }

  /// Ok when calls can be ordered on a stream of the user's. Errors: kUnsupported (it is being captured, or
  /// would surely hold up another rank's), as StagingDevice::is_captured.
  Status check_stream(DeviceStream stream) const;

  /// The same call on host memory. From then until the next one the three calls below are about it. Errors:
  /// kOutOfMemory, kSystemError; nothing has changed then.
  Result<Call> stage(const Call& call);
  Result<MessageCall> stage(const MessageCall& call);

  /// Queues its copies on a stream, with the notice and the wait between them. As StagingDevice::queue.
  Result<uint32_t> queue(DeviceStream stream) { return device_->queue(in_, out_, stream); }
  /// What it reads is in host memory when this returns; blocking calls. Errors: kSystemError.
  Status copy_in() { return device_->copy(in_); }
  /// What it has written is in its buffers when this returns. Errors: kSystemError.
  Status copy_out() { return device_->copy(out_); }

 private:
  /// Memory that is lent to the device.
  struct Piece {
    std::byte* base = nullptr;
    uint64_t bytes = 0;
    Mapping plain;  ///< where the heap had no room
  };

  Result<std::byte*> reserve(uint64_t bytes);
  void stage_equal_blocks(const BufferUse& use, Call& call, std::byte* base);
  void stage_variable_blocks(Call& call, std::byte* base);

  const Options options_;
  SymmetricHeap& heap_;
  std::vector<Piece> pieces_;  ///< the last one is the largest
  std::unique_ptr<StagingDevice> device_;
  std::vector<StagingCopy> in_;
  std::vector<StagingCopy> out_;
};

}  // namespace tutti
