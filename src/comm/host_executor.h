// HostExecutor: runs calls on host memory in the calling thread. It owns the operations, the helper threads
// for long ones, and the network connections.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/network_connections.h"
#include "comm/rank_links.h"
#include "core/config.h"
#include "core/hash.h"
#include "engine/executor.h"
#include "engine/wait.h"
#include "engine/workers.h"
#include "health/peers.h"
#include "health/stall_diagnosis.h"
#include "transports/shm/heap.h"
#include "transports/shm/pull.h"

namespace tutti {

/// Borrowed objects outlive the executor.
class JobTopology;

struct HostExecutorOptions {
  const Peers& peers;
  const Config& config;
  SymmetricHeap& heap;
  SegmentShape shape;
  const JobTopology* topology = nullptr;  ///< null for a single rank
  bool reproducible = false;
  uint32_t threads = 1;         ///< that work on one operation
  uint32_t cores = 1;           ///< of the host with the fewest
  bool are_containers = false;  ///< the hosts are parts of one machine
  WaitMode wait_mode = WaitMode::kYield;
  WaitMode striped_wait_mode = WaitMode::kYield;  ///< while several threads of every rank work
  uint64_t longest_sleep_ns = Waiter::kLongestSleepNs;
  uint64_t timeout_ms = 600'000;
  TransportTraits network_traits = {};                    ///< of transports between hosts
  std::unique_ptr<NetworkConnections> network = nullptr;  ///< null if all ranks are on one host
  std::unique_ptr<Workers> workers = nullptr;             ///< null if `threads` is 1
};

class HostExecutor final : public Executor, private StalledCall {
 public:
  explicit HostExecutor(HostExecutorOptions options);

  Facts facts() const override;
  uint64_t short_bytes(const Request& /*request*/) const override { return 0; }
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
  Status leave() override;
  void close() override {}
  std::string explain(const BoundCall& bound) const override;

  // The last call again, on other buffers: `run_short`, and where that returns false, `run_rest`. Two
  // functions, so that the short path keeps nothing for the rest.

  /// The short path. No virtual call, no allocation, no lock. False: the call has not ended.
  bool run_short(BoundCall& bound, const void* send, void* recv);
  /// Errors: as `run`, and the communicator's error.
  Status run_rest(BoundCall& bound, const void* send, void* recv);
  Status run(const Message& message);
  /// From now on, blocks of all_to_all_v of up to `most_bytes` travel by this algorithm; null: every
  /// block is a message. All ranks call it alike, before an all_to_all_v.
  void gather_blocks(const Algorithm* algorithm, uint64_t most_bytes);
  /// Waits until a message of any rank has come. Returns its sender. Ranks whose messages have come take
  /// turns. `seed`: of the message that is wanted.
  Result<uint32_t> await_sender(uint64_t seed);

  /// As NetworkConnections. Local to this rank.
  Result<uint32_t> register_buffer(std::byte* address, uint64_t bytes);
  void deregister_buffer(uint32_t number) { options_.network->deregister_buffer(number); }

  /// Null if all ranks are on one host.
  NetworkConnections* network() const { return options_.network.get(); }
  /// How messages are cut.
  SliceLimits slices() const { return bind_options().slices(); }

  /// Bytes that the peer's host has not confirmed. Any thread.
  uint64_t unconfirmed_bytes(uint32_t peer) const override;

 private:
  struct Bound final : BoundCall {
    explicit Bound(const BoundCall& call) : BoundCall(call) {}

    std::unique_ptr<Operation> operation;
    std::vector<std::unique_ptr<Operation>> stripes;  ///< for the workers, if any
    bool is_short = false;                            ///< Operation::is_short for these buffers
    bool is_long = false;                             ///< may be pulled, or has stripes
    bool may_refer = false;                           ///< ranks may use each other's buffers
    bool tries_pulling = false;                       ///< a large call between processes
    bool pulls = false;                               ///< this call may be pulled
    CarriageTrials carriage_trials;                   ///< of calls that may be pulled
    /// If this rank only sends: links from its receivers. A message there means that ranks named different
    /// roots.
    std::vector<RecvLink*> watched;
    uint32_t looks_left = 0;     ///< at `watched`, with a turn of the network
    bool becomes_short = false;  ///< whether the short path is taken after these looks
    uint64_t began_ns = 0;
    PullableBuffer pullable_input;
    PullableBuffer pullable_output;
  };

  uint64_t reference_bytes() const;
  BindOptions bind_options() const;
  uint32_t stripe_count(uint64_t call_bytes) const;
  void enter(uint64_t word, uint64_t count, uint64_t counts);
  /// Counts a collective in the history. Returns the signature of its messages.
  static uint32_t next_signature(StatusPage& mine, uint64_t seed) {
    std::atomic<uint64_t>& history = mine.history;
    const uint64_t next = next_history(history.load(std::memory_order_relaxed), seed);
    history.store(next, std::memory_order_release);
    return history_signature(next);
  }
  Status start(Bound& bound, const void* send, void* recv);
  Status check_alert_before_use();
  Status check_alert_after_use();
  void start_long(Bound& bound, const Buffers& buffers, uint32_t signature);
  void finish_long(Bound& bound);
  static void choose_carriage(Bound& bound, const Buffers& buffers);
  Status what_differs() const;
  void expose_buffer(Buffers& buffers);
  void withdraw_buffer();
  bool prepare_messages();
  Status start_messages(bool may_refer);
  Status repeat(Operation& operation, const Message& message);
  void list_message(const Message& message);
  Operation* bind_messages();
  Operation* bind_collective(const CallShape& shape, uint64_t history);
  std::optional<uint32_t> find_sender(uint64_t seed);
  bool is_in_later_all_to_all_v(uint32_t peer) const;
  Status check_senders(uint64_t waited_ns);
  Progress poll_stripes();
  Progress poll_network();
  Progress poll_network_once();
  std::optional<uint32_t> torn_peer() const;
  std::optional<uint32_t> unsent_peer() const;
  Status check_progress(uint64_t waited_ns);
  Status diagnose(uint64_t waited_ns);
  void clear_wait();
  bool holds_references() const;
  Status check_unread(Bound& bound);
  bool may_be_ahead(uint32_t peer) const;
  Status check_all_read();
  bool has_other_history(uint32_t peer) const;
  bool has_own_core() const;
  uint64_t pull_bytes() const;
  PullCost least_pull_cost() const;
  bool takes_short_rings(const Plan& plan, uint64_t bytes) const;
  std::vector<RecvLink*> watched_links(const Plan& plan);
  WaitMode wait_mode() const;
  Waiter make_waiter() { return Waiter(wait_mode(), options_.network.get(), options_.longest_sleep_ns); }

  // StalledCall
  uint64_t sequence() const override { return header_.status.sequence.load(std::memory_order_relaxed); }
  Obstacle obstacle() const override;
  bool in_collective() const override { return current_ != messages_ || messages_are_collective_; }
  bool in_messages() const override { return current_ == messages_; }
  const std::vector<Message>& messages() const override { return message_list_; }
  SliceLimits message_limits() const override { return slices(); }
  bool is_draining() const override { return draining_; }
  bool still_waits_for(uint32_t peer) override;
  void peer_may_come() override {}
  bool lends_to_network(uint32_t peer) const override;
  Status torn_way() const override;

  HostExecutorOptions options_;
  SegmentHeader& header_;
  RankLinks links_;
  RankLinks short_links_;
  std::vector<std::unique_ptr<RankLinks>> stripe_links_;  ///< of the workers' stripes
  StallDiagnosis diagnosis_;
  std::atomic<uint64_t> timeout_ms_;

  bool beside_callers_ = false;
  Waiter waiter_{WaitMode::kYield};
  /// What the caller's thread runs. In a striped call: its own stripe, or the stuck one.
  Operation* current_ = nullptr;
  Bound* long_call_ = nullptr;        ///< running; has stripes or is timed
  bool striped_ = false;              ///< workers run the other stripes
  bool draining_ = false;             ///< current_ is done, but the network has not taken all of it
  bool shows_wait_ = false;           ///< on the status page
  bool may_refer_ = false;            ///< the call under way may use peers' buffers
  bool had_exposed_ = false;          ///< the failed call has shown its receive buffer to peers
  uint64_t buffers_deadline_ns_ = 0;  ///< after a failed call: peers may use its buffers until then

  Operation* messages_ = nullptr;
  const bool has_string_moves_ = reduce::has_string_moves();
  bool received_ = false;                 ///< the last messages were received, not only sent
  bool messages_are_collective_ = false;  ///< messages_ is an all_to_all_v
  uint32_t last_sender_ = 0;              ///< that await_sender has found
  std::vector<bool> set_aside_;           ///< by rank: what has come is no message for await_sender
  std::vector<Message> message_list_;
  /// Recent groups: a group with the same peers and directions is bound again without allocation.
  std::vector<std::unique_ptr<Operation>> bound_messages_;
  std::array<Operation*, 2> repeated_{};  ///< of bound_messages_: the last single receive, and send
  size_t oldest_bound_messages_ = 0;
  /// Operations of all_to_all_v, by the length of the longest block; each named algorithm's is kept.
  std::map<uint64_t, std::unique_ptr<Operation>> gathered_blocks_;
  Operation* gathers_ = nullptr;  ///< one of them; null: every block is a message
  std::array<std::byte, 64> barrier_bytes_{};
};

inline bool HostExecutor::run_short(BoundCall& call, const void* send, void* recv) {
  auto& bound = static_cast<Bound&>(call);
  SegmentHeader& header = header_;
  if (!bound.is_short || header.alert.state.load(std::memory_order_acquire) == Alert::kRaised) [[unlikely]]
    return false;
  header.status.sequence.store(header.status.sequence.load(std::memory_order_relaxed) + 1,
                               std::memory_order_release);
  current_ = bound.operation.get();
  if (current_->start_short(send, recv, next_signature(header.status, bound.signature_seed),
                            waiter_.polls()) != Progress::kDone)
    return false;
  StatusPage& mine = header_.status;
  mine.completed.store(mine.sequence.load(std::memory_order_relaxed), std::memory_order_release);
  waiter_.moved();
  return true;
}

}  // namespace tutti
