// Communicator: one rank's part of a group of ranks: who it is, the order of its calls, the error state, and
// a cache of bound calls.
//
// The room src/comm brings the others together:
//   Communicator           the calls of one rank: bound once, then run by its executor
//   CommunicatorBuilder    makes one, phase by phase
//   HostExecutor           runs calls on host memory; RankLinks, Workers, NetworkConnections are its parts
//   ShrinkProtocol         agrees with the ranks that are left on the next communicator
//   MemoryRegistrations    device memory that all ranks register together
//   Process                what all communicators of this process share
// Where a call runs is the executor's business (engine/executor.h); how the other ranks are is that of Peers
// (health/peers.h).
//
// Used by one thread at a time, which is the caller's (blocking calls) or the progress thread (streams). Only
// abort, fail_all, error, has_error and set_timeout may be called beside it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/host_executor.h"
#include "comm/process.h"
#include "comm/registered_memory.h"
#include "comm/shrink.h"
#include "core/result.h"
#include "device/device_executor.h"
#include "device/staged_executor.h"
#include "engine/executor.h"
#include "health/heartbeat.h"
#include "health/peers.h"

namespace tutti {

/// What the creator of a communicator decides; the rest comes from the process's Config.
struct CommOptions {
  int device = -1;  ///< -1: host memory
  bool reproducible = false;
  uint32_t threads = 1;  ///< that work on one operation
  uint64_t timeout_ms = 600'000;
  uint64_t setup_timeout_ms = 120'000;
};

/// What a communicator is made of, as the builder hands it over. Destroying the parts ends what watches the
/// other ranks.
struct CommunicatorParts {
  CommunicatorParts(Process& its_process, const CommOptions& its_options, uint32_t rank, uint32_t rank_count);
  ~CommunicatorParts();
  CommunicatorParts(const CommunicatorParts&) = delete;
  CommunicatorParts& operator=(const CommunicatorParts&) = delete;
  /// Before what has been bound goes: no launch, no handler and no peer needs this rank any more, or what
  /// they need is kept for good. Once.
  void close();
  /// Rank `rank` is lost. On the control thread. Every process of the rank's host that lives comes here; the
  /// first one marks the page.
  void lose(uint32_t rank, StatusPage::Presence presence, const Status& why);

  Process& process;
  CommOptions options;
  Peers peers;
  ShrinkProtocol shrink;
  std::unique_ptr<SegmentHeader> own_header;  ///< of a rank that is alone; else in its segment
  std::vector<FileDescriptor> lives;          ///< one of every other process of this host
  std::shared_ptr<ControlPlane> plane;        ///< null where all ranks are on one host
  std::unique_ptr<Heartbeat> heartbeat;       ///< null where no other process of this host takes part
  std::unique_ptr<Executor> executor;
  // The executor by its form; null where it has another one.
  HostExecutor* host = nullptr;  ///< also inside a StagedExecutor
  DeviceExecutor* device = nullptr;
  StagedExecutor* staged = nullptr;
  bool is_closed = false;
};

class Communicator {
 public:
  /// Blocks until all ranks have joined, or `stop` (may be null) ends it. Errors: see tutti_comm_create.
  static Result<std::unique_ptr<Communicator>> create(Process& process, const UniqueId& id,
                                                      uint32_t rank_count, uint32_t rank,
                                                      const CommOptions& options, BootstrapStop* stop);
  /// Takes the parts, unless the constructor throws.
  explicit Communicator(std::unique_ptr<CommunicatorParts>&& parts);
  ~Communicator() { parts_->close(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  uint32_t rank() const { return parts_->peers.rank(); }
  uint32_t rank_count() const { return parts_->peers.rank_count(); }
  uint32_t host_count() const { return parts_->peers.host_count(); }
  const CommOptions& options() const { return parts_->options; }
  Process& process() { return process_; }
  const Peers& peers() const { return parts_->peers; }
  ShrinkProtocol& shrink() { return parts_->shrink; }
  const ShrinkProtocol& shrink() const { return parts_->shrink; }
  /// Null for a rank whose calls do not run as kernels.
  DeviceExecutor* device() const { return parts_->device; }
  /// Null for a rank whose calls do not pass through host memory on their way from and to its device.
  StagedExecutor* staged() const { return parts_->staged; }
  /// Whether calls of this rank work on memory of a device.
  bool is_on_device() const { return device() != nullptr || staged() != nullptr; }

  /// Deadline of the operations that begin from now on; CommOptions::timeout_ms at first.
  void set_timeout(uint64_t timeout_ms);
  /// Runs one call to its end. Errors: kMismatch, kPeerLost, kTimeout, kAborted, and kUnsupported (no
  /// algorithm).
  Status run(const Call& call);
  Status run(const MessageCall& call);
  Status run(const Message& message);
  /// Runs the last collective's shape again, on other buffers: the short path. Only right after a `run` or
  /// `run_again` of a collective that succeeded, by the same thread, of a rank in host memory.
  Status run_again(const void* send, void* recv);
  /// Waits until the stream has come to a call that was staged, runs it, and lets the stream go on, however
  /// the call ends. Errors: as `run` of a call.
  Status run(const StagedCall<Call>& staged);
  Status run(const StagedCall<MessageCall>& staged);

  /// The same in pieces, so that one thread can drive several communicators: begin, then poll until it is
  /// not kMoved or kBlocked, then finish.
  Status begin(const Call& call);
  Status begin(const MessageCall& call);
  Progress poll() { return parts_->executor->poll(); }
  void moved() { parts_->executor->moved(); }
  /// Between polls that moved nothing. A failure ends the operation.
  Status wait() { return parts_->executor->wait(); }
  Status finish(Progress progress) { return parts_->executor->finish(progress); }
  /// After a failure of `wait` or `finish`: the call's buffers are the caller's again. No live peer uses them
  /// any more, or all had time enough to stop.
  bool buffers_are_free() const { return parts_->executor->buffers_are_free(); }
  /// While true the calls come from a progress thread beside computing callers: it never spins.
  void wait_beside_callers(bool beside);

  /// On a device: the operation of a call, to be launched (DeviceExecutor). Errors: as `run`, if they are
  /// known; kInvalidUsage, kInvalidArgument (the stream).
  Result<DeviceOperation> prepare_on_device(const Call& call, DeviceStream stream);
  Result<DeviceOperation> prepare_on_device(const MessageCall& call, DeviceStream stream);
  /// On a device: queues one call on a stream of the user's, and returns.
  Status issue(const Call& call, DeviceStream stream);
  Status issue(const MessageCall& call, DeviceStream stream);
  /// What has failed of the calls on streams of the user's.
  Status stream_failure() const { return device() == nullptr ? Status::ok() : device()->stream_failure(); }
  /// Ok when this rank can work on memory at `address`. `name`: of the argument. Costs nothing in a process
  /// without devices. Errors: kInvalidArgument.
  Status check_pointer(const char* name, const void* address) const;
  /// What each stream of the user's in `later` is given from now on runs after what each of `earlier` has
  /// been given. Only where is_on_device(). Errors: as DeviceRank::order_streams; kUnsupported (staged).
  Status order_streams(std::span<void* const> earlier, std::span<void* const> later);

  /// What a piece of a call returns, or what it has thrown: then the call has ended. That is an error of the
  /// communicator if the call had begun, so that peers may wait for the rest of it, or `is_one_of_many`,
  /// calls that begin and end together or in order. Else nothing has changed.
  template <class Piece>
  Status guard(const bool& is_one_of_many, Piece&& piece) noexcept {
    try {
      return piece();
    } catch (...) {
      return end_thrown(is_one_of_many);
    }
  }

  /// What put the communicator in error; ok if nothing has. Any thread.
  Status error() const { return parts_->peers.error(); }
  bool has_error() const { return parts_->peers.has_error(); }
  /// Puts the communicator in error, on all ranks, and wakes every wait of every rank. Any thread.
  void fail_all(const Status& why);
  /// The same, by tutti_comm_abort.
  void abort();
  /// No call will follow: peers that wait for one are told.
  void leave();

  /// MemoryRegistrations::add and remove; 0 and ok for ranks in host memory.
  Result<uint32_t> register_memory(const void* buffer, uint64_t bytes);
  Status deregister_memory(uint32_t number, bool waits);
  /// Memory that ranks of this communicator reach best: of the rank's device, or of the symmetric heap; given
  /// back to the process. Errors: kOutOfMemory, kSystemError.
  Result<void*> allocate(uint64_t bytes);

  /// About the last operation, for people.
  std::string explain() const;
  /// Predicted time of a collective of this shape, microseconds. Errors: kUnsupported (no algorithm).
  Result<double> predict_us(const CallShape& shape) const;

 private:
  struct ShapeHash {
    size_t operator()(const CallShape& shape) const;
  };

  template <class Whole>
  Status run_whole(Whole&& call);
  template <class Anything>
  Status run_staged(const StagedCall<Anything>& staged);
  Status run_bound(Executor& executor, const Call& call);
  /// The bound call of this shape, which is the last one from then on. Errors: kUnsupported, kOutOfMemory.
  Result<BoundCall*> find_bound(const Call& call);
  Result<std::unique_ptr<BoundCall>> bind(const Call& call);
  Result<const Algorithm*> choose(const Request& request, uint32_t* row) const;
  Request fixed_request(const CallShape& shape) const;
  Result<Price> price(const Algorithm& algorithm, const Request& request) const;
  std::unique_ptr<MemoryRegistrations> make_registrations(const CommunicatorParts& parts);
  void forget_bound();
  Status end_thrown(bool is_one_of_many) noexcept;
  void wait_for_buffers() noexcept;

  // What the short path reads, side by side. The executor and the process are those of the parts.
  HostExecutor* host_;
  BoundCall* last_ = nullptr;
  Process& process_;
  bool beside_callers_ = false;

  std::unique_ptr<MemoryRegistrations> registrations_;  ///< null for ranks without a DeviceExecutor
  std::unique_ptr<CommunicatorParts> parts_;
  std::atomic<uint64_t> timeout_ms_;
  std::unordered_map<CallShape, std::unique_ptr<BoundCall>, ShapeHash> bound_;
  std::unique_ptr<BoundCall> variable_;                    ///< the last call of variable counts
  std::shared_ptr<const VariableBlocks> variable_blocks_;  ///< that it was bound for
};

}  // namespace tutti
