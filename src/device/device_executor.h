// DeviceExecutor: runs the calls of a rank as kernels on its CUDA device.
//
// The room src/device holds all that a rank on a device has. With CUDA's headers:
//   DeviceRank (device_rank.h)       links in device memory, bound programs, launches; implemented by
//   CudaRank StagingDevice                    copies between device and host in stream order
//   RegisteredMemoryTable            memory that peers load from and store to where it lies
// Without CUDA in them:
//   DeviceExecutor                   the Executor over a DeviceRank
//   StagedExecutor, Staging          the Executor of a rank whose calls pass through host memory
//   RelaunchThread                   launches again what has left unfinished, finds what never will end
// A build without the CUDA toolkit has no_devices.cc in place of the first group.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/config.h"
#include "device/device_rank.h"
#include "device/relaunch_thread.h"
#include "engine/executor.h"
#include "engine/wait.h"
#include "health/peers.h"
#include "health/stall_diagnosis.h"

namespace tutti {

/// What the executor is made of; all borrowed objects outlive it.
struct DeviceExecutorOptions {
  const Peers& peers;
  const Config& config;
  Devices& devices;
  RelaunchThread& relaunch_thread;
  bool reproducible = false;
  uint32_t multiprocessors = UINT32_MAX;  ///< of the device that has fewest
  uint32_t ranks_on_device = 1;           ///< of the device that has most
  bool has_multicast = false;             ///< all ranks' devices have multicast memory
  WaitMode wait_mode = WaitMode::kYield;
  uint64_t timeout_ms = 600'000;
  std::unique_ptr<DeviceRank> rank;  ///< connected
};

class DeviceExecutor final : public Executor, private StalledCall {
 public:
  explicit DeviceExecutor(DeviceExecutorOptions options);

  /// From now on the relaunch thread looks after this rank's launches. Errors: kSystemError.
  Status start();

  Facts facts() const override;
  uint64_t short_bytes() const override { return rank().shape().short_bytes; }
  Result<std::unique_ptr<BoundCall>> bind(const BoundCall& call, const BindRequest& request) override;
  Result<Call> take_in(Call call) override { return call; }
  Status begin(BoundCall& bound, const Call& call) override { return issue(bound, call, DeviceStream{}); }
  Status begin(const MessageCall& call) override { return issue(call, DeviceStream{}); }
  Progress poll() override;
  void moved() override { waiter_.moved(); }
  Status wait() override;
  Status finish(Progress progress) override;
  /// A call of the library's own, whose buffers are in host memory, passes through pinned memory.
  Status run(BoundCall& bound, const Call& call) override;
  Status run(const MessageCall& call) override;
  Status fail(const Status& why) override;
  bool has_begun() const override { return false; }
  bool buffers_are_free() const override { return true; }
  void wait_beside_callers(bool beside) override;
  void set_timeout(uint64_t timeout_ms) override { timeout_ms_.store(timeout_ms, std::memory_order_relaxed); }
  /// Waits until the device has done this rank's work, for a bounded time after a failure.
  void leave() override;
  void close() override;
  std::string explain(const BoundCall& bound) const override;

  // Calls on streams of the user's. They return at once.

  Status issue(BoundCall& bound, const Call& call, DeviceStream stream);
  Status issue(const MessageCall& call, DeviceStream stream);
  /// The same in pieces, so that ranks which one thread drives are launched together. The operation of a
  /// call, to be launched before the next one's. A group's messages to the rank itself are copied already,
  /// and its program is null where none are left.
  DeviceOperation prepare(BoundCall& bound, const Call& call, DeviceStream stream);
  Result<DeviceOperation> prepare(const MessageCall& call, DeviceStream stream);
  /// Launches operations of ranks of this communicator in this process, one of each at the most.
  Status launch(std::span<const DeviceOperation> operations);
  /// After a launch that has failed: puts the communicator in error if the driver has failed, or if this
  /// rank's part runs all the same. Says whether that part runs: then `wait` returns when it has left.
  bool give_up_launch(const Status& why);
  /// What each stream in `later` is given from now on runs after what each of `earlier` has been given.
  /// Errors: as DeviceRank::order_streams.
  Status order_streams(std::span<void* const> earlier, std::span<void* const> later);
  /// What has failed of the calls on streams.
  Status stream_failure() const;
  /// Whether the other executor runs a rank of the same communicator, in this process.
  bool is_same_as(const DeviceExecutor& other) const { return rank().has_peer(other.rank()); }

  DeviceRank& rank() const { return *options_.rank; }
  /// How many ranges of registered memory all ranks have agreed on; what is bound later may use them.
  void set_registered_count(size_t count) { registered_count_ = count; }
  /// Waits until no operation is under way; false: one still is after a failure.
  bool wait_until_idle();
  /// Drops the bound groups of messages, which may refer to registered memory.
  void forget_messages() { message_programs_.clear(); }

 private:
  struct Bound;

  BindOptions bind_options() const;
  bool goes_by_packets(const BoundCall& call, const BindRequest& request) const;
  DeviceOperation make_operation(DeviceProgram* program, const DeviceBuffers& buffers, DeviceStream stream);
  Status launch_one(const DeviceOperation& operation, DeviceStream stream);
  Result<DeviceProgram*> find_messages(DeviceMark mark);
  Status run_through_host(BoundCall& bound, const Call& call);
  RelaunchThread::NextCheck check_launches();
  void show_on_page(const DeviceSnapshot& snapshot);
  bool shows_its_call(uint32_t peer) const;

  // StalledCall, on the relaunch thread
  uint64_t sequence() const override { return sequence_; }
  Obstacle obstacle() const override { return snapshot_.obstacle; }
  bool in_collective() const override {
    return snapshot_.program == nullptr || snapshot_.program->mark.is_collective;
  }
  bool in_messages() const override {
    return snapshot_.program != nullptr && !snapshot_.program->mark.messages.empty();
  }
  const std::vector<Message>& messages() const override { return snapshot_.program->mark.messages; }
  SliceLimits message_limits() const override { return bind_options().slices(); }
  bool is_draining() const override { return false; }
  bool still_waits_for(uint32_t peer) override;
  void peer_may_come() override { suspect_.reset(); }
  bool lends_to_network(uint32_t /*peer*/) const override { return false; }
  uint64_t unconfirmed_bytes(uint32_t /*peer*/) const override { return 0; }
  Status way_to(uint32_t /*peer*/) const override { return Status::ok(); }

  DeviceExecutorOptions options_;
  StallDiagnosis diagnosis_;
  std::atomic<uint64_t> timeout_ms_;  ///< of the operation under way; the relaunch thread reads it
  Waiter waiter_;
  /// Whether programs may be in use for ever; shared with the bound calls.
  std::shared_ptr<bool> keeps_programs_ = std::make_shared<bool>(false);
  std::vector<DeviceProgramHold> message_programs_;  ///< groups bound lately
  size_t registered_count_ = 0;
  bool has_stream_calls_ = false;
  uint64_t failed_ns_ = 0;  ///< when a waiting call saw that it has failed

  // Of the relaunch thread: what it saw last, and when it began to doubt that a peer will come.
  DeviceSnapshot snapshot_;
  uint64_t sequence_ = 0;
  std::optional<std::pair<uint32_t, uint64_t>> suspect_;  ///< peer, and the sequence then
  uint64_t suspected_at_ = 0;                             ///< launches
};

}  // namespace tutti
