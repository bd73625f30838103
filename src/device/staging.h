// Staging: turns the calls of a rank on a device into calls on host memory.
//
// If some ranks cannot reach each other's device memory, all use the host engine. A rank on a device then
// copies the call's input to host memory, and the result back. Its calls share this memory: a stream fills it
// once earlier results are copied out.
//
// The memory comes from the symmetric heap, so peers of the host access it directly. It at least doubles to
// hold the longest call. The device keeps the memory: see StagingMemory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "device/card_buffers.h"
#include "device/staging_device.h"
#include "engine/call.h"
#include "plan/rounds.h"
#include "transports/shm/heap.h"

namespace tutti {

/// A staged call on a stream: what the host runs once the stream has reached it.
template <class Anything>
struct StagedCall {
  Anything call;  ///< on host memory, `scale` included
  uint32_t number = 0;
  void* captured = nullptr;  ///< its name (StagingDevice::capture), if a launch of a graph has come to it
};

/// How messages go between the rank's device and network cards, without host memory.
struct CardWay {
  DeviceCopier* copier = nullptr;                     ///< for what a card cannot move; outlives the staging
  SliceLimits slices = {};                            ///< of messages
  std::function<bool(uint32_t peer)> is_remote = {};  ///< whether a card joins the rank to the peer
};

class Staging {
 public:
  struct Options {
    uint32_t rank = 0;
    uint32_t rank_count = 1;
    std::string why;       ///< why calls are staged: "rank 1 is in host memory"
    uint32_t sharers = 1;  ///< this process's ranks on the device
    uint32_t queues = 1;   ///< Config::device_queues
  };

  /// `heap` outlives the object.
  Staging(std::unique_ptr<StagingDevice> device, SymmetricHeap& heap, Options options)
      : options_(std::move(options)), heap_(heap), device_(std::move(device)) {}

  StagingDevice& device() const { return *device_; }
  const std::string& why() const { return options_.why; }

  /// Ok if calls can be ordered on a user's stream. Errors: kUnsupported (it would surely hold up another
  /// rank); as StagingDevice::is_captured.
  Status check_stream(DeviceStream stream) const;

  /// Returns the same call on host memory. The three functions below then refer to this call. Errors:
  /// kOutOfMemory, kSystemError; then nothing has changed.
  Result<Call> stage(const Call& call);
  /// Long messages to other hosts may stay in memory of the device: see use_cards.
  Result<MessageCall> stage(const MessageCall& call);
  /// From now on, messages of kLeastDirectBytes and more go between the device and network cards where
  /// `buffers` allows it. All ranks do this, or none.
  void use_cards(std::unique_ptr<CardBuffers> buffers, CardWay way) {
    card_buffers_ = std::move(buffers);
    card_way_ = std::move(way);
  }
  /// Null: all messages pass through host memory.
  const CardBuffers* card_buffers() const { return card_buffers_.get(); }

  /// Whether calls without a stream may wait on the rank's own stream.
  bool can_queue() const { return options_.sharers == 1 || options_.queues > 1; }
  /// Queues the call's copies on a stream, with the notice and the wait between them: see
  /// StagingDevice::queue.
  Result<uint32_t> queue(DeviceStream stream, bool goes_on) {
    return device_->queue(in_, out_, stream, goes_on);
  }
  Status capture(DeviceStream stream, bool goes_on, std::function<void(void*)> replay) {
    return device_->capture(in_, out_, stream, goes_on, std::move(replay));
  }
  /// Copies the call's input to host memory, for blocking calls. Errors: kSystemError.
  Status copy_in() { return device_->copy(in_); }
  /// Copies the call's result to the user's buffers. Errors: kSystemError.
  Status copy_out() { return device_->copy(out_); }

 private:
  Result<std::byte*> reserve(uint64_t bytes);
  Result<StagingMemory> allocate(uint64_t bytes);
  void stage_equal_blocks(Call& call, uint64_t whole_send_bytes, std::byte* base);
  void stage_variable_blocks(Call& call, std::byte* base);
  void give_to_cards(MessageCall& call);
  void queue_self_copies(MessageCall& call);

  const Options options_;
  SymmetricHeap& heap_;
  std::unique_ptr<StagingDevice> device_;
  std::unique_ptr<CardBuffers> card_buffers_;
  CardWay card_way_;
  StagingMemory memory_;  ///< the largest so far
  std::vector<StagingCopy> in_;
  std::vector<StagingCopy> out_;
};

}  // namespace tutti
