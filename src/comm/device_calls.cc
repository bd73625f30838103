// Calls of a rank on a device: bound like any other, run by the device, looked after by the relaunch_thread.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "bootstrap/bootstrap.h"
#include "comm/communicator.h"
#include "comm/rank_facts.h"
#include "core/clock.h"
#include "core/log.h"
#include "engine/cuda/bind.h"

namespace tutti {
namespace {

// How long a failed call waits for its launches to leave: they look at the abort word every few polls.
constexpr uint64_t kLeavingPatienceMs = 10'000;
// How long the relaunch_thread may take to find out why a launch has failed.
constexpr uint64_t kVerdictPatienceMs = 5000;
// How long a rank whose message does not match may take to say what it is doing.
constexpr uint64_t kPagePatienceNs = 100'000'000;
// Groups of messages that are kept bound, of each by its very buffers.
constexpr size_t kMostMessagePrograms = 64;

/// Why a rank cannot reach another one's device memory, as ranks tell each other; empty: it can.
struct Obstruction {
  std::array<char, 512> text{};
};

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

bool are_equal(const std::vector<Message>& a, const std::vector<Message>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Message& x, const Message& y) {
    return x.buffer == y.buffer && x.bytes == y.bytes && x.peer == y.peer && x.sending == y.sending &&
           x.signature == y.signature;
  });
}

}  // namespace

Status Communicator::open_device() {
  if (options_.device < 0) return Status::ok();
  const auto refuse = [this](const Status& why) {
    return Status(why.code(),
                  format("config.device is %d: %s", options_.device, std::string(why.text()).c_str()));
  };
  auto devices = process_.devices();
  if (!devices) return refuse(devices.status());
  auto rank = (*devices)->open_rank(options_.device, rank_, rank_count_);
  if (!rank) return refuse(rank.status());
  device_ = std::move(*rank);
  return Status::ok();
}

DeviceIdentity Communicator::device_identity() const {
  if (device_ != nullptr) return device_->identity();
  return {.uuid = {}, .has_failed = options_.device >= 0 ? 1u : 0u};
}

Status Communicator::check_pointer(const char* name, const void* address) const {
  if (device_ != nullptr) return device_->check_pointer(name, address);
  if (staging_ != nullptr) return staging_->device().check_pointer(name, address);
  const Devices* devices = process_.devices_in_use();
  return devices == nullptr ? Status::ok() : devices->check_host_pointer(name, address);
}

/// What keeps the ranks' devices from reaching each other, as far as their facts tell; empty: nothing.
std::string Communicator::find_distance(std::span<const RankFacts> facts) const {
  for (uint32_t rank = 0; rank < rank_count_; ++rank) {
    if (facts[rank].device.is_device == 0) return format("rank %u is in host memory", rank);
  }
  for (uint32_t rank = 0; host_count_ > 1 && rank < rank_count_; ++rank) {
    if (host_of_[rank] != 0) return format("rank %u is on another host than rank 0", rank);
  }
  return "";
}

/// All ranks come to the same result.
Status Communicator::connect_device(Bootstrap& setup, std::span<const RankFacts> facts,
                                    std::span<const KeptFiles> files) {
  // Those that cannot use their devices end the set-up of all.
  if (std::any_of(facts.begin(), facts.end(),
                  [](const auto& theirs) { return theirs.device.has_failed != 0; }))
    return Status::ok();
  if (std::none_of(facts.begin(), facts.end(),
                   [](const auto& theirs) { return theirs.device.is_device != 0; }))
    return Status::ok();
  std::string distance = find_distance(facts);
  if (distance.empty()) {
    auto found = join_devices(setup, facts, files);
    TUTTI_TRY(found.status());
    distance = std::move(*found);
  }
  if (!distance.empty()) return open_staging(distance, count_sharers(facts));
  TUTTI_TRY(join_multicast(setup, facts, files));
  TUTTI_TRY(process_.relaunch_thread().add(this, [this] { return check_launches(); }));
  return Status::ok();
}

/// Ranks of this process on this rank's device, itself among them.
uint32_t Communicator::count_sharers(std::span<const RankFacts> facts) const {
  const DeviceIdentity& own = facts[rank_].device;
  return static_cast<uint32_t>(std::count_if(facts.begin(), facts.end(), [&](const RankFacts& theirs) {
    return theirs.device.is_device != 0 && theirs.device.uuid == own.uuid &&
           theirs.process == process_.token();
  }));
}

/// Ranks on devices of one host try to reach each other's memory. What the lowest rank that could not has
/// said; empty: all could.
Result<std::string> Communicator::join_devices(Bootstrap& setup, std::span<const RankFacts> facts,
                                               std::span<const KeptFiles> files) {
  std::vector<DevicePeer> peers;
  for (const RankFacts& theirs : facts) {
    const DeviceIdentity& device = theirs.device;
    const size_t peer = peers.size();
    const bool has_file = device.has_file != 0 && peer < files.size() && files[peer].device.is_open();
    peers.push_back({.identity = device,
                     .same_process = theirs.process == process_.token(),
                     .file = has_file ? &files[peer].device : nullptr});
    const auto shares = [&](const RankFacts& other) { return other.device.uuid == device.uuid; };
    ranks_on_device_ =
        std::max(ranks_on_device_, static_cast<uint32_t>(std::count_if(facts.begin(), facts.end(), shares)));
    multiprocessors_ = std::min(multiprocessors_, device.multiprocessors);
  }
  const Status joined = device_->connect(peers);
  if (!joined && joined.code() != Code::kUnsupported) return joined;
  if (rank_count_ == 1) return std::string();
  return first_failure(setup, joined,
                       "; the communicator goes on, but its calls pass through host memory, which is slower");
}

/// Devices of one rank each that a switch joins get multicast memory. What fails on one rank none has: calls
/// then go as on devices without.
Status Communicator::join_multicast(Bootstrap& setup, std::span<const RankFacts> facts,
                                    std::span<const KeptFiles> files) {
  const bool all_can =
      std::ranges::all_of(facts, [](const RankFacts& theirs) { return theirs.device.multicasts != 0; });
  if (rank_count_ == 1 || ranks_on_device_ > 1 || !all_can) return Status::ok();
  const bool is_here = facts[0].process == process_.token();
  for (const bool binds : {false, true}) {
    const Status own = binds ? device_->bind_multicast()
                             : device_->add_to_multicast(is_here ? nullptr : &files[0].multicast);
    const auto failure = first_failure(setup, own, "; the communicator goes on without multicast memory");
    TUTTI_TRY(failure.status());
    if (failure->empty()) continue;
    device_->drop_multicast();
    return Status::ok();
  }
  has_multicast_ = true;
  return Status::ok();
}

/// What the lowest rank whose status is none of success has said, which it logs; empty: all have succeeded.
Result<std::string> Communicator::first_failure(Bootstrap& setup, const Status& status,
                                                const char* consequence) const {
  Obstruction own{};
  status.text().copy(own.text.data(), own.text.size() - 1);
  auto all = setup.share(std::as_bytes(std::span(&own, 1)));
  TUTTI_TRY(all.status());
  for (uint32_t rank = 0; rank < rank_count_; ++rank) {
    Obstruction theirs{};
    const std::vector<std::byte>& bytes = (*all)[rank];
    std::memcpy(&theirs, bytes.data(), std::min(sizeof(theirs), bytes.size()));
    theirs.text.back() = '\0';
    const std::string text = theirs.text.data();
    if (text.empty()) continue;
    // Once a communicator.
    if (rank == rank_) log_line(text + consequence);
    return text;
  }
  return std::string();
}

Result<std::unique_ptr<Communicator::Bound>> Communicator::bind_on_device(std::unique_ptr<Bound> bound,
                                                                          const Plan& plan,
                                                                          std::span<const Geometry> stripes,
                                                                          const BindOptions& options,
                                                                          bool by_packets) {
  DeviceMark mark{.word = bound->word, .count = bound->shape.count, .signature_seed = bound->signature_seed};
  auto program = by_packets ? device_->bind_short(plan, stripes, options, std::move(mark))
                            : device_->bind(plan, stripes, options, std::move(mark));
  TUTTI_TRY(program.status());
  bound->program = std::move(*program);
  return bound;
}

/// Whether the choice wants packets for the call, and all ranks' plans allow it: agreed, as both are.
bool Communicator::goes_by_packets(const Bound& bound, const Request& request) const {
  const std::vector<ChoiceRow>& rows = process_.choice().rows();
  if (bound.choice_row >= rows.size() || rows[bound.choice_row].condition != ChoiceRow::Condition::kShort)
    return false;
  for (uint32_t rank = 0; rank < rank_count_; ++rank) {
    if (!cuda::is_one_shot(bound.algorithm->make(request, facts(), rank))) return false;
  }
  return true;
}

Result<DeviceOperation> Communicator::prepare_on_device(const Call& call, DeviceStream stream) {
  if (has_error()) return error();
  if (last_ == nullptr || call.blocks != nullptr || !(last_->shape == call.shape))
    TUTTI_TRY(find_bound(call));
  DeviceBuffers buffers{.input = call.send, .output = call.recv, .scale = call.scale};
  if (call.shape.collective == Collective::kBarrier) buffers = device_->barrier_buffers();
  DeviceOperation operation = make_operation(last_->program.get(), buffers, stream);
  operation.meets_all = call.blocks == nullptr && meets_all(call.shape);
  return operation;
}

Result<DeviceOperation> Communicator::prepare_on_device(const MessageCall& call, DeviceStream stream) {
  if (has_error()) return error();
  DeviceMark mark{.is_collective = call.collective, .messages = call.messages};
  if (call.collective) {
    mark.word = agreed_word(call.shape);
    mark.count = call.shape.count;
    mark.signature_seed = signature_seed(mark.word, mark.count);
    for (Message& message : mark.messages) message.signature = bytes_signature(message.bytes);
  }
  for (const SelfCopy& copy : take_self_copies(mark.messages, rank_))
    TUTTI_TRY(device_->copy(copy.to, copy.from, copy.bytes, stream));
  if (mark.messages.empty() && !call.collective) return DeviceOperation{};
  auto program = find_messages(std::move(mark));
  TUTTI_TRY(program.status());
  return make_operation(*program, {}, stream);
}

DeviceOperation Communicator::make_operation(DeviceProgram* program, const DeviceBuffers& buffers,
                                             DeviceStream stream) {
  has_stream_calls_ = has_stream_calls_ || !stream.internal;
  return {.rank = device_.get(), .program = program, .buffers = buffers, .stream = stream};
}

Status Communicator::launch(std::span<const DeviceOperation> operations) {
  TUTTI_TRY(process_.devices_in_use()->launch(operations));
  process_.relaunch_thread().wake();
  return Status::ok();
}

Status Communicator::order_streams(std::span<void* const> earlier, std::span<void* const> later) {
  if (staging_ != nullptr) {
    for (const std::span<void* const> streams : {earlier, later}) {
      for (void* const stream : streams)
        TUTTI_TRY(staging_->check_stream({.internal = false, .handle = stream}));
    }
  }
  const Status ordered = staging_ != nullptr ? staging_->device().order_streams(earlier, later)
                                             : device_->order_streams(earlier, later);
  if (ordered || ordered.code() != Code::kSystemError) return ordered;
  // As of a launch: the other ranks' calls would wait for this one's.
  raise(ordered);
  process_.relaunch_thread().wake();
  return ordered;
}

bool Communicator::give_up_launch(const Status& why) {
  const bool runs = device_->was_launched();
  // The driver's failures are no fault of the call: the other ranks' would wait for this one's.
  if (!runs && why.code() != Code::kSystemError) return false;
  raise(why);
  process_.relaunch_thread().wake();
  return runs;
}

template <class Anything>
Status Communicator::issue_on_device(const Anything& call, DeviceStream stream) {
  const auto operation = prepare_on_device(call, stream);
  TUTTI_TRY(operation.status());
  if (operation->program == nullptr) return Status::ok();
  const Status launched = launch(std::span(&*operation, 1));
  if (launched) return Status::ok();
  // A blocking call goes on until what runs all the same has left.
  return give_up_launch(launched) && stream.internal ? Status::ok() : launched;
}

Status Communicator::issue(const Call& call, DeviceStream stream) {
  return issue_on_device(call, stream);
}

Status Communicator::issue(const MessageCall& call, DeviceStream stream) {
  return issue_on_device(call, stream);
}

Result<DeviceProgram*> Communicator::find_messages(DeviceMark mark) {
  const auto found =
      std::find_if(message_programs_.begin(), message_programs_.end(), [&](const DeviceProgramHold& known) {
        return known->mark.word == mark.word && known->mark.is_collective == mark.is_collective &&
               are_equal(known->mark.messages, mark.messages);
      });
  if (found != message_programs_.end()) return found->get();
  auto fresh = device_->bind_messages(bind_options(), std::move(mark));
  TUTTI_TRY(fresh.status());
  if (message_programs_.size() == kMostMessagePrograms) message_programs_.erase(message_programs_.begin());
  message_programs_.push_back(std::move(*fresh));
  return message_programs_.back().get();
}

Progress Communicator::poll_device() {
  const auto done = device_->is_done();
  if (done) return *done ? Progress::kDone : Progress::kBlocked;
  raise(done.status());
  return Progress::kDone;
}

/// A call returns its error when its launches have left: its buffers are the caller's again.
Status Communicator::wait_for_device() {
  const uint64_t waited_ns = waiter_.pause();
  if (!has_error()) {
    failed_ns_ = 0;
    return Status::ok();
  }
  if (failed_ns_ == 0) failed_ns_ = now_ns();
  const bool patient = waited_ns == 0 || now_ns() - failed_ns_ < kLeavingPatienceMs * 1'000'000;
  return patient ? Status::ok() : error();
}

Status Communicator::finish_on_device() {
  waiter_.moved();
  if (device_->look().state == DeviceSnapshot::State::kFailed && !has_error()) {
    process_.relaunch_thread().wake();
    const uint64_t deadline_ns = deadline_after_ms(kVerdictPatienceMs);
    for (Waiter waiter(WaitMode::kYield); !has_error() && now_ns() < deadline_ns;) waiter.pause();
  }
  return error();
}

/// A call whose buffers are in host memory, small and seldom: an exchange of the library's own.
Status Communicator::run_through_host(const Call& call) {
  const uint64_t bytes = call.shape.count * type_bytes(call.shape.type);
  const uint64_t gathered = bytes * rank_count_;
  auto memory = device_->shared_scratch(bytes + gathered);
  TUTTI_TRY(memory.status());
  Call staged = call;
  std::memcpy(*memory + gathered, call.send, bytes);
  staged.send = *memory + gathered;
  staged.recv = *memory;
  TUTTI_TRY(issue(staged, DeviceStream{}));
  TUTTI_TRY(drive());
  std::memcpy(call.recv, *memory, gathered);
  return Status::ok();
}

void Communicator::wait_until_device_is_idle() {
  uint64_t failed_ns = 0;
  for (Waiter waiter(WaitMode::kYield);;) {
    const DeviceSnapshot look = device_->look();
    if (!look.is_running) return;
    if (has_error() && failed_ns == 0) failed_ns = now_ns();
    if (failed_ns != 0 && now_ns() - failed_ns > kLeavingPatienceMs * 1'000'000) return;
    process_.relaunch_thread().wake();
    waiter.pause();
  }
}

/// Before the links go. Launches that are queued behind something that never ends still need what they were
/// launched with: then it is never freed. After a failure graphs may have such launches too, which nobody
/// counts.
void Communicator::close_device() {
  if (device_ == nullptr) return;
  process_.relaunch_thread().remove(this);
  const DeviceSnapshot look = device_->look();
  if (!look.is_running && !(look.may_be_replayed && has_error())) return;
  // The relaunch_thread may not have come to it; those that still begin leave at once.
  if (has_error()) device_->abort();
  last_ = nullptr;
  for (auto& [shape, bound] : bound_) static_cast<void>(bound->program.release());
  for (auto& program : message_programs_) static_cast<void>(program.release());
  if (variable_ != nullptr) static_cast<void>(variable_->program.release());
  process_.devices_in_use()->keep_for_good(std::move(device_));
}

Status Communicator::stream_failure() const {
  return has_stream_calls_ ? error() : Status::ok();
}

RelaunchThread::NextCheck Communicator::check_launches() {
  device_snapshot_ = device_->look();
  show_on_page(device_snapshot_);
  if (device_snapshot_.state == DeviceSnapshot::State::kFailed && !has_error()) {
    const uint32_t peer = device_snapshot_.obstacle.peer;
    if (!shows_its_call(peer)) return RelaunchThread::NextCheck::kSoon;
    static_cast<void>(fail(mismatch_with(peer)));
  }
  if (device_snapshot_.state == DeviceSnapshot::State::kBlocked && !has_error())
    static_cast<void>(check_progress(device_snapshot_.waited_ns));
  if (has_error()) device_->abort();
  if (device_snapshot_.state == DeviceSnapshot::State::kBlocked && !device_snapshot_.goes_on) {
    if (const Status launched = device_->relaunch(); !launched && !has_error()) raise(launched);
  }
  if (device_snapshot_.is_running || device_snapshot_.state == DeviceSnapshot::State::kBlocked)
    return RelaunchThread::NextCheck::kSoon;
  return device_snapshot_.may_be_replayed ? RelaunchThread::NextCheck::kSeldom
                                          : RelaunchThread::NextCheck::kNone;
}

/// What peers read of this rank: the operation that is under way if it has been looked at, else the last one.
/// Call and sequence belong together: where the call is not known, neither is told.
void Communicator::show_on_page(const DeviceSnapshot& look) {
  StatusPage& page = header_->status;
  const bool waits = look.state != DeviceSnapshot::State::kFine;
  const bool is_collective = look.program != nullptr && look.program->mark.is_collective;
  if (waits) sequence_ = look.sequence + (is_collective ? 1 : 0);
  // First: who finds one of the words below reads this one behind it.
  page.completed.store(look.sequence, std::memory_order_release);
  if (is_collective) {
    page.call.store(look.program->mark.word, std::memory_order_release);
    page.count.store(look.program->mark.count, std::memory_order_release);
    page.sequence.store(look.sequence + (waits ? 1 : 0), std::memory_order_release);
  }
  page.in_messages.store(waits && !is_collective ? 1 : 0, std::memory_order_relaxed);
  if (!waits) page.waits_for.store(0, std::memory_order_relaxed);
}

/// Whether a peer that has sent a message of another call has told its page which one that is, or has had the
/// time to: its relaunch_thread looks as soon as it waits.
bool Communicator::shows_its_call(uint32_t peer) const {
  const StatusPage& theirs = links_.peers()[peer].segment->header().status;
  return device_snapshot_.waited_ns > kPagePatienceNs ||
         theirs.in_messages.load(std::memory_order_acquire) != 0 ||
         theirs.sequence.load(std::memory_order_acquire) >= sequence_;
}

/// Whether a launch that began after the peer was first seen to be past the operation, or gone, has waited
/// for it in vain: all that it had sent was there.
bool Communicator::waits_in_vain(uint32_t peer) {
  if (suspect_ && *suspect_ == std::pair(peer, device_snapshot_.sequence))
    return device_snapshot_.launches > suspected_at_;
  suspect_.emplace(peer, device_snapshot_.sequence);
  // The present round of a launch that stays began before.
  suspected_at_ = device_snapshot_.launches + (device_snapshot_.goes_on ? 1 : 0);
  return false;
}

}  // namespace tutti
