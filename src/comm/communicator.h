// Communicator: one rank's part of a group of ranks: its links, its cache of bound operations, the order of
// its calls and what it knows of its peers' health.
//
// Used by one thread at a time, which is the caller's (blocking calls) or the progress thread (streams). Only
// `abort`, `async_error` and `peer_lost` may be called beside it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "algorithms/choice.h"
#include "bootstrap/file_server.h"
#include "bootstrap/server.h"
#include "comm/carriage_trials.h"
#include "comm/members.h"
#include "comm/network_connections.h"
#include "comm/process.h"
#include "comm/rank_links.h"
#include "comm/shrink_state.h"
#include "comm/workers.h"
#include "core/result.h"
#include "device/device_rank.h"
#include "device/relaunch_thread.h"
#include "device/staging.h"
#include "engine/call.h"
#include "engine/links.h"
#include "engine/operation.h"
#include "engine/wait.h"
#include "health/control_plane.h"
#include "health/heartbeat.h"
#include "health/status_copy.h"
#include "transports/shm/segment.h"

namespace tutti {

struct KeptFiles;
struct OfferedRegistration;
struct RankFacts;
struct RegistrationAnswer;
class Bootstrap;

/// What a verdict needs to know of a peer.
struct PeerSnapshot {
  StatusCopy page;
  bool has_answered = true;  ///< the page says anything yet
  /// All that the peer sent before the look is on this host.
  bool is_settled = true;
};

/// What the creator of a communicator decides; the rest comes from the process's Config.
struct CommOptions {
  int device = -1;  ///< -1: host memory
  bool reproducible = false;
  uint32_t threads = 1;  ///< that work on one operation
  uint64_t timeout_ms = 600'000;
  uint64_t setup_timeout_ms = 120'000;
};

class Communicator {
 public:
  /// Blocks until all ranks have joined, or `stop` (may be null) ends it. Errors: see tutti_comm_create.
  static Result<std::unique_ptr<Communicator>> create(Process& process, const UniqueId& id,
                                                      uint32_t rank_count, uint32_t rank,
                                                      const CommOptions& options, BootstrapStop* stop);
  ~Communicator();

  uint32_t rank() const { return rank_; }
  uint32_t rank_count() const { return rank_count_; }
  uint32_t host_count() const { return host_count_; }
  const CommOptions& options() const { return options_; }
  Process& process() { return process_; }

  /// Deadline of the operations that begin from now on; CommOptions::timeout_ms at first.
  void set_timeout(uint64_t timeout_ms) { timeout_ms_.store(timeout_ms, std::memory_order_relaxed); }
  /// Runs one call to its end. Errors: kMismatch, kPeerLost, kTimeout, kAborted, and kUnsupported (no
  /// algorithm).
  Status run(const Call& call);
  Status run(const MessageCall& call);
  Status run(const Message& message);
  /// Runs the last collective's shape again, on other buffers: the short path. Only right after a `run` or
  /// `run_again` of a collective that succeeded, by the same thread.
  Status run_again(const void* send, void* recv);

  /// On a device: queues one call on a stream of the user's, and returns. Errors: as `run`, if they are
  /// known; kInvalidUsage, kInvalidArgument (the stream).
  Status issue(const Call& call, DeviceStream stream);
  Status issue(const MessageCall& call, DeviceStream stream);
  /// The same in pieces, so that ranks which one thread drives are launched together. The operation of a
  /// call, to be launched before the next one's; a group's messages to the rank itself are copied already,
  /// and its program is null where none are left. Only where runs_on_device().
  Result<DeviceOperation> prepare_on_device(const Call& call, DeviceStream stream);
  Result<DeviceOperation> prepare_on_device(const MessageCall& call, DeviceStream stream);
  /// Launches operations of ranks of this communicator in this process, one of each at the most.
  Status launch(std::span<const DeviceOperation> operations);
  /// After a launch that has failed: puts the communicator in error if the driver has failed, or if this
  /// rank's part runs all the same. Says whether it does: then `wait` returns when it has left.
  bool give_up_launch(const Status& why);
  /// Whether the other one is of the same communicator, of a rank of this process. Only where both
  /// runs_on_device().
  bool is_same_as(const Communicator& other) const { return device_->has_peer(*other.device_); }
  /// Whether calls of this rank run as kernels.
  bool runs_on_device() const { return device_ != nullptr; }
  /// Whether calls of this rank work on memory of a device.
  bool is_on_device() const { return device_ != nullptr || staging_ != nullptr; }
  /// Ok when this rank can work on memory at `address`. `name`: of the argument. Costs nothing in a process
  /// without devices. Errors: kInvalidArgument.
  Status check_pointer(const char* name, const void* address) const;
  /// What each stream of the user's in `later` is given from now on runs after what each of `earlier` has
  /// been given. Only where is_on_device(). Errors: as DeviceRank::order_streams; kUnsupported (as `stage`).
  Status order_streams(std::span<void* const> earlier, std::span<void* const> later);
  /// What has failed of the calls on streams.
  Status stream_failure() const;

  // staged_calls.cc:

  /// Whether calls of this rank pass through host memory on their way from and to its device: then what is
  /// issued on a stream of the user's is staged, in order, and run later, in the same order, by a thread that
  /// runs nothing else of the communicator meanwhile.
  bool is_staged() const { return staging_ != nullptr; }
  /// Queues the call's copies on a stream of the user's, and a wait of the stream for `run`; returns at once.
  /// Beside `run`. Errors: what is known to have failed; kUnsupported (the stream is being captured),
  /// kInvalidArgument (it belongs to another device), kOutOfMemory.
  Result<StagedCall<Call>> stage(const Call& call, DeviceStream stream);
  Result<StagedCall<MessageCall>> stage(const MessageCall& call, DeviceStream stream);
  /// Waits until the stream has come to the call, runs it to its end, and lets the stream go on, however it
  /// ends. Errors: as `run` of a call.
  Status run(const StagedCall<Call>& staged);
  Status run(const StagedCall<MessageCall>& staged);

  /// In place of `run`, for a call that nobody will run: first `fail_all`, then, when those that were staged
  /// before have ended, this lets its stream go on.
  void pass_staged(uint32_t number) { staging_->device().release(number); }

  /// The same in pieces, so that one thread can drive several communicators: begin, then poll until it is
  /// not kMoved or kBlocked, then finish.
  Status begin(const Call& call);
  Status begin(const MessageCall& call);
  Progress poll() {
    if (device_ != nullptr) [[unlikely]]
      return poll_device();
    if (remote_ != nullptr) [[unlikely]]
      return poll_remote();
    return striped_ ? poll_stripes() : current_->advance(waiter_.polls());
  }
  /// Between polls that moved nothing. A failure ends the operation.
  Status wait();
  /// After a failure of `wait` or `finish`: the call's buffers are the caller's again. No live peer is
  /// reading them, or writing to the one that it was offered, any more; or all have had time enough to
  /// notice.
  bool buffers_are_free() const;
  void moved() { waiter_.moved(); }
  /// While true the calls come from a progress thread beside computing callers: it never spins.
  void wait_beside_callers(bool beside);
  Status finish(Progress progress);
  /// What a piece of a call returns, or what it has thrown: then the call has ended. That is an error of the
  /// communicator if the call had begun, so that peers may wait for the rest of it, or `is_one_of_many`,
  /// calls that begin and end together or in order. Else nothing has changed.
  template <class Piece>
  Status guard(bool is_one_of_many, Piece&& piece) noexcept {
    try {
      return piece();
    } catch (...) {
      return end_thrown(is_one_of_many);
    }
  }

  /// What put the communicator in error; ok if nothing has. Any thread.
  Status error() const { return alert_status(header_->alert); }
  bool has_error() const { return header_->alert.state.load(std::memory_order_acquire) == Alert::kRaised; }
  /// Puts the communicator in error, on all ranks, and wakes every wait of every rank. Any thread.
  void fail_all(const Status& why);
  /// The same, by tutti_comm_abort.
  void abort();
  /// The process of a peer on this host has ended. Called on the control thread.
  void peer_lost(uint32_t rank);
  /// No call will follow: peers that wait for one are told.
  void leave();

  // regions.cc; all ranks, in the order of their calls:

  /// Makes memory of the rank's device a region: its number, the same on all ranks, or 0: nothing is
  /// registered anywhere (ranks in host memory; memory that a peer cannot map). Errors: as `run`.
  Result<uint32_t> register_memory(const void* buffer, uint64_t bytes);
  /// Undoes it, once the rank's calls have ended. `waits`: until all ranks have done so, or something fails;
  /// else the rank goes alone. Errors: as `run`; it is undone all the same.
  Status deregister_memory(uint32_t number, bool waits);
  /// Memory that ranks of this communicator reach best: of the rank's device, or of the symmetric heap; given
  /// back to the process. Errors: kOutOfMemory, kSystemError.
  Result<void*> allocate(uint64_t bytes);

  // shrink.cc; beside operations, by one thread:

  /// Before the first agree_on_members. Waits for ranks that are on their way out of the shrink before, and
  /// need to see that this one is. Errors: kTimeout, kAborted (stop_shrink).
  Status begin_shrink(uint64_t deadline_ns);
  /// Waits until all ranks that live and are not `excluded` (by rank) have come here too, and agrees with
  /// them: on who makes up the next communicator, which they are to meet in now; or, no members, that the one
  /// which this rank holds is the next communicator of all. Errors: kTimeout naming who has not come,
  /// kMismatch (a rank excludes others), kAborted (stop_shrink), kSystemError (also: a member of the last
  /// agreement that lives has given up).
  Result<std::optional<Members>> agree_on_members(const std::vector<bool>& excluded, uint64_t deadline_ns);
  /// This rank has the communicator ready that is met under `id`, in place of any that it held before, and
  /// keeps it until the shrink ends or it holds another.
  void hold_next(const UniqueId& id);
  /// From now on `stop` is called when one of the members is lost; null: no more. False when one is lost
  /// already, or the shrink was stopped.
  bool watch_members(const Members* members, BootstrapStop* stop);
  /// Whether this rank may follow that agreement. Errors: kMismatch (another rank excludes others),
  /// kInvalidUsage (it excludes this rank).
  Status check_members(const Members& members, const std::vector<bool>& excluded) const;
  /// Tells all ranks that this one does not follow the agreement of that id.
  void refuse(const UniqueId& id);
  /// This rank gives up, and what it holds, because of `why`. Who has followed the same agreement is told
  /// not to wait for it.
  void give_up_shrink(const Status& why);
  /// Ends a shrink that another thread is in, now or later: the communicator is aborted. Any thread.
  void stop_shrink();
  /// Whether others have given this rank up, for it was stopped or cut off: there is no way back to them.
  bool is_given_up() const;
  bool shrink_is_stopped() const { return shrink_stopped_.load(std::memory_order_acquire); }

  /// About the last operation, for people.
  std::string explain() const;
  /// What this rank and its peers are doing, a line each, for people. Called on the control thread. Of ranks
  /// on other hosts it is what they last answered; each report asks them anew.
  std::string report() const;
  /// Predicted time of a collective of this shape, microseconds. Errors: kUnsupported (no algorithm).
  Result<double> predict_us(const CallShape& shape) const;

 private:
  /// A cached binding.
  struct Bound {
    CallShape shape;
    uint64_t word = 0;
    uint64_t signature_seed = 0;
    uint64_t input_bytes = 0;
    uint64_t output_bytes = 0;
    const Algorithm* algorithm = nullptr;
    uint32_t choice_row = UINT32_MAX;  ///< none: the algorithm was given
    std::unique_ptr<Operation> operation;
    DeviceProgramHold program;                        ///< on a device: in place of operations
    bool is_short = false;                            ///< Operation::is_short, on the caller's buffers
    std::vector<std::unique_ptr<Operation>> stripes;  ///< of the other threads; none: one thread does it all
    bool is_long = false;                             ///< is timed or has stripes
    bool may_refer = false;                           ///< ranks may use each other's buffers
    bool tries_pulling = false;                       ///< a large call between processes
    CarriageTrials carriage_trials;                   ///< of what this rank sends
    uint64_t began_ns = 0;
  };
  struct ShapeHash {
    size_t operator()(const CallShape& shape) const;
  };

  Communicator(Process& process, uint32_t rank_count, uint32_t rank, const CommOptions& options);
  Status meet(const BootstrapOptions& options);
  Status prepare(Bootstrap& setup);
  RankFacts describe(const PackedEndpoints& data, const FileSecret& secret) const;
  Status connect(Bootstrap& setup, const Blobs& introductions);
  Status reach_peers(Bootstrap& setup, const std::vector<RankFacts>& facts,
                     std::vector<RankLinks::Peer>& peers, std::vector<KeptFiles>& kept);
  Status find_peer(uint32_t peer, const RankFacts& theirs, RankLinks::Peer& result);
  Result<std::vector<FileDescriptor>> fetch_from(Bootstrap& setup, uint32_t peer,
                                                 const RankFacts& theirs) const;
  Status map_peer(const RankFacts& theirs, const std::vector<FileDescriptor>& files, RankLinks::Peer& result);
  Status connect_hosts(Bootstrap& setup, const std::vector<RankFacts>& facts);
  Status open_control_plane();
  Status start_workers();
  void count_cores(const std::vector<RankFacts>& facts);
  bool shares_no_host() const { return rank_count_ > 1 && host_count_ == rank_count_; }
  void choose_waiting(uint32_t ranks_here);
  Status start_heartbeat();
  void lose(uint32_t rank, StatusPage::Presence presence, const Status& why);
  void mark_lost(uint32_t rank, StatusPage::Presence presence);
  Status watch_life(const std::vector<RankFacts>& facts, std::vector<KeptFiles>& files);
  Facts facts() const;
  Result<const Algorithm*> choose(const Request& request, uint32_t* row) const;
  /// What a collective with equal blocks asks of an algorithm.
  Request fixed_request(const CallShape& shape) const;
  Result<double> price_us(const Algorithm& algorithm, const Request& request) const;
  Result<std::unique_ptr<Bound>> bind(const Call& call);
  Status find_bound(const Call& call);
  BindOptions bind_options() const;
  bool prepare_messages();
  Status start_messages(bool may_refer);
  Status look_again();
  Operation* bind_messages();
  uint32_t stripe_count(uint64_t call_bytes, bool by_packets) const;
  void enter(uint64_t word, uint64_t count);
  Status start(Bound& bound, const void* send, void* recv);
  void member_lost(uint32_t rank);
  /// What a rank shows the others. A rank by itself has no links, not even to itself.
  const StatusPage& status_of(uint32_t rank) const;
  uint32_t presence(uint32_t rank) const;
  void show_shrink(ShrinkState::Phase phase);
  std::optional<ShrinkState> see_shrink(uint32_t rank);
  ShrinkStep next_shrink_step(const std::vector<uint32_t>& ranks);
  void forget_looks();
  void publish(const Members& members);
  void withdraw_decision();
  Result<std::optional<Members>> find_decision(uint32_t leader) const;
  std::string absent_of(const std::vector<uint32_t>& ranks) const;
  Status pause_shrink(uint64_t deadline_ns, const std::string& absent) const;
  Status find_refusal(const UniqueId& id) const;
  Result<std::optional<Members>> decide(const std::vector<uint32_t>& ranks);
  void expose_buffer(Buffers& buffers);
  void start_long(Bound& bound, const Buffers& buffers, uint16_t signature);
  void finish_long(Bound& bound);
  Progress poll_stripes();
  Progress poll_remote();
  WaitMode wait_mode() const;
  Waiter make_waiter() { return Waiter(wait_mode(), remote_.get()); }
  static void choose_carriage(Bound& bound);
  template <class Whole>
  Status run_whole(Whole&& call);
  Status drive();
  void leave_buffers() const;
  void show_left();
  Status begin_on_host(const Call& call);
  Status begin_on_host(const MessageCall& call);

  // staged_calls.cc
  Status open_staging(const std::string& why, uint32_t sharers);
  template <class Anything>
  Status begin_staged(const Anything& call);
  Status finish_staged();
  template <class Anything>
  Result<StagedCall<Anything>> queue_staged(const Anything& call, DeviceStream stream);
  template <class Anything>
  Status run_staged(const StagedCall<Anything>& staged);
  Status wait_for_stream(uint32_t number);
  void close_staging();

  // device_calls.cc
  Status open_device();
  DeviceIdentity device_identity() const;
  std::string find_distance(std::span<const RankFacts> facts) const;
  uint32_t count_sharers(std::span<const RankFacts> facts) const;
  Status connect_device(Bootstrap& setup, std::span<const RankFacts> facts, std::span<const KeptFiles> files);
  Result<std::string> join_devices(Bootstrap& setup, std::span<const RankFacts> facts,
                                   std::span<const KeptFiles> files);
  Status join_multicast(Bootstrap& setup, std::span<const RankFacts> facts, std::span<const KeptFiles> files);
  Result<std::string> first_failure(Bootstrap& setup, const Status& own, const char* consequence) const;
  Result<std::unique_ptr<Bound>> bind_on_device(std::unique_ptr<Bound> bound, const Plan& plan,
                                                std::span<const Geometry> stripes, const BindOptions& options,
                                                bool by_packets);
  bool goes_by_packets(const Bound& bound, const Request& request) const;
  template <class Anything>
  Status issue_on_device(const Anything& call, DeviceStream stream);
  DeviceOperation make_operation(DeviceProgram* program, const DeviceBuffers& buffers, DeviceStream stream);
  Result<DeviceProgram*> find_messages(DeviceMark mark);
  Progress poll_device();
  Status wait_for_device();
  Status finish_on_device();
  Status run_through_host(const Call& call);
  void wait_until_device_is_idle();
  void close_device();
  RelaunchThread::NextCheck check_launches();
  void show_on_page(const DeviceSnapshot& look);
  bool shows_its_call(uint32_t peer) const;
  bool waits_in_vain(uint32_t peer);

  // regions.cc
  Result<bool> agree_on_registration(const RegistrationAnswer& mine, std::vector<RegistrationAnswer>& all);
  Status offer_registration(const void* buffer, uint64_t bytes, OfferedRegistration& offered,
                            RegistrationAnswer& mine);
  Status open_registration(uint32_t number, const std::vector<RegistrationAnswer>& answers);
  Status wait_for_closed_registrations();
  void forget_programs();

  // verdict.cc
  Status check_progress(uint64_t waited_ns);
  Status check_stripes(uint64_t waited_ns);
  Status check_obstacle(uint64_t waited_ns);
  void clear_wait();
  Status mismatch_with(uint32_t peer);
  std::string message_difference(uint32_t peer) const;
  Status check_peer(uint32_t peer);
  Status check_way(uint32_t peer);
  PeerSnapshot snapshot_of(uint32_t peer);
  PeerSnapshot ask(uint32_t peer);
  Obstacle obstacle() const;
  bool is_remote(uint32_t peer) const { return links_.peers()[peer].is_remote; }
  bool waits_crossed(uint32_t peer, const PeerSnapshot& theirs);
  Status crossed_with(uint32_t peer) const;
  bool in_messages() const;
  bool in_collective() const;
  const std::vector<Message>& messages_under_way() const;
  void raise(const Status& why);
  Status diagnose_deadline(uint64_t waited_ns);
  Status fail(const Status& why);
  Status end_thrown(bool is_one_of_many) noexcept;
  void await_alert();
  bool holds_references() const;

  Process& process_;
  uint32_t rank_count_;
  uint32_t rank_;
  CommOptions options_;
  uint32_t cores_ = 1;             ///< of the host that has fewest
  uint32_t own_cores_ = 1;         ///< of this machine
  std::vector<uint32_t> host_of_;  ///< by rank, numbered in the order of their lowest ranks
  uint32_t host_count_ = 1;
  bool one_process_ = true;  ///< all ranks are threads of this process
  SegmentShape shape_;
  SegmentHeader* header_ = nullptr;  ///< of this rank: in its segment, or own_header_
  std::unique_ptr<SegmentHeader> own_header_;
  std::shared_ptr<Segment> segment_;
  std::unique_ptr<DeviceRank> device_;     ///< null for a rank that runs on the host's engine
  std::unique_ptr<Staging> staging_;       ///< of a rank on a device that does so; else null
  bool copies_out_ = false;                ///< the blocking call under way is staged
  uint32_t multiprocessors_ = UINT32_MAX;  ///< of the device that has fewest
  uint32_t ranks_on_device_ = 1;           ///< of the device that has most
  bool has_multicast_ = false;             ///< all ranks' devices have multicast memory
  std::set<uint32_t> registrations_;       ///< their numbers, equal on all ranks
  bool has_stream_calls_ = false;
  uint64_t failed_ns_ = 0;  ///< when a waiting call saw that it has failed
  /// The relaunch_thread's: what it saw last, and when it began to doubt that a peer will come.
  DeviceSnapshot device_snapshot_;
  std::optional<std::pair<uint32_t, uint64_t>> suspect_;  ///< peer, and the sequence then
  uint64_t suspected_at_ = 0;                             ///< launches
  TransportTraits network_traits_;              ///< of the transports that may join ranks of different hosts
  std::unique_ptr<NetworkConnections> remote_;  ///< null where all ranks are on one host
  std::shared_ptr<ControlPlane> plane_;         ///< as remote_
  std::vector<ControlPlane::Peer> control_peers_;  ///< during set-up
  RankLinks links_;
  std::vector<std::unique_ptr<RankLinks>> stripe_links_;  ///< of the stripes that workers_ run
  std::unique_ptr<Workers> workers_;                      ///< null where one thread does it all
  std::vector<FileDescriptor> lives_;
  std::unique_ptr<Heartbeat> heartbeat_;  ///< null where no other process of this host takes part
  std::atomic<bool> shrink_stopped_{false};
  std::mutex members_mutex_;
  const Members* members_ = nullptr;       ///< whose loss stops members_stop_; guarded by members_mutex_
  BootstrapStop* members_stop_ = nullptr;  ///< as members_
  /// What this rank knows of the shrink that it is in. A peer's state is of a moment since this rank began to
  /// agree; of one on another host it comes with the answer of that number, 0: not asked yet.
  struct ShrinkView {
    uint64_t held = 0;              ///< ShrinkState::held
    std::optional<UniqueId> tried;  ///< the last decision that was followed, in this shrink or before
    bool follows = false;           ///< `tried`, in this shrink, as one of its members
    std::vector<std::optional<ShrinkState>> seen;
    std::vector<uint64_t> awaited;
  };
  ShrinkView shrink_;

  uint64_t sequence_ = 0;
  WaitMode wait_mode_ = WaitMode::kYield;
  WaitMode striped_wait_mode_ = WaitMode::kYield;  ///< while several threads of every rank work
  bool beside_callers_ = false;
  Waiter waiter_{WaitMode::kYield};
  std::atomic<uint64_t> timeout_ms_;  ///< of the operation under way; the relaunch_thread reads it
  uint64_t last_check_ns_ = 0;
  bool shows_wait_ = false;  ///< on the status page
  std::optional<uint32_t>
      crossed_beat_;  ///< of the peer, when the two were first seen to wait for each other
  /// What the caller's thread runs, and a verdict looks at: of a striped operation its own stripe, or the one
  /// that is stuck.
  Operation* current_ = nullptr;
  bool draining_ = false;             ///< current_ is done, but the network has not taken all of it
  uint64_t buffers_deadline_ns_ = 0;  ///< until when peers may use the buffers of a call that has failed
  uint32_t torn_looks_ = 0;           ///< at a way that is torn, while nobody has said why
  bool striped_ = false;              ///< workers_ run the other stripes of the operation
  Bound* last_ = nullptr;
  std::unordered_map<CallShape, std::unique_ptr<Bound>, ShapeHash> bound_;
  std::unique_ptr<Bound> variable_;                        ///< the last call of variable counts
  std::shared_ptr<const VariableBlocks> variable_blocks_;  ///< that it was bound for
  Operation* messages_ = nullptr;                          ///< the last group of messages
  bool messages_are_collective_ = false;                   ///< messages_ is an all_to_all_v
  std::vector<Message> message_list_;                      ///< of the last group
  /// Groups of messages bound lately: one of the same peers and directions is bound anew without allocating.
  std::vector<std::unique_ptr<Operation>> bound_messages_;
  size_t oldest_bound_messages_ = 0;
  std::vector<DeviceProgramHold> message_programs_;  ///< on a device: groups bound lately
  std::array<std::byte, 64> barrier_bytes_{};
};

/// A call from its beginning to its end, in the calling thread: its buffers are the caller's again.
template <class Whole>
Status Communicator::run_whole(Whole&& call) {
  Status status = guard(beside_callers_, call);
  if (!status) [[unlikely]]
    leave_buffers();
  return status;
}

}  // namespace tutti
