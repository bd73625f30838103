// StagedExecutor: runs the calls of a rank on a device in host memory (staging.h), where not all ranks reach
// each other's device memory.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/staging.h"
#include "engine/executor.h"
#include "health/peers.h"

namespace tutti {

class StagedExecutor final : public Executor, private DeviceCopier {
 public:
  /// `peers` outlives the executor. `host` runs the calls.
  StagedExecutor(const Peers& peers, std::unique_ptr<Executor> host, std::unique_ptr<Staging> staging)
      : peers_(peers), host_(std::move(host)), staging_(std::move(staging)) {}

  Facts facts() const override { return host_->facts(); }
  uint64_t short_bytes(const Request& /*request*/) const override { return 0; }
  Result<std::unique_ptr<BoundCall>> bind(const BoundCall& call, const BindRequest& request) override {
    return host_->bind(call, request);
  }
  /// Copies the input of a user's call to host memory. The library's own calls are there already.
  Result<Call> take_in(Call call) override;
  Status begin(BoundCall& bound, const Call& call) override;
  Status begin(const MessageCall& call) override;
  Progress poll() override { return host_->poll(); }
  void moved() override { host_->moved(); }
  Status wait() override { return host_->wait(); }
  Status finish(Progress progress) override;
  Status run(BoundCall& bound, const Call& call) override;
  Status run(const MessageCall& call) override;
  Status fail(const Status& why) override { return host_->fail(why); }
  bool has_begun() const override { return host_->has_begun(); }
  bool buffers_are_free() const override { return host_->buffers_are_free(); }
  void wait_beside_callers(bool beside) override { host_->wait_beside_callers(beside); }
  void set_timeout(uint64_t timeout_ms) override { host_->set_timeout(timeout_ms); }
  Status leave() override { return host_->leave(); }
  void close() override;
  std::string explain(const BoundCall& bound) const override;

  // Calls on the user's streams: staged in order, and later run in that order by a thread that runs no other
  // call of the communicator meanwhile.

  /// Queues the copies of a call, or of all pieces of a call, on a stream, and a wait for each run between
  /// them. Returns at once, even during runs. Errors: a known failure; kUnsupported (see
  /// Staging::check_stream), kInvalidArgument (another device's stream), kOutOfMemory, kSystemError. After an
  /// error nothing is to be run, and the stream goes on; if any piece was queued, the error is raised.
  template <class Anything>
  Result<std::vector<StagedCall<Anything>>> stage(std::span<const Anything> calls, DeviceStream stream);
  /// The same on a stream that is being captured. Each launch of the graph calls `replay`, on a thread of the
  /// driver that may not wait. The graph goes on after `release`. Errors: as `stage`, but nothing is raised.
  Status capture(const Call& call, DeviceStream stream, std::function<void(const StagedCall<Call>&)> replay);
  Status capture(const MessageCall& call, DeviceStream stream,
                 std::function<void(const StagedCall<MessageCall>&)> replay);
  /// As StagingDevice::is_captured.
  Result<bool> is_captured(DeviceStream stream) const { return staging_->device().is_captured(stream); }
  /// Waits until the stream has reached the call of this number.
  Status wait_for_stream(uint32_t number);
  /// Lets the stream go on after the call. The call has ended, or no thread will run it.
  template <class Anything>
  void release(const StagedCall<Anything>& call) {
    call.captured != nullptr ? device().release_captured(call.captured) : device().release(call.number);
  }
  /// Runs staged calls on host memory.
  Executor& host() { return *host_; }
  /// As DeviceExecutor::order_streams; also kUnsupported as `stage`.
  Status order_streams(std::span<void* const> earlier, std::span<void* const> later);
  StagingDevice& device() const { return staging_->device(); }

  // Messages between the device and network cards. At set-up, before the first call.

  /// Whether this rank can. Errors: kUnsupported, kOutOfMemory, kSystemError, with what is in the way.
  Status try_cards(CardBuffers::Network network);
  /// All ranks can: long messages go this way from now on.
  void use_cards(SliceLimits slices, std::function<bool(uint32_t peer)> is_remote);
  /// Some rank cannot.
  void refuse_cards(std::string why);
  bool uses_cards() const { return staging_->card_buffers() != nullptr; }
  DeviceCopier& copier() { return *this; }
  /// What cards have written in a call is visible to the streams that go on. Errors: kSystemError.
  Status show_card_writes(const MessageCall& call);
  /// How long messages go, for people.
  std::string explain_messages() const;
  /// Whether blocking calls can be staged on the rank's own stream.
  bool can_queue() const { return staging_->can_queue(); }

 private:
  // DeviceCopier, in the thread that runs calls.
  bool copy(void* to, const void* from, uint64_t bytes) override;

  template <class Anything>
  Result<StagedCall<Anything>> queue(const Anything& call, DeviceStream stream);
  template <class Anything>
  Status record(const Anything& call, DeviceStream stream,
                std::function<void(const StagedCall<Anything>&)> replay);

  const Peers& peers_;
  std::unique_ptr<Executor> host_;
  std::unique_ptr<Staging> staging_;
  bool copies_out_ = false;                   ///< the current blocking call is staged
  MessageCall messages_;                      ///< ... and is this one
  std::unique_ptr<CardBuffers> tried_cards_;  ///< until all ranks have agreed
  std::string why_no_cards_;
};

/// Returns the call with the scalar of its pre-multiplied sum in the shape, after the copy from the device.
Call with_scale(Call call);
inline MessageCall with_scale(MessageCall call) {
  return call;
}

}  // namespace tutti
