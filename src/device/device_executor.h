// DeviceExecutor: runs the calls of a rank as kernels on its CUDA device.
//
// src/device holds all that a rank on a device has. With CUDA's headers (no_devices.cc replaces this group in
// a build without CUDA):
//   DeviceRank, CudaRank      links in device memory, bound programs, launches
//   StagingDevice             copies between device and host in stream order
//   RegisteredMemoryTable     memory that peers access directly
// Without CUDA's headers:
//   DeviceExecutor            the Executor over a DeviceRank
//   StagedExecutor, Staging   the Executor of a rank whose calls pass through host memory
//   RelaunchThread            relaunches unfinished operations, finds those that never end
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

/// All borrowed objects outlive the executor.
struct DeviceExecutorOptions {
  const Peers& peers;
  const Config& config;
  Devices& devices;
  RelaunchThread& relaunch_thread;
  bool reproducible = false;
  uint32_t multiprocessors = UINT32_MAX;  ///< of the smallest device
  uint32_t ranks_on_device = 1;           ///< of the fullest device
  std::span<const uint32_t> order = {};   ///< as in Facts; borrowed
  std::span<const std::vector<uint32_t>> levels = {};
  bool has_multicast = false;  ///< all ranks' devices have multicast memory
  WaitMode wait_mode = WaitMode::kYield;
  uint64_t timeout_ms = 600'000;
  std::unique_ptr<DeviceRank> rank;  ///< connected
};

class DeviceExecutor final : public Executor, private StalledCall {
 public:
  explicit DeviceExecutor(DeviceExecutorOptions options);

  /// The relaunch thread watches this rank's launches from now on. Errors: kSystemError.
  Status start();

  Facts facts() const override;
  uint64_t short_bytes(const Request& request) const override;
  Result<std::unique_ptr<BoundCall>> bind(const BoundCall& call, const BindRequest& request) override;
  Result<Call> take_in(Call call) override { return call; }
  Status begin(BoundCall& bound, const Call& call) override { return issue(bound, call, DeviceStream{}); }
  Status begin(const MessageCall& call) override { return issue(call, DeviceStream{}); }
  Progress poll() override;
  void moved() override { waiter_.moved(); }
  Status wait() override;
  Status finish(Progress progress) override;
  /// The library's own calls have host buffers and pass through pinned memory.
  Status run(BoundCall& bound, const Call& call) override;
  Status run(const MessageCall& call) override;
  Status fail(const Status& why) override;
  bool has_begun() const override { return false; }
  bool buffers_are_free() const override;
  void wait_beside_callers(bool beside) override;
  void set_timeout(uint64_t timeout_ms) override { timeout_ms_.store(timeout_ms, std::memory_order_relaxed); }
  /// Waits until the device has done this rank's work; after a failure, for a bounded time.
  Status leave() override;
  void close() override;
  std::string explain(const BoundCall& bound) const override;

  // Calls on the user's streams. They return at once.

  Status issue(BoundCall& bound, const Call& call, DeviceStream stream);
  Status issue(const MessageCall& call, DeviceStream stream);
  /// The same in two steps, so that ranks of one thread launch together. Launch each operation before
  /// preparing the next. Messages to the rank itself are copied at once; without others the program is null.
  DeviceOperation prepare(BoundCall& bound, const Call& call, DeviceStream stream);
  Result<DeviceOperation> prepare(const MessageCall& call, DeviceStream stream);
  /// At most one operation per rank of this communicator in this process.
  Status launch(std::span<const DeviceOperation> operations);
  /// After a failed launch: puts the communicator in error if the driver failed, or if this rank's part runs
  /// nevertheless. Returns whether it runs; then `wait` returns once it has left.
  bool give_up_launch(const Status& why);
  /// Later work of each stream in `later` runs after the present work of each stream in `earlier`. Errors: as
  /// DeviceRank::order_streams.
  Status order_streams(std::span<void* const> earlier, std::span<void* const> later);
  Status stream_failure() const;
  bool is_same_as(const DeviceExecutor& other) const { return rank().has_peer(other.rank()); }

  DeviceRank& rank() const { return *options_.rank; }
  /// How many registered memories all ranks have. Later bindings may use them.
  void set_registered_count(size_t count) { registered_count_ = count; }
  /// Waits until no operation is under way. False: after a failure, one still is.
  bool wait_until_idle();
  /// Drops the bound groups of messages, which may refer to registered memory.
  void forget_messages() { message_programs_.clear(); }

 private:
  struct Bound;

  bool shares_memory() const;
  BindOptions bind_options() const;
  BindOptions message_options() const;
  bool goes_by_packets(std::span<const Plan> plans, const BindRequest& request) const;
  std::vector<Plan> plans_of_all(const BoundCall& call, const BindRequest& request) const;
  DeviceOperation make_operation(DeviceProgram* program, const DeviceBuffers& buffers, DeviceStream stream);
  Status told(const Status& outcome);
  Status launch_one(const DeviceOperation& operation, DeviceStream stream);
  Result<DeviceProgram*> find_messages(DeviceMark mark);
  Status run_through_host(BoundCall& bound, const Call& call);
  RelaunchThread::NextCheck check_launches();
  void let_buffers_go();
  bool wait_until_stopped();
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
  Status torn_way() const override { return Status::ok(); }

  DeviceExecutorOptions options_;
  StallDiagnosis diagnosis_;
  std::atomic<uint64_t> timeout_ms_;  ///< of the current operation; the relaunch thread reads it
  Waiter waiter_;
  /// Whether programs may be in use for ever. The bound calls share this flag.
  std::shared_ptr<bool> keeps_programs_ = std::make_shared<bool>(false);
  std::vector<DeviceProgramHold> message_programs_;  ///< recent groups
  size_t registered_count_ = 0;
  bool has_stream_calls_ = false;
  uint64_t failed_ns_ = 0;                     ///< when a waiting call saw the failure
  std::atomic<bool> buffers_are_free_{false};  ///< after a failure; the relaunch thread stores it

  // For the relaunch thread alone: the last snapshot, and since when the peer seems not to come.
  DeviceSnapshot snapshot_;
  uint64_t sequence_ = 0;
  std::optional<std::pair<uint32_t, uint64_t>> suspect_;  ///< peer and sequence
  uint64_t suspected_at_ = 0;                             ///< number of launches
  bool has_stopped_ = false;                              ///< after a failure: the rank's launches
  uint64_t stopping_ns_ = 0;                              ///< when it saw the failure
};

}  // namespace tutti
