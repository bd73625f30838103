// HostExecutor: runs the calls of a rank on host memory, in the calling thread: its operations, the threads
// that help with long ones, and the network in turns with both.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/carriage_trials.h"
#include "comm/network_connections.h"
#include "comm/rank_links.h"
#include "comm/workers.h"
#include "core/config.h"
#include "core/hash.h"
#include "engine/executor.h"
#include "engine/wait.h"
#include "health/peers.h"
#include "health/stall_diagnosis.h"
#include "transports/shm/heap.h"

namespace tutti {

/// What the executor is made of; all borrowed objects outlive it.
struct HostExecutorOptions {
  const Peers& peers;
  const Config& config;
  SymmetricHeap& heap;
  SegmentShape shape;
  bool reproducible = false;
  uint32_t threads = 1;  ///< that work on one operation
  uint32_t cores = 1;    ///< of the host that has fewest
  WaitMode wait_mode = WaitMode::kYield;
  WaitMode striped_wait_mode = WaitMode::kYield;  ///< while several threads of every rank work
  uint64_t timeout_ms = 600'000;
  TransportTraits network_traits = {};  ///< of the transports that may join ranks of different hosts
  std::unique_ptr<NetworkConnections> network = nullptr;  ///< null where all ranks are on one host
  std::unique_ptr<Workers> workers = nullptr;             ///< null where `threads` is 1
};

class HostExecutor final : public Executor, private StalledCall {
 public:
  explicit HostExecutor(HostExecutorOptions options);

  Facts facts() const override;
  uint64_t short_bytes() const override { return 0; }
  Result<std::unique_ptr<BoundCall>> bind(const BoundCall& call, const BindRequest& request) override;
  Result<Call> take_in(Call call) override { return call; }
  Status begin(BoundCall& bound, const Call& call) override;
  Status begin(const MessageCall& call) override;
  Progress poll() override {
    if (options_.network != nullptr) [[unlikely]]
      return poll_network();
    return striped_ ? poll_stripes() : current_->advance(waiter_.polls());
  }
  void moved() override { waiter_.moved(); }
  Status wait() override;
  Status finish(Progress progress) override;
  Status run(BoundCall& bound, const Call& call) override;
  Status run(const MessageCall& call) override;
  Status fail(const Status& why) override;
  bool has_begun() const override;
  bool buffers_are_free() const override;
  void wait_beside_callers(bool beside) override;
  void set_timeout(uint64_t timeout_ms) override { timeout_ms_.store(timeout_ms, std::memory_order_relaxed); }
  void leave() override;
  void close() override {}
  std::string explain(const BoundCall& bound) const override;

  // The last call again, on other buffers: `run_short`, and where that returns false, `run_rest`. Two
  // functions, so that the short path keeps nothing for the rest.

  /// The short path. No virtual call, no allocation, no lock. False: the call has not ended.
  bool run_short(BoundCall& bound, const void* send, void* recv);
  /// Errors: as `run`, and what has put the communicator in error.
  Status run_rest(BoundCall& bound, const void* send, void* recv);
  /// One message to or from another rank.
  Status run(const Message& message);

  /// Bytes for `peer` that its host has not confirmed. Any thread.
  uint64_t unconfirmed_bytes(uint32_t peer) const override;

 private:
  struct Bound final : BoundCall {
    explicit Bound(const BoundCall& call) : BoundCall(call) {}

    std::unique_ptr<Operation> operation;
    std::vector<std::unique_ptr<Operation>> stripes;  ///< of the other threads; none: one thread does it all
    bool is_short = false;                            ///< Operation::is_short, on the caller's buffers
    bool is_long = false;                             ///< is timed or has stripes
    bool may_refer = false;                           ///< ranks may use each other's buffers
    bool tries_pulling = false;                       ///< a large call between processes
    CarriageTrials carriage_trials;                   ///< of what this rank sends
    uint64_t began_ns = 0;
  };

  BindOptions bind_options() const;
  uint32_t stripe_count(uint64_t call_bytes) const;
  void enter(uint64_t word, uint64_t count);
  Status start(Bound& bound, const void* send, void* recv);
  Status look_again();
  void start_long(Bound& bound, const Buffers& buffers, uint16_t signature);
  void finish_long(Bound& bound);
  static void choose_carriage(Bound& bound);
  void expose_buffer(Buffers& buffers);
  bool prepare_messages();
  Status start_messages(bool may_refer);
  Operation* bind_messages();
  Progress poll_stripes();
  Progress poll_network();
  Status check_progress(uint64_t waited_ns);
  Status diagnose(uint64_t waited_ns);
  void clear_wait();
  bool holds_references() const;
  WaitMode wait_mode() const;
  Waiter make_waiter() { return Waiter(wait_mode(), options_.network.get()); }

  // StalledCall
  uint64_t sequence() const override { return sequence_; }
  Obstacle obstacle() const override;
  bool in_collective() const override { return current_ != messages_ || messages_are_collective_; }
  bool in_messages() const override { return current_ == messages_; }
  const std::vector<Message>& messages() const override { return message_list_; }
  SliceLimits message_limits() const override { return bind_options().slices(); }
  bool is_draining() const override { return draining_; }
  bool still_waits_for(uint32_t peer) override;
  void peer_may_come() override {}
  bool lends_to_network(uint32_t peer) const override;
  Status way_to(uint32_t peer) const override;

  HostExecutorOptions options_;
  SegmentHeader& header_;  ///< this rank's own
  RankLinks links_;
  std::vector<std::unique_ptr<RankLinks>> stripe_links_;  ///< of the stripes that workers run
  StallDiagnosis diagnosis_;
  std::atomic<uint64_t> timeout_ms_;

  uint64_t sequence_ = 0;  ///< collectives entered
  bool beside_callers_ = false;
  Waiter waiter_{WaitMode::kYield};
  /// What the caller's thread runs. Of a striped operation: its own stripe, or the one that is stuck.
  Operation* current_ = nullptr;
  Bound* long_call_ = nullptr;        ///< under way: has stripes, or is timed
  bool striped_ = false;              ///< workers run the other stripes of the operation
  bool draining_ = false;             ///< current_ is done, but the network has not taken all of it
  bool shows_wait_ = false;           ///< on the status page
  uint64_t buffers_deadline_ns_ = 0;  ///< until when peers may use the buffers of a call that has failed

  Operation* messages_ = nullptr;         ///< the last group of messages
  bool messages_are_collective_ = false;  ///< messages_ is an all_to_all_v
  std::vector<Message> message_list_;     ///< of the last group
  /// Groups bound lately: a group of the same peers and directions is bound anew without allocating.
  std::vector<std::unique_ptr<Operation>> bound_messages_;
  size_t oldest_bound_messages_ = 0;
  std::array<std::byte, 64> barrier_bytes_{};
};

inline bool HostExecutor::run_short(BoundCall& call, const void* send, void* recv) {
  auto& bound = static_cast<Bound&>(call);
  SegmentHeader& header = header_;
  if (!bound.is_short || header.alert.state.load(std::memory_order_acquire) == Alert::kRaised) [[unlikely]]
    return false;
  header.status.sequence.store(++sequence_, std::memory_order_release);
  current_ = bound.operation.get();
  const uint16_t signature = call_signature(bound.signature_seed, sequence_);
  if (current_->start_short(send, recv, signature, waiter_.polls()) != Progress::kDone) return false;
  header_.status.completed.store(sequence_, std::memory_order_release);
  waiter_.moved();
  return true;
}

}  // namespace tutti
