#include "device/device_executor.h"

#include <algorithm>
#include <cstring>

#include "core/clock.h"
#include "engine/cuda/bind.h"
#include "plan/packets.h"

namespace tutti {
namespace {

// How long a failed call waits for its launches to leave. They check the abort word every few polls.
constexpr uint64_t kLeavingPatienceMs = 10'000;
// How long after a relaunch that does not begin its stream is given up, if there was a failure.
constexpr uint64_t kGiveUpNs = 1'000'000'000;
// How long the relaunch thread may take to find why a launch failed.
constexpr uint64_t kDiagnosisPatienceMs = 5000;
// How long a rank with a mismatched message may take to publish its call. It does once its launch has left,
// and its blocks look only every 1,024 polls whether another block has failed: on a simulated device that
// takes 0.1 s, on a busy machine more than a second.
constexpr uint64_t kPagePatienceNs = 4'000'000'000;
// Groups of messages that stay bound, each with its exact buffers.
constexpr size_t kMostMessagePrograms = 64;
// From these sizes on, references and direct writes pay on a device. A copy costs memory bandwidth, a
// reference costs two flags. Estimates.
constexpr uint64_t kDeviceReferenceBytes = 4096;
constexpr uint64_t kDeviceDirectWriteBytes = 65536;
// Pieces up to this size are one slice: shorter slices spend their time on flags. An estimate.
constexpr uint64_t kLeastSliceBytes = 32768;

/// Whether no rank's part ends before all ranks have begun theirs.
bool meets_all(const CallShape& shape) {
  switch (shape.collective) {
    case Collective::kBarrier: return true;
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll: return shape.count > 0;
    default: return false;
  }
}

uint64_t largest_chunk(std::span<const Geometry> stripes) {
  uint64_t bytes = 0;
  for (const Geometry& stripe : stripes) bytes = std::max(bytes, stripe.largest_chunk_bytes());
  return bytes;
}

bool are_equal(const std::vector<Message>& a, const std::vector<Message>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Message& x, const Message& y) {
    return x.buffer == y.buffer && x.bytes == y.bytes && x.peer == y.peer && x.sending == y.sending &&
           x.seed == y.seed;
  });
}

}  // namespace

struct DeviceExecutor::Bound final : BoundCall {
  explicit Bound(const BoundCall& call, std::shared_ptr<const bool> is_kept)
      : BoundCall(call), keeps_program(std::move(is_kept)) {}
  /// A launch that never ends still needs its program: keep the program for ever.
  ~Bound() override {
    if (*keeps_program) static_cast<void>(program.release());
  }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

  DeviceProgramHold program;
  std::shared_ptr<const bool> keeps_program;
};

DeviceExecutor::DeviceExecutor(DeviceExecutorOptions options)
    : options_(std::move(options)),
      diagnosis_(options_.peers, *this),
      timeout_ms_(options_.timeout_ms),
      waiter_(options_.wait_mode) {}

Status DeviceExecutor::start() {
  return options_.relaunch_thread.add(this, [this] { return check_launches(); });
}

/// Whether all ranks are on one device and in one process, so that each reads the others' buffers.
bool DeviceExecutor::shares_memory() const {
  const Peers& peers = options_.peers;
  return peers.is_one_process() && options_.ranks_on_device == peers.rank_count();
}

Facts DeviceExecutor::facts() const {
  const Peers& peers = options_.peers;
  return {.can_publish = false,
          .can_multicast = options_.has_multicast,
          .can_reference = shares_memory() || registered_count_ > 0,
          .levels = options_.levels,
          .order = options_.order,
          .cores = peers.rank_count(),
          .slots = rank().shape().slots / 2,
          .slot_bytes = rank().shape().slot_bytes};
}

uint64_t DeviceExecutor::short_bytes(const Request& request) const {
  return packet_bytes_max(request, rank().shape().short_bytes);
}

/// Of messages by value. A plan may allow only shorter slices: see DeviceCut.
BindOptions DeviceExecutor::bind_options() const {
  const DeviceShape& shape = rank().shape();
  return {.reproducible = options_.reproducible,
          .reference_bytes = std::min(options_.config.reference_bytes, kDeviceReferenceBytes),
          .slots = shape.slots / shape.slots_per_slice,
          .slot_bytes = longest_slice(shape.slot_bytes * shape.slots_per_slice),
          .least_slice_bytes = std::min<uint64_t>(kLeastSliceBytes, shape.slot_bytes),
          .wanted_slices = SliceLimits::kWantedOnDevices};
}

/// Of messages. Among ranks that share memory all but the shortest slices travel by reference.
BindOptions DeviceExecutor::message_options() const {
  BindOptions options = bind_options();
  if (shares_memory()) options.least_slice_bytes = options.slot_bytes = referenced_slice(UINT32_MAX);
  return options;
}

/// Whether the call travels in packets: the choice table wants them and all ranks' plans allow them. All
/// ranks agree.
bool DeviceExecutor::goes_by_packets(std::span<const Plan> plans, const BindRequest& request) const {
  return request.wants_packets && std::ranges::all_of(plans, suits_packets);
}

std::vector<Plan> DeviceExecutor::plans_of_all(const BoundCall& call, const BindRequest& request) const {
  std::vector<Plan> plans;
  for (uint32_t rank = 0; rank < options_.peers.rank_count(); ++rank)
    plans.push_back(call.algorithm->make(request.request, facts(), rank));
  return plans;
}

Result<std::unique_ptr<BoundCall>> DeviceExecutor::bind(const BoundCall& call, const BindRequest& request) {
  auto bound = std::make_unique<Bound>(call, keeps_programs_);
  const std::vector<Plan> plans = plans_of_all(call, request);
  const Plan& plan = plans[options_.peers.rank()];
  const DeviceCut cut = DeviceCut::of(plans, rank().shape());
  BindOptions options = bind_options();
  options.slots = cut.slots;
  options.slot_bytes = cut.slice_bytes;
  options.type = call.shape.type;
  options.op = request.request.op;
  options.premul_scalar_bits = call.shape.scale_bits;
  options.message_bytes = message_bytes(call, request);
  options.direct_writes =
      options.message_bytes >= std::min(options_.config.direct_write_bytes, kDeviceDirectWriteBytes);
  const bool by_packets = goes_by_packets(plans, request);
  const uint32_t count =
      by_packets ? short_stripes(options.message_bytes, options_.multiprocessors, options_.ranks_on_device)
                 : device_stripes(options.message_bytes, cut.most_stripes, options_.multiprocessors,
                                  options_.ranks_on_device);
  std::vector<Geometry> stripes;
  for (uint32_t index = 0; index < count; ++index)
    stripes.push_back(stripe_geometry(plan, request, {index, count}));
  if (shares_memory() && refers_always(plans, options.op)) {
    const DeviceCut referenced = cut.by_reference(rank().shape(), largest_chunk(stripes));
    options.slots = referenced.slots;
    options.slot_bytes = referenced.slice_bytes;
    options.least_slice_bytes = referenced.slice_bytes;
  }
  DeviceMark mark{.word = call.word,
                  .count = call.shape.count,
                  .counts = call.counts,
                  .signature_seed = call.signature_seed};
  auto program = by_packets ? rank().bind_short(plan, stripes, options, std::move(mark))
                            : rank().bind(plan, stripes, cut.channels, options, std::move(mark));
  TUTTI_TRY(told(program.status()));
  bound->program = std::move(*program);
  return std::unique_ptr<BoundCall>(std::move(bound));
}

std::string DeviceExecutor::explain(const BoundCall& call) const {
  const DeviceProgram& program = *static_cast<const Bound&>(call).program;
  return format("%s, %u blocks of the device", program.by_packets ? " by packets" : "", program.lanes);
}

DeviceOperation DeviceExecutor::prepare(BoundCall& bound, const Call& call, DeviceStream stream) {
  DeviceBuffers buffers{.input = call.send, .output = call.recv, .scale = call.scale};
  if (call.shape.collective == Collective::kBarrier) buffers = rank().barrier_buffers();
  DeviceOperation operation = make_operation(static_cast<Bound&>(bound).program.get(), buffers, stream);
  operation.meets_all = call.blocks == nullptr && meets_all(call.shape);
  return operation;
}

Result<DeviceOperation> DeviceExecutor::prepare(const MessageCall& call, DeviceStream stream) {
  DeviceMark mark{.is_collective = call.collective, .messages = call.messages};
  if (call.collective) {
    mark.word = agreed_word(call.shape);
    mark.count = call.shape.count;
    mark.signature_seed = signature_seed(mark.word, mark.count);
    for (Message& message : mark.messages) message.seed = mix_bits(message.bytes);
  }
  for (const SelfCopy& copy : take_self_copies(mark.messages, options_.peers.rank()))
    TUTTI_TRY(rank().copy(copy.to, copy.from, copy.bytes, stream));
  if (mark.messages.empty() && !call.collective) return DeviceOperation{};
  auto program = find_messages(std::move(mark));
  TUTTI_TRY(program.status());
  return make_operation(*program, {}, stream);
}

DeviceOperation DeviceExecutor::make_operation(DeviceProgram* program, const DeviceBuffers& buffers,
                                               DeviceStream stream) {
  has_stream_calls_ = has_stream_calls_ || !stream.internal;
  return {.rank = &rank(), .program = program, .buffers = buffers, .stream = stream};
}

Status DeviceExecutor::launch(std::span<const DeviceOperation> operations) {
  TUTTI_TRY(options_.devices.launch(operations));
  options_.relaunch_thread.wake();
  return Status::ok();
}

Status DeviceExecutor::launch_one(const DeviceOperation& operation, DeviceStream stream) {
  const Status launched = launch(std::span(&operation, 1));
  if (launched) return Status::ok();
  // A blocking call goes on until the running part has left.
  return give_up_launch(launched) && stream.internal ? Status::ok() : launched;
}

Status DeviceExecutor::issue(BoundCall& bound, const Call& call, DeviceStream stream) {
  return launch_one(prepare(bound, call, stream), stream);
}

Status DeviceExecutor::issue(const MessageCall& call, DeviceStream stream) {
  const auto operation = prepare(call, stream);
  TUTTI_TRY(operation.status());
  return operation->program == nullptr ? Status::ok() : launch_one(*operation, stream);
}

bool DeviceExecutor::give_up_launch(const Status& why) {
  const bool runs = rank().was_launched();
  // After a driver failure, the other ranks' calls would wait for this rank's.
  if (!runs && why.code() != Code::kSystemError) return false;
  options_.peers.raise(why);
  options_.relaunch_thread.wake();
  return runs;
}

Status DeviceExecutor::order_streams(std::span<void* const> earlier, std::span<void* const> later) {
  return told(rank().order_streams(earlier, later));
}

/// Returns `outcome`. After a failure of the driver, the other ranks' calls would wait for this rank's.
Status DeviceExecutor::told(const Status& outcome) {
  if (outcome.code() != Code::kSystemError) return outcome;
  options_.peers.raise(outcome);
  options_.relaunch_thread.wake();
  return outcome;
}

Status DeviceExecutor::stream_failure() const {
  return has_stream_calls_ ? options_.peers.error() : Status::ok();
}

Result<DeviceProgram*> DeviceExecutor::find_messages(DeviceMark mark) {
  const auto found =
      std::find_if(message_programs_.begin(), message_programs_.end(), [&](const DeviceProgramHold& known) {
        return known->mark.word == mark.word && known->mark.is_collective == mark.is_collective &&
               are_equal(known->mark.messages, mark.messages);
      });
  if (found != message_programs_.end()) return found->get();
  auto fresh = rank().bind_messages(message_options(), std::move(mark));
  TUTTI_TRY(told(fresh.status()));
  if (message_programs_.size() == kMostMessagePrograms) message_programs_.erase(message_programs_.begin());
  message_programs_.push_back(std::move(*fresh));
  return message_programs_.back().get();
}

Status DeviceExecutor::run(BoundCall& bound, const Call& call) {
  if (call.shape.purpose != CallPurpose::kUsers) return run_through_host(bound, call);
  TUTTI_TRY(begin(bound, call));
  return drive(*this);
}

Status DeviceExecutor::run(const MessageCall& call) {
  TUTTI_TRY(begin(call));
  return drive(*this);
}

Status DeviceExecutor::run_through_host(BoundCall& bound, const Call& call) {
  const uint64_t bytes = call.shape.count * type_bytes(call.shape.type);
  const uint64_t gathered = bytes * options_.peers.rank_count();
  auto memory = rank().shared_scratch(bytes + gathered);
  TUTTI_TRY(memory.status());
  Call pinned = call;
  std::memcpy(*memory + gathered, call.send, bytes);
  pinned.send = *memory + gathered;
  pinned.recv = *memory;
  TUTTI_TRY(begin(bound, pinned));
  TUTTI_TRY(drive(*this));
  std::memcpy(call.recv, *memory, gathered);
  return Status::ok();
}

Progress DeviceExecutor::poll() {
  const auto done = rank().is_done();
  if (done) return *done ? Progress::kDone : Progress::kBlocked;
  // finish() returns the error.
  static_cast<void>(fail(done.status()));
  return Progress::kDone;
}

bool DeviceExecutor::buffers_are_free() const {
  if (buffers_are_free_ || !options_.peers.has_error()) return true;
  options_.relaunch_thread.wake();
  return false;
}

/// A failed call returns once its launches have left, because the caller then reuses the buffers.
Status DeviceExecutor::wait() {
  const uint64_t waited_ns = waiter_.pause();
  if (!options_.peers.has_error()) {
    failed_ns_ = 0;
    return Status::ok();
  }
  if (failed_ns_ == 0) failed_ns_ = now_ns();
  const bool patient = waited_ns == 0 || now_ns() - failed_ns_ < kLeavingPatienceMs * 1'000'000;
  return patient ? Status::ok() : options_.peers.error();
}

Status DeviceExecutor::finish(Progress /*progress*/) {
  waiter_.moved();
  if (rank().look().state == DeviceSnapshot::State::kFailed && !options_.peers.has_error()) {
    options_.relaunch_thread.wake();
    const uint64_t deadline_ns = deadline_after_ms(kDiagnosisPatienceMs);
    for (Waiter waiter(WaitMode::kYield); !options_.peers.has_error() && now_ns() < deadline_ns;)
      waiter.pause();
  }
  return options_.peers.error();
}

Status DeviceExecutor::fail(const Status& why) {
  return options_.peers.fail(why);
}

void DeviceExecutor::wait_beside_callers(bool beside) {
  waiter_ = Waiter(beside ? WaitMode::kBeside : options_.wait_mode);
}

Status DeviceExecutor::leave() {
  wait_until_idle();
  return Status::ok();
}

bool DeviceExecutor::wait_until_idle() {
  uint64_t failed_ns = 0;
  for (Waiter waiter(WaitMode::kYield);;) {
    const DeviceSnapshot snapshot = rank().look();
    if (!snapshot.is_running) return true;
    if (!snapshot.device) {
      options_.peers.raise(snapshot.device);
      return false;
    }
    if (options_.peers.has_error() && failed_ns == 0) failed_ns = now_ns();
    if (failed_ns != 0 && now_ns() - failed_ns > kLeavingPatienceMs * 1'000'000) return false;
    options_.relaunch_thread.wake();
    waiter.pause();
  }
}

bool DeviceExecutor::wait_until_stopped() {
  const uint64_t deadline_ns = deadline_after_ms(kLeavingPatienceMs);
  for (Waiter waiter(WaitMode::kYield); !rank().has_stopped(); waiter.pause()) {
    if (now_ns() > deadline_ns) return false;
  }
  return true;
}

/// Keeps for ever the memory of launches queued behind work that never ends. After a failure, graphs may hold
/// more launches.
void DeviceExecutor::close() {
  options_.relaunch_thread.remove(this);
  const DeviceSnapshot snapshot = rank().look();
  const bool has_error = options_.peers.has_error();
  const bool may_run = snapshot.is_running || (snapshot.may_be_replayed && has_error);
  // The relaunch thread may not have aborted yet; launches that begin later leave at once.
  if (has_error) rank().abort();
  // What `abort` writes must not come when the memory is another rank's.
  if (!may_run && (!has_error || wait_until_stopped())) return;
  *keeps_programs_ = true;
  for (auto& program : message_programs_) static_cast<void>(program.release());
  options_.devices.keep_for_good(std::move(options_.rank));
}

RelaunchThread::NextCheck DeviceExecutor::check_launches() {
  const Peers& peers = options_.peers;
  snapshot_ = rank().look();
  if (!has_stopped_) show_on_page(snapshot_);
  // Its operations never end.
  if (!snapshot_.device) peers.raise(snapshot_.device);
  if (snapshot_.state == DeviceSnapshot::State::kFailed && !peers.has_error()) {
    const uint32_t peer = snapshot_.obstacle.peer;
    if (!shows_its_call(peer)) return RelaunchThread::NextCheck::kSoon;
    static_cast<void>(fail(diagnosis_.mismatch_with(peer)));
  }
  const bool is_blocked = snapshot_.state == DeviceSnapshot::State::kBlocked;
  if (is_blocked && !peers.has_error() && diagnosis_.is_due(snapshot_.waited_ns)) {
    const Status diagnosis =
        diagnosis_.look(snapshot_.waited_ns, timeout_ms_.load(std::memory_order_relaxed));
    if (!diagnosis) static_cast<void>(fail(diagnosis));
  }
  if (peers.has_error()) {
    rank().abort();
    let_buffers_go();
  }
  // What it stands behind may wait for this very operation.
  if (peers.has_error() && snapshot_.queued_ns > kGiveUpNs) rank().give_up();
  if (is_blocked && snapshot_.device && !snapshot_.goes_on && snapshot_.queued_ns == 0) {
    if (const Status launched = rank().relaunch(); !launched && !peers.has_error()) peers.raise(launched);
  }
  const bool keeps_buffers = peers.has_error() && !buffers_are_free_;
  const bool may_end = snapshot_.device && (snapshot_.is_running || is_blocked);
  if (may_end || keeps_buffers) return RelaunchThread::NextCheck::kSoon;
  return snapshot_.may_be_replayed ? RelaunchThread::NextCheck::kSeldom : RelaunchThread::NextCheck::kNone;
}

/// After a failure, tells the peers until when this rank's launches may use their buffers, and waits until
/// theirs do not use this rank's. They need as long as a launch needs to leave.
void DeviceExecutor::let_buffers_go() {
  if (stopping_ns_ == 0) stopping_ns_ = now_ns();
  has_stopped_ = has_stopped_ || rank().has_stopped();
  StatusPage& page = options_.peers.own().status;
  page.in_messages.store(has_stopped_ ? 0 : 1, std::memory_order_release);
  if (has_stopped_) page.completed.store(page.sequence.load(), std::memory_order_release);
  const bool are_free = has_stopped_ && !options_.peers.may_use_buffers();
  if (are_free || now_ns() - stopping_ns_ > kLeavingPatienceMs * 1'000'000) buffers_are_free_ = true;
}

/// Publishes the operation under way or, if unknown, the last one. Call and sequence are published together
/// or not at all.
void DeviceExecutor::show_on_page(const DeviceSnapshot& snapshot) {
  StatusPage& page = options_.peers.own().status;
  const bool waits = snapshot.state != DeviceSnapshot::State::kFine;
  const bool is_collective = snapshot.program != nullptr && snapshot.program->mark.is_collective;
  if (waits) sequence_ = snapshot.sequence + (is_collective ? 1 : 0);
  // First: a rank that reads one of the words below then also reads this one.
  page.completed.store(snapshot.sequence, std::memory_order_release);
  if (is_collective) {
    const DeviceMark& mark = snapshot.program->mark;
    const uint64_t number = snapshot.sequence + (waits ? 1 : 0);
    page.show_only_call(number, mark.word, mark.count, mark.counts);
    page.sequence.store(number, std::memory_order_release);
  }
  const bool is_stopping = stopping_ns_ != 0;
  page.in_messages.store(is_stopping || (waits && !is_collective) ? 1 : 0, std::memory_order_relaxed);
  if (!waits) page.waits_for.store(0, std::memory_order_relaxed);
}

/// Whether a peer that sent a message of another call has published that call, or had time to: its relaunch
/// thread looks as soon as it waits.
bool DeviceExecutor::shows_its_call(uint32_t peer) const {
  const StatusPage& theirs = options_.peers.page(peer);
  return snapshot_.waited_ns > kPagePatienceNs || theirs.in_messages.load(std::memory_order_acquire) != 0 ||
         theirs.sequence.load(std::memory_order_acquire) >= sequence_;
}

/// True once a launch has waited in vain from its start for a peer that was already past the operation, or
/// gone. By then all that the peer sent was there.
bool DeviceExecutor::still_waits_for(uint32_t peer) {
  if (suspect_ && *suspect_ == std::pair(peer, snapshot_.sequence)) return snapshot_.launches > suspected_at_;
  suspect_.emplace(peer, snapshot_.sequence);
  // The current round of a launch that stays began earlier.
  suspected_at_ = snapshot_.launches + (snapshot_.goes_on ? 1 : 0);
  return false;
}

}  // namespace tutti
