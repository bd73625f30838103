// Communicator: one rank's part of a group of ranks: identity, order of calls, error state, and a cache of
// bound calls.
//
// The parts of src/comm:
//   Communicator           the calls of one rank: bound once, then run by its executor
//   CommunicatorBuilder    makes a communicator, phase by phase
//   HostExecutor           runs calls on host memory, with RankLinks, Workers and NetworkConnections
//   ShrinkProtocol         agrees with the remaining ranks on the next communicator
//   MemoryRegistrations    device memory that all ranks register together
//   Process                what all communicators of this process share
// The executor decides where a call runs (engine/executor.h). Peers knows the other ranks (health/peers.h).
//
// One thread at a time: the caller's (blocking calls) or the progress thread (streams). Any thread may call
// abort, fail_all, error, has_error and set_timeout.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/host_executor.h"
#include "comm/job_topology.h"
#include "comm/memory_registrations.h"
#include "comm/process.h"
#include "comm/shrink.h"
#include "core/result.h"
#include "device/device_executor.h"
#include "device/staged_executor.h"
#include "engine/executor.h"
#include "engine/pieces.h"
#include "health/heartbeat.h"
#include "health/peers.h"
#include "health/socket_exchange.h"

namespace tutti {

/// The creator gives these settings. All others come from the process's Config.
struct CommOptions {
  int device = -1;  ///< -1: host memory
  bool reproducible = false;
  uint32_t threads = 1;  ///< that work on one operation
  uint64_t timeout_ms = 600'000;
  uint64_t setup_timeout_ms = 120'000;
  std::string algorithm = {};  ///< used for every call that it supports; empty: choose
};

/// Whether the error is a lack of this process or host: descriptors, memory, a system call.
inline bool is_resource_error(const Status& why) {
  return why.code() == Code::kSystemError || why.code() == Code::kOutOfMemory;
}

/// Made by the builder. Destroying the parts ends the watching of other ranks.
struct CommunicatorParts {
  CommunicatorParts(Process& its_process, const CommOptions& its_options, uint32_t rank, uint32_t rank_count);
  ~CommunicatorParts();
  CommunicatorParts(const CommunicatorParts&) = delete;
  CommunicatorParts& operator=(const CommunicatorParts&) = delete;
  /// Once, before bound calls are destroyed. Afterwards no launch, handler or peer uses this rank. Parts that
  /// may still be in use are kept forever.
  void close();
  /// A rank is lost. Runs on the control thread of every live process on its host. The first process marks
  /// the status page.
  void lose(uint32_t rank, StatusPage::Presence presence, const Status& why);

  Process& process;
  CommOptions options;
  Peers peers;
  ShrinkProtocol shrink;
  std::unique_ptr<SegmentHeader> own_header;  ///< of a single rank; otherwise in the segment
  std::vector<FileDescriptor> lives;          ///< one for every other process of this host
  std::shared_ptr<ControlPlane> plane;        ///< null if all ranks are on one host
  std::unique_ptr<SocketExchange> exchange;   ///< null if all ranks are on one host
  std::unique_ptr<Heartbeat> heartbeat;       ///< null if this host has no other process
  std::shared_ptr<JobTopology> topology;      ///< null for a single rank
  std::unique_ptr<Executor> executor;
  // The executor by its form; the others are null.
  HostExecutor* host = nullptr;  ///< also inside a StagedExecutor
  DeviceExecutor* device = nullptr;
  StagedExecutor* staged = nullptr;
  bool some_rank_is_staged = false;  ///< so all ranks cut long calls (engine/pieces.h)
  bool is_closed = false;
};

class Communicator {
 public:
  /// Blocks until all ranks have joined or `stop` (may be null) ends it. Errors: see tutti_comm_create.
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
  /// Null if calls do not run as kernels.
  DeviceExecutor* device() const { return parts_->device; }
  /// Null if calls do not pass through host memory.
  StagedExecutor* staged() const { return parts_->staged; }
  bool is_on_device() const { return device() != nullptr || staged() != nullptr; }

  /// Applies to operations that begin from now on. At first CommOptions::timeout_ms.
  void set_timeout(uint64_t timeout_ms);
  /// From now on as CommOptions::algorithm. Does not communicate: every rank names the same algorithm between
  /// the same two calls, while no call is under way. What was bound under each name is kept.
  void force_algorithm(const std::string& name);
  /// Runs a call to its end. Errors: kMismatch, kPeerLost, kTimeout, kAborted, kUnsupported (no algorithm).
  Status run(const Call& call);
  Status run(const MessageCall& call);
  Status run(const Message& message);
  /// Receives the message that comes first, from whichever rank; `message.peer` is ignored. Returns the
  /// sender. For a rank in host memory, not alone. Errors: as `run`.
  Result<uint32_t> run_from_any(Message message);
  /// The short path: the last collective again, on other buffers in host memory. Only after a successful
  /// `run` or `run_again` of a collective in the same thread.
  Status run_again(const void* send, void* recv);
  /// For each staged call: waits until the stream reaches the call, runs it, and releases the stream, even
  /// after an error. A graph's launch has come to a captured one already. Errors: as `run`; the first one.
  template <class Anything>
  Status run(std::span<const StagedCall<Anything>> staged);
  /// Whether the call must be made in pieces, on all ranks.
  bool has_pieces(const CallShape& shape) const {
    return parts_->some_rank_is_staged && tutti::has_pieces(shape);
  }
  /// Whether the call must be made as messages (engine/byte_moves.h), on all ranks. Notes it for `explain`.
  bool goes_as_messages(const CallShape& shape);
  /// Runs all pieces of a call to their end. Errors: as `run`.
  Status run(std::span<const Call> pieces);

  /// A call step by step, so that one thread can drive several communicators: `begin`; `poll` while it
  /// returns kMoved or kBlocked; `finish`.
  Status begin(const Call& call);
  Status begin(const MessageCall& call);
  Progress poll() { return parts_->executor->poll(); }
  void moved() { parts_->executor->moved(); }
  /// Call it between polls that moved nothing. An error ends the operation.
  Status wait() { return parts_->executor->wait(); }
  Status finish(Progress progress) { return parts_->executor->finish(progress); }
  /// After an error of `wait` or `finish`: whether the caller may use the buffers again. If so, no live peer
  /// uses them, or all have had time to stop.
  bool buffers_are_free() const { return parts_->executor->buffers_are_free(); }
  /// True while a progress thread calls beside computing callers: then it never spins.
  void wait_beside_callers(bool beside);

  /// Makes an operation for a launch on the device (DeviceExecutor). Errors: those of `run` that are known by
  /// then; kInvalidUsage, kInvalidArgument (the stream).
  Result<DeviceOperation> prepare_on_device(const Call& call, DeviceStream stream);
  Result<DeviceOperation> prepare_on_device(const MessageCall& call, DeviceStream stream);
  /// Queues a call on a user's stream. Does not block.
  Status issue(const Call& call, DeviceStream stream);
  Status issue(const MessageCall& call, DeviceStream stream);
  /// The first error of calls on user streams.
  Status stream_failure() const { return device() == nullptr ? Status::ok() : device()->stream_failure(); }
  /// Checks that this rank can use memory at `address`; `name` is the argument's. Free without devices.
  /// Errors: kInvalidArgument.
  Status check_pointer(const char* name, const void* address) const;
  /// Later work on the streams `later` runs after all present work on `earlier`. Requires is_on_device().
  /// Errors: as DeviceRank::order_streams; kUnsupported (staged).
  Status order_streams(std::span<void* const> earlier, std::span<void* const> later);

  /// Runs `body`, a part of a call. An exception ends the call and becomes an error. If the call has begun,
  /// or `is_one_of_many` that belong together, peers may wait for its rest, so the communicator is in error
  /// too. Otherwise nothing has changed.
  template <class Body>
  Status guard(const bool& is_one_of_many, Body&& body) noexcept {
    try {
      return body();
    } catch (...) {
      return end_thrown(is_one_of_many);
    }
  }

  /// After an error of one of many calls that belong together: if this rank lacks memory or a system call,
  /// its peers wait for the call, or take the next one for it. So the communicator is then in error too.
  Status share_resource_error(const Status& failed) noexcept;

  /// Any thread.
  Status error() const { return parts_->peers.error(); }
  bool has_error() const { return parts_->peers.has_error(); }
  /// Puts the communicator in error on all ranks, and ends every wait. Any thread.
  void fail_all(const Status& why);
  /// fail_all for tutti_comm_abort. Works when memory is short, too.
  void abort();
  /// Tells waiting peers that this rank makes no more calls, also when it returns an error. Errors: as
  /// Executor::leave; kOutOfMemory.
  Status leave() noexcept;

  /// On a device MemoryRegistrations::add and remove; else HostExecutor::register_buffer, which is local.
  Result<uint32_t> register_memory(void* buffer, uint64_t bytes);
  Status deregister_memory(uint32_t number, bool waits);
  /// Takes memory on the rank's device, or in the symmetric heap. The process frees it. Errors: kOutOfMemory,
  /// kSystemError.
  Result<void*> allocate(uint64_t bytes);

  /// Describes the last operation to a person.
  std::string explain() const;
  /// Predicts the time of a collective. Errors: kUnsupported (no algorithm).
  Result<double> predict_us(const CallShape& shape) const;

 private:
  struct ShapeHash {
    size_t operator()(const CallShape& shape) const;
  };

  /// How all_to_all_v travels between hosts. All ranks choose alike.
  struct BlockChoice {
    const Algorithm* algorithm = nullptr;  ///< null: every block is a message
    uint64_t most_bytes = 0;               ///< longer blocks are messages
    const PricedRow* priced = nullptr;     ///< null: the algorithm was named
  };
  struct BoundCalls {
    std::unordered_map<CallShape, std::unique_ptr<BoundCall>, ShapeHash> by_shape;
    std::unique_ptr<BoundCall> variable;                    ///< last call with variable counts
    std::shared_ptr<const VariableBlocks> variable_blocks;  ///< its blocks
    std::optional<BlockChoice> blocks;                      ///< empty until the first all_to_all_v
  };

  template <class Whole>
  Status run_whole(Whole&& call);
  template <class Anything>
  Status run_staged(const StagedCall<Anything>& staged);
  Status run_bound(Executor& executor, const Call& call);
  /// Becomes the last call. Errors: kUnsupported, kOutOfMemory.
  Result<BoundCall*> find_bound(const Call& call);
  Result<std::unique_ptr<BoundCall>> bind(const Call& call);
  /// Sets the call's algorithm, row and priced row, and whether it wants packets.
  Status choose(const Request& request, BoundCall& call) const;
  /// Whether calls of this executor have prices.
  bool has_prices() const;
  /// The process's choice table, or rank 0's measured one.
  const ChoiceTable& choice_table() const;
  Request fixed_request(const CallShape& shape) const;
  std::string explain_row(const BoundCall& call) const;
  std::string why_no_price(const PricedRow* priced) const;
  std::string by_whom() const;
  std::string explain_choice(const BoundCall& call) const;
  Result<Price> price(const Algorithm& algorithm, const Request& request) const;
  std::unique_ptr<MemoryRegistrations> make_registrations(const CommunicatorParts& parts);
  void forget_bound();
  void prepare(const MessageCall& call);
  void choose_blocks();
  std::string explain_blocks() const;
  Status end_thrown(bool is_one_of_many) noexcept;
  Status end_on_all_ranks(const Status& failed) noexcept;
  void end_failed(Status& status) noexcept;

  // What the short path reads, side by side. The executor and the process are those of the parts.
  HostExecutor* host_;
  BoundCall* last_ = nullptr;
  Process& process_;
  bool beside_callers_ = false;

  std::unique_ptr<MemoryRegistrations> registrations_;  ///< null without a DeviceExecutor
  std::unique_ptr<CommunicatorParts> parts_;
  std::atomic<uint64_t> timeout_ms_;
  // Nothing is allocated before a call: a rank that failed here would fail when others have joined.
  const std::string* forced_;  ///< CommOptions::algorithm, or what force_algorithm has named
  BoundCalls bound_at_first_;  ///< of CommOptions::algorithm
  std::map<std::string, BoundCalls> bound_by_name_;  ///< of others that were named
  BoundCalls* bound_ = &bound_at_first_;             ///< those of forced_
  std::optional<CallShape> last_messages_;           ///< the last collective, if it went as messages
};

}  // namespace tutti
