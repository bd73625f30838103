#include "comm/host_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/job_topology.h"
#include "core/clock.h"
#include "core/hash.h"
#include "health/loss.h"

namespace tutti {
namespace {

// Smaller slices of a pulled message are faster with two copies.
constexpr uint64_t kLeastPulledSlice = 4096;
// Where ranks share cores, calls vary so much that trials of shorter ones choose wrongly.
constexpr uint64_t kLeastPulledOnSharedCores = 16u << 20;
// Shorter calls gain nothing by short rings, and a writer that runs ahead of its readers loses.
constexpr uint64_t kLeastShortRingBytes = 16384;
// A core's second cache.
constexpr uint64_t kLongCallBytes = 1u << 20;
// Enough for both directions of a few peers.
constexpr size_t kMaxBoundMessages = 16;
// How long a failed rank waits for peers that may still read its buffers. A peer notices the alert within 250
// ms (one sleep of the waiter) or one slice. A computing peer holds no references.
constexpr uint64_t kReferencePatienceMs = 10'000;
// How many calls of a shape look for crossed roots before the short path.
constexpr uint32_t kLooks = 4;
constexpr size_t kMostWatched = 8;
constexpr uint32_t kMostRanksToOpen = 64;

/// Whether a call on a status page is an all_to_all_v, of whatever type.
bool is_all_to_all_v(uint64_t word) {
  for (uint32_t type = 0; type < kDataTypeCount; ++type) {
    if (word ==
        agreed_word(
            {.collective = Collective::kAllToAll, .type = static_cast<DataType>(type), .variable = true}))
      return true;
  }
  return false;
}

/// Whether each rank sends to each other rank.
bool sends_to_all(const Plan& plan) {
  const bool direct = plan.algorithm == "direct" || plan.algorithm == "direct_two_shot";
  return direct && (plan.collective == Collective::kAllReduce || plan.collective == Collective::kAllToAll ||
                    plan.collective == Collective::kReduceScatter);
}

bool is_link(const End& end) {
  return end.kind == EndKind::kLink || end.kind == EndKind::kPublish || end.kind == EndKind::kCollect;
}

}  // namespace

HostExecutor::HostExecutor(HostExecutorOptions options)
    : options_(std::move(options)),
      header_(options_.peers.own()),
      diagnosis_(options_.peers, *this),
      timeout_ms_(options_.timeout_ms) {
  const auto& memory = options_.peers.memory();
  const uint32_t rank = options_.peers.rank();
  for (uint32_t i = 1; i < options_.threads; ++i) {
    stripe_links_.push_back(std::make_unique<RankLinks>());
    stripe_links_.back()->connect(options_.shape, rank, i, memory, options_.network.get());
  }
  links_.connect(options_.shape, rank, 0, memory, options_.network.get());
  short_links_.connect_short(options_.shape, rank, memory);
  waiter_ = make_waiter();
}

Facts HostExecutor::facts() const {
  const Peers& peers = options_.peers;
  const bool has_hosts = peers.host_count() > 1;
  return {.can_publish = !has_hosts,
          .can_reference = peers.is_one_process(),
          .host_count = peers.host_count(),
          .host_of = has_hosts ? std::span<const uint32_t>(peers.host_of()) : std::span<const uint32_t>(),
          .are_containers = options_.are_containers,
          .levels = options_.topology == nullptr ? std::span<const std::vector<uint32_t>>()
                                                 : options_.topology->levels(),
          .order = options_.topology == nullptr ? std::span<const uint32_t>() : options_.topology->order(),
          .cores = options_.cores,
          .slots = options_.shape.slots / 2,
          .slot_bytes = options_.shape.slot_bytes};
}

uint64_t HostExecutor::reference_bytes() const {
  const uint64_t bytes = options_.config.reference_bytes;
  return options_.network != nullptr ? std::min(bytes, options_.network_traits.reference_bytes) : bytes;
}

BindOptions HostExecutor::bind_options() const {
  const Config& config = options_.config;
  return {.reproducible = options_.reproducible,
          .streaming_bytes = config.streaming_bytes,
          .long_call_bytes = kLongCallBytes,
          .reference_bytes = reference_bytes(),
          .string_moves = has_string_moves_,
          .slots = options_.shape.slots,
          .slot_bytes = options_.shape.slot_bytes,
          .least_slice_bytes = options_.peers.shares_no_host() && options_.network_traits.prefers_whole_slots
                                   ? options_.shape.slot_bytes
                                   : SliceLimits{}.least,
          .wide_slots = options_.peers.host_count() == 1 && has_own_core() ? options_.shape.wide_slots() : 0};
}

/// The number of threads. All ranks agree, because both settings are equal. It is one if the network carries
/// links, because one thread drives all connections.
uint32_t HostExecutor::stripe_count(uint64_t call_bytes) const {
  if (options_.peers.host_count() > 1) return 1;
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(call_bytes / options_.config.stripe_bytes, 1, options_.threads));
}

Result<std::unique_ptr<BoundCall>> HostExecutor::bind(const BoundCall& call, const BindRequest& request) {
  auto bound = std::make_unique<Bound>(call);
  const Peers& peers = options_.peers;
  const Plan plan = call.algorithm->make(request.request, facts(), peers.rank());
  const bool is_variable = request.blocks != nullptr;
  BindOptions options = bind_options();
  options.type = call.shape.type;
  options.op = request.request.op;
  options.premul_scalar_bits = call.shape.scale_bits;
  options.message_bytes = message_bytes(call, request);
  options.direct_writes = options.message_bytes >= options_.config.direct_write_bytes;
  const bool short_rings = takes_short_rings(plan, options.message_bytes);
  RankLinks& links = short_rings ? short_links_ : links_;
  if (short_rings) options.slots = std::min(options.slots, kShortRingSlots);
  // From what all ranks know alike: else a rank that expects no pulling would not look for failures
  // (check_alert_before_use).
  bound->tries_pulling =
      !peers.is_one_process() && peers.rank_count() > 1 && options.message_bytes >= pull_bytes();
  if (bound->tries_pulling) options.pull_bytes = kLeastPulledSlice;
  const uint32_t count = stripe_count(options.message_bytes);
  for (uint32_t index = 0; index < count; ++index) {
    const Geometry geometry = stripe_geometry(plan, request, {index, count});
    if (index == 0) {
      bound->operation = Operation::bind(plan, geometry, options, links);
    } else {
      bound->stripes.push_back(Operation::bind(plan, geometry, options, *stripe_links_[index - 1]));
    }
  }
  if (bound->tries_pulling)
    bound->carriage_trials =
        CarriageTrials(PullTrial::of(uint64_t{options.slots} * options.slot_bytes, options.message_bytes),
                       least_pull_cost().least_ns(bound->operation->least_pulled_bytes()));
  bound->may_refer = is_variable || bound->tries_pulling || options.direct_writes ||
                     options.message_bytes >= options.reference_bytes;
  bound->is_long = bound->tries_pulling || count > 1;
  bound->is_short = bound->operation->is_short() && count == 1 && options_.network == nullptr;
  bound->watched = watched_links(plan);
  if (!bound->watched.empty()) {
    bound->looks_left = kLooks;
    bound->becomes_short = std::exchange(bound->is_short, false);
  }
  return std::unique_ptr<BoundCall>(std::move(bound));
}

/// From which size on calls and messages may be pulled. All ranks agree.
uint64_t HostExecutor::pull_bytes() const {
  const Config& config = options_.config;
  return config.pull_bytes_set || has_own_core() ? config.pull_bytes
                                                 : std::max(config.pull_bytes, kLeastPulledOnSharedCores);
}

/// What pulling takes at least. It is not tried where slots take much less.
PullCost HostExecutor::least_pull_cost() const {
  return options_.config.pull_bytes_set || options_.peers.is_one_process() ? PullCost{} : pull_cost();
}

/// Whether each rank has a core, by what all ranks know alike.
bool HostExecutor::has_own_core() const {
  const uint32_t hosts = options_.peers.host_count();
  return (options_.peers.rank_count() + hosts - 1) / hosts <= facts().cores;
}

/// Where ranks share cores and all send to all, the slots of ordinary rings fill the caches many times over.
/// All ranks agree.
bool HostExecutor::takes_short_rings(const Plan& plan, uint64_t bytes) const {
  const Peers& peers = options_.peers;
  return options_.shape.short_channels > 0 && sends_to_all(plan) && peers.host_count() == 1 &&
         !has_own_core() && bytes >= kLeastShortRingBytes && stripe_count(bytes) == 1 &&
         2 * plan.slots_needed <= std::min(options_.shape.slots, kShortRingSlots);
}

/// Empty if the plan receives anything: then a message of another call shows by itself.
std::vector<RecvLink*> HostExecutor::watched_links(const Plan& plan) {
  std::vector<RecvLink*> links;
  for (const Lane& lane : plan.lanes) {
    for (const Step& step : lane.steps) {
      if (std::any_of(step.sources.begin(), step.sources.end(), is_link)) return {};
      for (const End& end : step.sinks) {
        if (links.size() >= kMostWatched || !is_link(end)) continue;
        if (end.kind != EndKind::kPublish) links.push_back(links_.recv_link(end.peer, end.channel));
        for (uint32_t peer = 0; end.kind == EndKind::kPublish && peer < options_.peers.rank_count(); ++peer) {
          if (peer != options_.peers.rank() && links.size() < kMostWatched)
            links.push_back(links_.published_by(peer));
        }
      }
    }
  }
  return links;
}

std::string HostExecutor::explain(const BoundCall& call) const {
  const auto& bound = static_cast<const Bound&>(call);
  std::string text = bound.stripes.empty() ? "" : format(", %zu threads a rank", bound.stripes.size() + 1);
  if (options_.network != nullptr) text += ", to " + options_.network->explain();
  return text;
}

Status HostExecutor::run(BoundCall& bound, const Call& call) {
  TUTTI_TRY(begin(bound, call));
  return drive(*this);
}

Status HostExecutor::run(const MessageCall& call) {
  TUTTI_TRY(begin(call));
  return drive(*this);
}

Status HostExecutor::run(const Message& message) {
  Operation*& repeated = repeated_[message.sending ? 1 : 0];
  if (repeated != nullptr && options_.network == nullptr && repeated->can_repeat(message)) [[likely]]
    return repeat(*repeated, message);
  list_message(message);
  const bool may_refer = prepare_messages();
  messages_ = repeated = bind_messages();
  TUTTI_TRY(start_messages(may_refer));
  return drive(*this);
}

void HostExecutor::list_message(const Message& message) {
  message_list_.assign(1, message);
  messages_are_collective_ = false;
}

/// A short message like the last one of its direction: the steps of start_messages and drive, but for what
/// such a message does not need.
Status HostExecutor::repeat(Operation& operation, const Message& message) {
  current_ = messages_ = &operation;
  header_.status.in_messages.store(1, std::memory_order_relaxed);
  operation.answers(std::exchange(received_, !message.sending));
  const Progress progress = operation.repeat(message, waiter_.polls());
  if (progress == Progress::kDone) [[likely]]
    return finish(progress);
  list_message(message);
  operation.copy_histories(message_list_);
  if (progress == Progress::kMismatch) return finish(progress);
  if (progress == Progress::kMoved) moved();
  TUTTI_TRY(wait());
  return drive(*this);
}

/// A rank whose message has come, in turn after the last one.
std::optional<uint32_t> HostExecutor::find_sender(uint64_t seed) {
  const uint32_t ranks = options_.peers.rank_count();
  for (uint32_t i = 1; i <= ranks; ++i) {
    const uint32_t peer = (last_sender_ + i) % ranks;
    if (peer == options_.peers.rank()) continue;
    const RecvLink& link = *links_.recv_link(peer, kMessageChannel);
    if (!link.has_arrived() || set_aside_[peer]) continue;
    if (flag::signature(link.word()) != history_signature(next_history(link.history, seed))) {
      set_aside_[peer] = is_in_later_all_to_all_v(peer);
      if (set_aside_[peer]) continue;
    }
    last_sender_ = peer;
    return peer;
  }
  return std::nullopt;
}

/// Whether the peer, whose message has come, has entered an all_to_all_v that this rank has not: its blocks
/// travel as messages.
bool HostExecutor::is_in_later_all_to_all_v(uint32_t peer) const {
  const StatusCopy theirs = options_.peers.ask(peer).page;
  uint64_t last = theirs.sequence;  // of the run
  for (const CallRunCopy& run : theirs.runs) {
    if (last <= sequence()) return false;
    if (is_all_to_all_v(run.call)) return true;
    last = run.first - 1;
  }
  return false;
}

Result<uint32_t> HostExecutor::await_sender(uint64_t seed) {
  header_.status.in_messages.store(1, std::memory_order_relaxed);
  set_aside_.assign(options_.peers.rank_count(), false);
  uint64_t next_check_ns = StallDiagnosis::kCheckEveryNs;
  for (waiter_.moved();;) {
    if (const auto sender = find_sender(seed)) {
      if (shows_wait_) clear_wait();
      return *sender;
    }
    if (options_.network != nullptr && options_.network->advance()) continue;
    const uint64_t waited_ns = waiter_.pause();
    if (options_.peers.has_error()) return fail(options_.peers.error());
    if (waited_ns < next_check_ns) continue;
    next_check_ns = waited_ns + StallDiagnosis::kCheckEveryNs;
    shows_wait_ = true;
    diagnosis_.show_wait({.peer = kAnyRank}, waited_ns);
    Status checked = diagnosis_.check_way();
    if (checked) checked = check_senders(waited_ns);
    if (!checked) return fail(checked);
  }
}

/// Whether a message can still come, and the deadline has not passed.
Status HostExecutor::check_senders(uint64_t waited_ns) {
  const Peers& peers = options_.peers;
  bool may_come = false;
  for (uint32_t peer = 0; peer < peers.rank_count() && !may_come; ++peer) {
    if (peer == peers.rank()) continue;
    const PeerSnapshot snapshot = peers.snapshot(peer);
    may_come = snapshot.page.presence == StatusPage::kHere || !snapshot.is_settled;
    if (!may_come && peers.is_remote(peer)) options_.network->advance_fully(peer);
    // What a rank has sent before it left is there now.
    may_come = may_come || links_.recv_link(peer, kMessageChannel)->has_arrived();
  }
  if (!may_come) {
    return {Code::kPeerLost,
            format("rank %u waits for a message of any rank, and all other ranks have left: they have "
                   "finalized or destroyed the communicator, or their processes have exited",
                   peers.rank())};
  }
  if (waited_ns / 1'000'000 < timeout_ms_.load(std::memory_order_relaxed)) return Status::ok();
  return {Code::kTimeout, format("no rank has sent rank %u a message for %.1f s", peers.rank(),
                                 static_cast<double>(waited_ns) / 1e9)};
}

/// A call that is short and has to wait, or one that run_short has not begun.
Status HostExecutor::run_rest(BoundCall& bound, const void* send, void* recv) {
  if (!has_begun()) {
    if (options_.peers.has_error()) return options_.peers.error();
    header_.status.sequence.store(sequence() + 1, std::memory_order_release);
    TUTTI_TRY(start(static_cast<Bound&>(bound), send, recv));
  }
  return drive(*this);
}

Status HostExecutor::begin(BoundCall& call, const Call& buffers) {
  auto& bound = static_cast<Bound&>(call);
  enter(bound.word, bound.shape.count, bound.counts);
  return start(bound, buffers.send, buffers.recv);
}

/// Marks the call on the status page. Plain stores: peers read this line only after a long wait.
void HostExecutor::enter(uint64_t word, uint64_t count, uint64_t counts) {
  StatusPage& page = header_.status;
  page.show_call(sequence() + 1, word, count, counts);
  page.sequence.store(sequence() + 1, std::memory_order_release);
}

/// The operation is already on the status page.
Status HostExecutor::start(Bound& bound, const void* send, void* recv) {
  if (bound.may_refer) {
    // The release store before is too weak: StatusPage::may_read_peers needs a sequentially consistent one.
    header_.status.sequence.store(sequence());
    TUTTI_TRY(check_alert_before_use());
  }
  current_ = bound.operation.get();
  if (!bound.watched.empty()) TUTTI_TRY(check_unread(bound));
  Buffers buffers{.input = send, .output = recv};
  if (bound.shape.collective == Collective::kBarrier) {
    buffers.input = barrier_bytes_.data();
    buffers.output = barrier_bytes_.data() + kLineBytes / 2;
  }
  if (!options_.peers.is_one_process() &&
      bound.input_bytes + bound.output_bytes >= options_.config.reference_bytes) {
    buffers.input_shared = options_.heap.contains(buffers.input, bound.input_bytes);
    buffers.output_shared = options_.heap.contains(buffers.output, bound.output_bytes);
  }
  if (options_.network != nullptr) {
    buffers.input_registered = options_.network->is_registered(buffers.input, bound.input_bytes);
    buffers.output_registered = options_.network->is_registered(buffers.output, bound.output_bytes);
  }
  if (current_->writes_directly()) expose_buffer(buffers);
  const uint32_t signature = next_signature(header_.status, bound.signature_seed);
  if (bound.is_long) [[unlikely]] {
    start_long(bound, buffers, signature);
  } else {
    current_->start(buffers, signature);
  }
  return Status::ok();
}

/// In a call in which this rank receives nothing: whether a peer has sent a message that no call will
/// receive.
Status HostExecutor::check_unread(Bound& bound) {
  for (const RecvLink* link : bound.watched) {
    const bool is_remote = options_.peers.is_remote(link->peer);
    if (is_remote && bound.looks_left > 0) options_.network->advance_fully(link->peer);
    if (link->has_arrived() && !may_be_ahead(link->peer)) return fail(diagnosis_.mismatch_with(link->peer));
  }
  if (bound.looks_left > 0 && --bound.looks_left == 0) bound.is_short = bound.becomes_short;
  return Status::ok();
}

/// Whether the peer, whose message has arrived, may have sent it in a later call: it passes a call without
/// elements at once. Asks a peer on another host, because an earlier answer does not tell.
bool HostExecutor::may_be_ahead(uint32_t peer) const {
  const PeerSnapshot now = options_.peers.ask(peer);
  return !now.is_current || now.page.sequence > sequence();
}

/// Call it before the first use of a peer's buffer: a failed rank that has not seen this rank inside the call
/// (StatusPage::may_read_peers) returns its buffers to its caller.
Status HostExecutor::check_alert_before_use() {
  may_refer_ = true;
  if (header_.alert.state.load() == Alert::kQuiet) [[likely]]
    return Status::ok();
  const Peers& peers = options_.peers;
  peers.await_alert();
  header_.status.in_messages.store(0, std::memory_order_release);
  header_.status.completed.store(sequence(), std::memory_order_release);
  if (peers.has_error()) return peers.error();
  return peers.fail(
      {Code::kAborted,
       format("another rank has failed, and rank %u has waited in vain for the reason", peers.rank())});
}

void HostExecutor::start_long(Bound& bound, const Buffers& buffers, uint32_t signature) {
  long_call_ = &bound;
  if (bound.tries_pulling) choose_carriage(bound, buffers);
  bound.operation->start(buffers, signature);
  if (bound.stripes.empty()) return;
  striped_ = true;
  waiter_ = make_waiter();
  for (const auto& stripe : bound.stripes) stripe->start(buffers, signature);
  options_.workers->begin(*bound.operation, bound.stripes, wait_mode());
}

void HostExecutor::finish_long(Bound& bound) {
  long_call_ = nullptr;
  if (bound.tries_pulling && bound.carriage_trials.is_trial())
    bound.carriage_trials.end(bound.pulls, now_ns() - bound.began_ns);
  striped_ = false;
  waiter_ = make_waiter();
}

void HostExecutor::choose_carriage(Bound& bound, const Buffers& buffers) {
  bound.pulls = bound.carriage_trials.begin() &&
                bound.pullable_input.can_be_pulled(buffers.input, bound.input_bytes) &&
                bound.pullable_output.can_be_pulled(buffers.output, bound.output_bytes);
  bound.operation->allow_pulling(bound.pulls);
  for (const auto& stripe : bound.stripes) stripe->allow_pulling(bound.pulls);
  if (bound.carriage_trials.is_trial()) bound.began_ns = now_ns();
}

/// Shows the receive buffer to peers that can write to it.
void HostExecutor::expose_buffer(Buffers& buffers) {
  if (!options_.peers.is_one_process() && !buffers.output_shared) return;
  ExposedBuffer& exposed = header_.exposed;
  store_shared(exposed.address, reinterpret_cast<uint64_t>(buffers.output), std::memory_order_relaxed);
  store_shared(exposed.in_heap, buffers.output_shared ? 1 : 0, std::memory_order_relaxed);
  store_shared(exposed.call, sequence(), std::memory_order_release);
  buffers.call = sequence();
}

/// A peer that was stopped in the call writes at most the rest of one slice when it runs again.
void HostExecutor::withdraw_buffer() {
  ExposedBuffer& exposed = header_.exposed;
  const bool is_exposed = current_ != nullptr && current_->writes_directly() &&
                          load_shared(exposed.call, std::memory_order_relaxed) == sequence();
  had_exposed_ = had_exposed_ || is_exposed;
  store_shared(exposed.call, 0, std::memory_order_release);
}

Status HostExecutor::begin(const MessageCall& call) {
  message_list_ = call.messages;
  messages_are_collective_ = call.collective;
  const uint64_t word = agreed_word(call.shape);
  std::atomic<uint64_t>& history = header_.status.history;
  const uint64_t next =
      next_history(history.load(std::memory_order_relaxed), signature_seed(word, call.shape.count));
  for (Message& message : message_list_) {
    if (call.collective) message.seed = mix_bits(next ^ mix_bits(message.bytes));
  }
  for (const SelfCopy& copy : take_self_copies(message_list_, options_.peers.rank()))
    std::memmove(copy.to, copy.from, copy.bytes);
  // A rank that hands on blocks reads those of other ranks of its host, which may be longer than its own.
  const bool hands_on = gathers_ != nullptr && is_all_to_all_v(call.shape);
  const bool may_refer = prepare_messages() || hands_on;
  messages_ = call.collective ? bind_collective(call.shape, next) : bind_messages();
  if (call.collective) {
    enter(word, call.shape.count, 0);
    history.store(next, std::memory_order_release);
  }
  return start_messages(may_refer);
}

/// Returns whether ranks may use each other's buffers.
bool HostExecutor::prepare_messages() {
  const uint64_t least_referred = std::min(reference_bytes(), pull_bytes());
  bool may_refer = false;
  for (Message& message : message_list_) {
    may_refer = may_refer || message.bytes >= least_referred;
    // NULL is a legal address of 0 bytes, but not for memcpy.
    if (message.bytes == 0) message.buffer = barrier_bytes_.data();
    message.shared = options_.heap.contains(message.buffer, message.bytes);
    message.registered =
        options_.network != nullptr && options_.network->is_registered(message.buffer, message.bytes);
  }
  return may_refer;
}

Status HostExecutor::start_messages(bool may_refer) {
  current_ = messages_;
  header_.status.in_messages.store(1, may_refer ? std::memory_order_seq_cst : std::memory_order_relaxed);
  if (may_refer) TUTTI_TRY(check_alert_before_use());
  current_->answers(std::exchange(received_, current_->receives()));
  current_->start({}, 0);
  current_->copy_histories(message_list_);
  return Status::ok();
}

void HostExecutor::gather_blocks(const Algorithm* algorithm, uint64_t most_bytes) {
  gathers_ = nullptr;
  if (algorithm == nullptr) return;
  std::unique_ptr<Operation>& gathered = gathered_blocks_[most_bytes];
  gathers_ = gathered.get();
  if (gathers_ != nullptr) return;
  const Request request{.collective = Collective::kAllToAll,
                        .rank_count = options_.peers.rank_count(),
                        .block_bytes = most_bytes,
                        .variable_counts = true};
  const Plan plan = algorithm->make(request, facts(), options_.peers.rank());
  gathered = Operation::bind_blocks(plan, most_bytes, bind_options(), links_);
  gathers_ = gathered.get();
}

/// `history`: with this call.
Operation* HostExecutor::bind_collective(const CallShape& shape, uint64_t history) {
  if (gathers_ == nullptr || !is_all_to_all_v(shape)) return bind_messages();
  gathers_->set_blocks(message_list_, history_signature(history));
  return gathers_;
}

Operation* HostExecutor::bind_messages() {
  for (const auto& bound : bound_messages_) {
    if (bound->rebind_messages(message_list_)) return bound.get();
  }
  BindOptions options = bind_options();
  options.pull_bytes = kLeastPulledSlice;
  options.pulled_message_bytes = pull_bytes();
  options.pull_cost = least_pull_cost();
  auto fresh = Operation::bind_messages(message_list_, options, links_);
  if (bound_messages_.size() < kMaxBoundMessages) {
    bound_messages_.push_back(std::move(fresh));
    return bound_messages_.back().get();
  }
  auto& oldest = bound_messages_[oldest_bound_messages_++ % kMaxBoundMessages];
  std::ranges::replace(repeated_, oldest.get(), nullptr);
  oldest = std::move(fresh);
  return oldest.get();
}

Progress HostExecutor::poll_stripes() {
  const Progress progress = options_.workers->advance(waiter_.polls());
  if (progress == Progress::kMismatch) current_ = options_.workers->stuck();
  return progress;
}

Progress HostExecutor::poll_network() {
  Progress progress = Progress::kBlocked;
  for (uint32_t left = waiter_.network_polls(); left > 0 && progress == Progress::kBlocked; --left)
    progress = poll_network_once();
  return progress;
}

/// A rank that is there, though its connection is torn. A rank that has left needs no connection.
std::optional<uint32_t> HostExecutor::torn_peer() const {
  const auto is_here = [this](uint32_t peer) { return options_.peers.presence(peer) == StatusPage::kHere; };
  return options_.network != nullptr ? options_.network->torn_peer(is_here) : std::nullopt;
}

/// A rank to which the network has not taken all, or never will. The call then must not end well.
std::optional<uint32_t> HostExecutor::unsent_peer() const {
  const auto undrained = options_.network->undrained_peer();
  return undrained ? undrained : torn_peer();
}

/// Runs engine and network in turn. The call ends when the network has taken everything: the messages then
/// arrive even while this rank computes.
Progress HostExecutor::poll_network_once() {
  NetworkConnections& network = *options_.network;
  const Progress progress = draining_ ? Progress::kDone : current_->advance(1);
  if (progress == Progress::kMismatch) return progress;
  // The usual end of a receive. Anything else that has come belongs to later calls.
  if (progress == Progress::kDone && !draining_ && !unsent_peer()) return progress;
  const bool moved = network.advance();
  draining_ = progress == Progress::kDone && unsent_peer();
  if (progress == Progress::kDone && !draining_) return progress;
  return moved || progress == Progress::kMoved ? Progress::kMoved : Progress::kBlocked;
}

WaitMode HostExecutor::wait_mode() const {
  if (beside_callers_) return WaitMode::kBeside;
  return striped_ ? options_.striped_wait_mode : options_.wait_mode;
}

void HostExecutor::wait_beside_callers(bool beside) {
  beside_callers_ = beside;
  waiter_ = make_waiter();
}

Status HostExecutor::wait() {
  const uint64_t waited_ns = waiter_.pause();
  if (options_.peers.has_error()) [[unlikely]]
    return fail(options_.peers.error());
  return waited_ns == 0 ? Status::ok() : check_progress(waited_ns);
}

Status HostExecutor::check_progress(uint64_t waited_ns) {
  if (!diagnosis_.is_due(waited_ns)) return Status::ok();
  if (!striped_) return diagnose(waited_ns);
  // Stripes return to this thread while it looks at what they wait for.
  if (options_.workers->recall()) {
    waiter_.moved();
  } else {
    Operation* own = std::exchange(current_, options_.workers->stuck());
    TUTTI_TRY(diagnose(waited_ns));
    current_ = own;
  }
  options_.workers->resume();
  return Status::ok();
}

Status HostExecutor::diagnose(uint64_t waited_ns) {
  shows_wait_ = true;
  const Status diagnosis = diagnosis_.look(waited_ns, timeout_ms_.load(std::memory_order_relaxed));
  return diagnosis ? diagnosis : fail(diagnosis);
}

/// A diagnosis that follows waits from rank to rank ends at this rank.
void HostExecutor::clear_wait() {
  shows_wait_ = false;
  header_.status.waits_for.store(0, std::memory_order_relaxed);
}

Status HostExecutor::finish(Progress progress) {
  if (progress == Progress::kMismatch) [[unlikely]]
    return fail(what_differs());
  if (may_refer_) TUTTI_TRY(check_alert_after_use());
  if (shows_wait_) [[unlikely]]
    clear_wait();
  if (current_ == messages_) header_.status.in_messages.store(0, std::memory_order_release);
  if (long_call_ != nullptr) [[unlikely]]
    finish_long(*long_call_);
  header_.status.completed.store(sequence(), std::memory_order_release);
  waiter_.moved();
  return Status::ok();
}

/// At the end of a call that may have used peers' buffers: a failed peer takes back its buffers from a rank
/// that was stopped, or that has been slow for too long. That peer raises the alert first, or marks the page.
Status HostExecutor::check_alert_after_use() {
  may_refer_ = false;
  std::atomic_thread_fence(std::memory_order_acquire);  // what the call has read was read before
  const Peers& peers = options_.peers;
  const bool is_lost = peers.presence(peers.rank()) == StatusPage::kSilent;
  if (!is_lost && header_.alert.state.load(std::memory_order_acquire) == Alert::kQuiet) [[likely]]
    return Status::ok();
  peers.await_alert();
  return fail(peers.has_error() ? peers.error() : silent_status(peers.rank()));
}

/// After Progress::kMismatch.
Status HostExecutor::what_differs() const {
  const Obstacle& obstacle = current_->obstacle();
  if (obstacle.pull_error == 0) return diagnosis_.mismatch_with(obstacle.peer);
  return system_error(
      format("rank %u cannot read the buffer of rank %u: set TUTTI_PULL_BYTES to a size above "
             "that of all messages, or use memory that a process can read (process_vm_readv)",
             options_.peers.rank(), obstacle.peer),
      obstacle.pull_error);
}

Status HostExecutor::fail(const Status& why) {
  options_.peers.raise(why);
  // Peers that read the page must not believe that workers have left their buffers.
  if (striped_) options_.workers->recall();
  draining_ = false;
  if (shows_wait_) clear_wait();
  withdraw_buffer();
  header_.status.in_messages.store(0, std::memory_order_release);
  header_.status.completed.store(sequence(), std::memory_order_release);
  buffers_deadline_ns_ = deadline_after_ms(kReferencePatienceMs);
  // What may throw comes last: the call has ended in any case.
  if (options_.network != nullptr) options_.network->withdraw();
  return options_.peers.settle_alert(why);
}

bool HostExecutor::has_begun() const {
  const StatusPage& mine = header_.status;
  return mine.in_messages.load() != 0 || mine.completed.load() != sequence();
}

bool HostExecutor::buffers_are_free() const {
  if (current_ == nullptr || now_ns() >= buffers_deadline_ns_) return true;
  return (!had_exposed_ && !holds_references()) || !options_.peers.may_use_buffers();
}

bool HostExecutor::holds_references() const {
  return striped_ ? options_.workers->holds_references() : current_->holds_references();
}

Status HostExecutor::leave() {
  options_.workers.reset();
  // Also after an error: a peer that has not heard of it must not take messages for unread.
  for (RankLinks* links : {&links_, &short_links_}) links->release_all();
  const Peers& peers = options_.peers;
  if (peers.has_error()) return Status::ok();
  if (options_.network != nullptr) {
    options_.network->finish(deadline_after_ms(options_.timeout_ms), [&peers] { return peers.has_error(); });
    for (uint32_t peer = 0; peer < peers.rank_count(); ++peer) {
      if (peers.is_remote(peer)) options_.network->advance_fully(peer);
    }
  }
  // Not raised: a peer that waits for this rank reads that this rank has left.
  const Status all_read = check_all_read();
  return peers.has_error() ? Status::ok() : all_read;
}

/// Whether all messages between this rank and the others have been received, as far as this host shows.
Status HostExecutor::check_all_read() {
  const Peers& peers = options_.peers;
  const uint32_t ranks = peers.memory().empty() ? 0 : peers.rank_count();
  // Opening a link touches a page.
  for (uint32_t peer = 0; peer < ranks && ranks <= kMostRanksToOpen; ++peer) {
    if (peer != peers.rank() && !peers.is_remote(peer)) links_.recv_link(peer, kMessageChannel);
  }
  for (uint32_t peer = 0; peer < ranks; ++peer) {
    if (peer != peers.rank() && !peers.is_remote(peer) && has_other_history(peer))
      return diagnosis_.differs(peer);
  }
  for (const RankLinks* links : {&links_, &short_links_}) {
    if (const auto peer = links->unread()) return diagnosis_.unread(*peer, peers.rank());
  }
  if (const auto peer = options_.network != nullptr ? options_.network->unread() : std::nullopt)
    return diagnosis_.unread(*peer, peers.rank());
  const auto has_left = [&](uint32_t peer) { return peers.presence(peer) == StatusPage::kLeft; };
  for (const RankLinks* links : {&links_, &short_links_}) {
    if (const auto peer = links->unread_by(has_left)) return diagnosis_.unread(peers.rank(), *peer);
  }
  return Status::ok();
}

/// Whether a peer on this host has made other collectives than this rank.
bool HostExecutor::has_other_history(uint32_t peer) const {
  const StatusPage& theirs = options_.peers.page(peer);
  const uint32_t presence = options_.peers.presence(peer);
  if (presence == StatusPage::kDied || presence == StatusPage::kSilent) return false;
  if (presence == StatusPage::kLeft && theirs.sequence.load(std::memory_order_acquire) != sequence())
    return true;
  // A rank that finds an error as it enters a call ends the call without counting it in the history.
  return shows_other_history(theirs, sequence(), header_.status.history.load(std::memory_order_relaxed)) &&
         !options_.peers.has_error_of(peer);
}

Result<uint32_t> HostExecutor::register_buffer(std::byte* address, uint64_t bytes) {
  if (options_.network == nullptr) return 0u;
  return options_.network->register_buffer(address, bytes);
}

uint64_t HostExecutor::unconfirmed_bytes(uint32_t peer) const {
  return options_.peers.is_remote(peer) ? options_.network->unconfirmed_bytes(peer) : 0;
}

Obstacle HostExecutor::obstacle() const {
  if (!draining_) return current_->obstacle();
  const auto peer = unsent_peer();
  return {
      .peer = peer.value_or(current_->obstacle().peer), .step = current_->obstacle().step, .sending = true};
}

bool HostExecutor::still_waits_for(uint32_t peer) {
  if (options_.peers.is_remote(peer)) options_.network->advance_fully(peer);
  const Progress again = current_->advance(1);
  return again == Progress::kBlocked && current_->obstacle().peer == peer;
}

bool HostExecutor::lends_to_network(uint32_t peer) const {
  return options_.peers.is_remote(peer) && !options_.network->undrained_peer() &&
         current_->holds_references();
}

Status HostExecutor::torn_way() const {
  const auto peer = torn_peer();
  return peer ? options_.network->status(*peer) : Status::ok();
}

}  // namespace tutti
