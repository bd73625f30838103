// Operations of ranks on devices: how they enter streams in order, and how their launches end.
#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <mutex>
#include <utility>

#include "core/clock.h"
#include "core/shared_word.h"
#include "device/cuda_rank.h"
#include "device/device_arguments.h"

namespace tutti {
namespace {

using cuda::BesideCaptures;
using cuda::CurrentContext;

// After this many polls without progress, about a millisecond, a lane leaves its place on the device to
// others. Ranks that all have a place seldom leave.
constexpr uint64_t kPolls = 1000;
// The same, about 100 us, where the device meanwhile serves no other process.
constexpr uint64_t kYieldingPolls = 100;
// The same in a launch that stays, about 2 ms. A shorter bound gains nothing: a lane that gives up its round
// waits for the busy ones.
constexpr uint64_t kStayPolls = 2000;

// A relaunch that has waited in its queue for so long may be behind work that waits for it.
constexpr uint64_t kQueuedNs = 20'000'000;

// How often a rank with an operation under way asks whether the device has failed: only the driver knows.
constexpr uint64_t kHealthNs = 20'000'000;

// A report is whole within a microsecond. So many tries, half a second, are for a device that has died.
constexpr uint32_t kReportTries = 1'000'000;

/// Loads a word that the device writes.
template <class T>
T load(const T& word) {
  return load_shared(word, std::memory_order_acquire);
}

/// Loads a report's counts. False: one of them does not belong to `left`.
bool load_counts(const cuda::StampedCount (&counts)[cuda::kReportCounts], uint64_t left,
                 std::array<uint64_t, cuda::kReportWords>& words) {
  for (uint32_t i = 0; i < cuda::kReportCounts; ++i) {
    // A stamp before and after the count: they are stored at once.
    const bool before = load(counts[i].left) == left;
    words[i] = load(counts[i].count);
    if (!before || load(counts[i].left) != left) return false;
  }
  return true;
}

/// The last launch or round that left, and its report.
struct Left {
  uint64_t word = 0;
  cuda::LaunchReport report{};

  cuda::LaunchEnd end() const {
    return static_cast<cuda::LaunchEnd>(word & ((1u << cuda::kLaunchEndBits) - 1));
  }

  static Left of(const cuda::Signals& signals) {
    std::array<uint64_t, cuda::kReportWords> words{};
    Left left;
    // The words are on their way together. A device that dies between them must not keep its host here.
    bool same = false;
    for (uint32_t tries = 0; !same && tries < kReportTries; ++tries) {
      left.word = load(signals.left);
      const uint32_t number = cuda::report_slot(left.word);
      const auto& slot = signals.report[number];
      // Acquire loads: the second load of `left` must come after them.
      std::transform(std::begin(slot), std::end(slot), words.begin(), load<uint64_t>);
      same = load_counts(signals.counts[number], left.word, words) && load(signals.left) == left.word;
    }
    left.report = std::bit_cast<cuda::LaunchReport>(words);
    return left;
  }
};

CudaRank& rank_of(const DeviceOperation& operation) {
  return static_cast<CudaRank&>(*operation.rank);
}

/// Locks the operations' ranks. `together` guards taking several locks, so their order does not matter. It is
/// not kept: a launch into a full stream waits, perhaps for an operation that another thread has yet to
/// launch.
class RankLocks {
 public:
  RankLocks(std::mutex& together, std::span<const DeviceOperation> operations) : operations_(operations) {
    std::unique_lock one_at_a_time(together, std::defer_lock);
    if (operations_.size() > 1) one_at_a_time.lock();
    for (const DeviceOperation& operation : operations_) rank_of(operation).lock();
  }
  ~RankLocks() {
    for (const DeviceOperation& operation : operations_) rank_of(operation).unlock();
  }
  RankLocks(const RankLocks&) = delete;
  RankLocks& operator=(const RankLocks&) = delete;

 private:
  std::span<const DeviceOperation> operations_;
};

}  // namespace

Status CudaRank::find(const DeviceOperation& operation, const CudaRank& first) {
  pending_ = {};
  pending_.program = static_cast<CudaProgram*>(operation.program);
  pending_.buffers = operation.buffers;
  pending_.meets_all = operation.meets_all;
  if (operation.stream.internal) {
    pending_.stream = &device_ == &first.device_ ? first.blocking_.handle() : blocking_.handle();
    return Status::ok();
  }
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  const auto stream = check_stream(context_, rank_, operation.stream.handle);
  TUTTI_TRY(stream.status());
  const auto capture = find_capture(driver(), *stream);
  TUTTI_TRY(capture.status());
  pending_.stream = *stream;
  pending_.capture = *capture;
  return Status::ok();
}

Status CudaRank::order() const {
  const CUstream stream = pending_.stream;
  // Per-thread default streams have one handle for all threads.
  const bool goes_on = pending_.capture
                           ? capture_id_ != pending_.capture || stream == capture_stream_
                           : marks_ == 0 || (stream == last_stream_ && stream != CU_STREAM_PER_THREAD);
  if (goes_on) return Status::ok();
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  return mark().make_wait(stream);
}

/// Records the event for the next operation's `order`.
Status CudaRank::leave_mark() {
  const bool captured = pending_.capture.has_value();
  if (captured) {
    capture_id_ = pending_.capture;
    capture_stream_ = pending_.stream;
  } else {
    last_stream_ = pending_.stream;
  }
  TUTTI_TRY(mark().record(pending_.stream));
  const std::scoped_lock lock(mutex_);
  if (captured)
    captured_any_ = true;
  else
    ++marks_;
  return Status::ok();
}

Status CudaRank::copy(void* to, const void* from, uint64_t bytes, DeviceStream stream) {
  const BesideCaptures beside(driver());
  const std::scoped_lock lock(issuing_);
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  DeviceOperation operation;
  operation.stream = stream;
  TUTTI_TRY(find(operation, *this));
  TUTTI_TRY(order());
  TUTTI_TRY(driver().check(driver().memcpy_async(reinterpret_cast<CUdeviceptr>(to),
                                                 reinterpret_cast<CUdeviceptr>(from), bytes, pending_.stream),
                           "cuMemcpyAsync"));
  return leave_mark();
}

Status CudaRank::order_streams(std::span<void* const> earlier, std::span<void* const> later) {
  const BesideCaptures beside(driver());
  const std::scoped_lock lock(issuing_);
  return tutti::order_streams(context_, rank_, streams_event_, earlier, later);
}

bool CudaRank::has_peer(const DeviceRank& other) const {
  const auto& theirs = static_cast<const CudaRank&>(other);
  return theirs.rank_ < peers_.size() && peers_[theirs.rank_].links == theirs.links_;
}

uint64_t CudaRank::polls() const {
  return yields_ ? kYieldingPolls : kPolls;
}

void CudaRank::count_into(SharedLaunch& shared) const {
  const uint32_t blocks = part_blocks(shared);
  shared.blocks += blocks;
  shared.borrowed += borrowed_;
  shared.takes_turns = shared.takes_turns || blocks < pending_.program->lanes;
}

bool CudaRank::can_join(const CudaRank& lead, const SharedLaunch& shared) const {
  if (this == &lead) return true;
  const PendingOperation& first = lead.pending_;
  const CudaProgram& program = *pending_.program;
  // Blocks lent to others may stay away until this launch ends. When a captured graph is launched, no block
  // may be left.
  const uint32_t unlent = device_.lender->left();
  const uint32_t left = pending_.capture ? 0 : unlent - std::min(unlent, others_);
  const uint32_t room = std::min(device_.resident, left + 1 + shared.borrowed + borrowed_);
  // A part that waits for an unrelated stream could, through other ranks, wait for itself.
  const bool may_wait = pending_.stream == first.stream || (pending_.meets_all && first.meets_all);
  return !pending_.is_launched && may_wait && &device_ == &lead.device_ &&
         pending_.capture == first.capture && program.by_packets == first.program->by_packets &&
         context_.facts().launches_cooperatively && shared.launch.part_count < cuda::kMaxParts &&
         shared.blocks + part_blocks(shared) <= room;
}

Status CudaRank::join(const CudaRank& lead, SharedLaunch& shared) {
  if (pending_.stream != lead.pending_.stream) {
    const CurrentContext current(context_);
    TUTTI_TRY(current.status());
    TUTTI_TRY(leave_mark());
    TUTTI_TRY(mark().make_wait(lead.pending_.stream));
  }
  const CudaProgram& program = *pending_.program;
  const uint32_t number = shared.launch.part_count++;
  shared.launch.parts[number] = {.program = reinterpret_cast<cuda::Program*>(program.address),
                                 .input = pending_.buffers.input,
                                 .output = pending_.buffers.output,
                                 .scale = pending_.buffers.scale,
                                 .first_block = shared.blocks,
                                 .block_count = part_blocks(shared),
                                 .input_reach = registrations_.find(pending_.buffers.input),
                                 .output_reach = registrations_.find(pending_.buffers.output)};
  shared.ranks[number] = this;
  shared.threads = std::max(shared.threads, program.threads);
  count_into(shared);
  return Status::ok();
}

void CudaRank::note_launch(bool stays) {
  const std::scoped_lock lock(mutex_);
  pending_.is_launched = true;
  pending_.stays = stays;
  if (pending_.capture) {
    pending_.program->captured = true;
  } else {
    // A rank that was idle waits from now on, and not since the end of its previous operation.
    if (issued_ <= Left::of(*signals_).report.ended + given_up_) moved_ns_ = now_ns();
    ++issued_;
    last_program_ = programs_.at(pending_.program->address);
  }
}

Status CudaRank::queue(SharedLaunch& shared) {
  cuda::Launch& launch = shared.launch;
  launch.first = 1;
  launch.poll_limit = launch.stays != 0 && !shared.takes_turns ? kStayPolls : polls();
  // What stays must be on the device as a whole. Under MPS nobody knows what other processes keep of it.
  const bool whole = launch.part_count > 1 || (launch.stays != 0 && context_.facts().is_shared);
  cuda::Grid grid{.blocks = shared.blocks, .threads = shared.threads, .cooperative = whole};
  const cuda::Kernel& run = kernel(*pending_.program);
  Status queued = cuda::launch(context_, run, grid, pending_.stream, &launch);
  if (queued.code() == Code::kUnsupported && grid.cooperative) {
    // The process has only a share of the device, as under MPS. Parts in turn make progress too, and each has
    // one block per lane: a rank with takes_turns_ shares no launch. Alone, its launch has staying blocks
    // that take turns, and each would leave behind its first lane.
    grid.cooperative = false;
    launch.stays = 0;
    launch.poll_limit = polls();
    if (launch.part_count == 1) grid.blocks = launch.parts[0].block_count = pending_.program->lanes;
    queued = cuda::launch(context_, run, grid, pending_.stream, &launch);
  }
  TUTTI_TRY(queued);
  const auto ranks = std::span(shared.ranks).first(launch.part_count);
  for (CudaRank* rank : ranks) rank->note_launch(launch.stays != 0);
  const auto is_elsewhere = [this](const CudaRank* rank) { return rank->pending_.stream != pending_.stream; };
  if (std::none_of(ranks.begin(), ranks.end(), is_elsewhere)) return Status::ok();
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  Status waiting = leave_mark();
  for (const CudaRank* rank : ranks) {
    if (!waiting || !is_elsewhere(rank)) continue;
    waiting = mark().make_wait(rank->pending_.stream);
  }
  return waiting;
}

Status CudaRank::end() {
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  Status waits;
  if (!pending_.stays) {
    const auto done = reinterpret_cast<CUdeviceptr>(&signals_->done);
    waits = driver().check(driver().stream_wait_value32(pending_.stream, done, 1, CU_STREAM_WAIT_VALUE_EQ),
                           "cuStreamWaitValue32");
  }
  const Status marked = leave_mark();
  return waits ? marked : waits;
}

/// Whether the lead's launch may stay: it has room and holds all the operations on this device, so it cannot
/// wait for a launch behind it.
bool CudaDevices::can_stay(const CudaRank& lead, std::span<const DeviceOperation> operations) {
  SharedLaunch shared;
  shared.launch.stays = 1;
  for (const DeviceOperation& operation : operations) {
    const CudaRank& rank = rank_of(operation);
    if (!rank.shares_device(lead)) continue;
    if (!rank.has_room() || !rank.can_join(lead, shared)) return false;
    rank.count_into(shared);
    ++shared.launch.part_count;
  }
  return true;
}

Status CudaDevices::queue_parts(std::span<const DeviceOperation> operations) {
  for (const DeviceOperation& first : operations) {
    CudaRank& lead = rank_of(first);
    if (lead.was_launched()) continue;
    SharedLaunch shared;
    shared.launch.stays = can_stay(lead, operations) ? 1 : 0;
    for (const DeviceOperation& operation : operations) {
      CudaRank& rank = rank_of(operation);
      if (rank.can_join(lead, shared)) TUTTI_TRY(rank.join(lead, shared));
    }
    TUTTI_TRY(lead.queue(shared));
  }
  return Status::ok();
}

Status CudaDevices::launch(std::span<const DeviceOperation> operations) {
  const BesideCaptures beside(*driver_);
  const RankLocks locks(together_, operations);
  for (const DeviceOperation& operation : operations)
    TUTTI_TRY(rank_of(operation).find(operation, rank_of(operations.front())));
  for (const DeviceOperation& operation : operations) TUTTI_TRY(rank_of(operation).order());
  Status status = contained([&] { return queue_parts(operations); });
  // Queued operations get their wait and event despite any failure.
  for (const DeviceOperation& operation : operations) {
    CudaRank& rank = rank_of(operation);
    if (!rank.was_launched()) continue;
    const Status ended = rank.end();
    if (status) status = ended;
  }
  return status;
}

Result<bool> CudaRank::is_done() {
  const BesideCaptures beside(driver());
  const std::scoped_lock lock(mutex_);
  return has_ended();
}

/// Whether all operations outside captures have ended. mutex_ is held.
Result<bool> CudaRank::has_ended() const {
  return marks_ == 0 ? Result<bool>(true) : issued_event_.is_done();
}

/// Whether an operation outside captures is under way or a stream waits for one. `ended`: operations that
/// have ended, those of graphs included. mutex_ is held.
bool CudaRank::is_running(uint64_t ended) {
  if (!captured_any_ && issued_ > ended + given_up_) return true;
  if (settled_ == marks_) return false;
  const auto done = has_ended();
  if (done && *done) settled_ = marks_;
  return done && !*done;
}

/// mutex_ is held.
const Status& CudaRank::check_device() {
  const uint64_t now = now_ns();
  if (health_ && now - asked_ns_ > kHealthNs) {
    asked_ns_ = now;
    health_ = has_ended().status();
  }
  return health_;
}

DeviceSnapshot CudaRank::look() {
  const BesideCaptures beside(driver());
  const std::scoped_lock lock(mutex_);
  DeviceSnapshot look;
  const Left left = Left::of(*signals_);
  const cuda::LaunchReport& report = left.report;
  const cuda::LaunchEnd end = left.end();
  if (left.word != seen_left_) left_ns_ = now_ns();
  seen_left_ = left.word;
  look.launches = left.word >> cuda::kLaunchEndBits;
  look.sequence = report.sequence;
  look.may_be_replayed = captured_any_;
  const bool waits = end == cuda::LaunchEnd::kUnfinished || end == cuda::LaunchEnd::kGoesOn;
  const bool is_tried = waits && left.word == relaunched_left_;
  const bool is_relaunched = is_tried && relaunched_ns_ != 0;
  look.is_running = is_running(report.ended) || is_relaunched;
  if (look.is_running || waits) look.device = check_device();
  // An operation's wait begins with its first launch, not with the end of the previous operation.
  const bool begins = end == cuda::LaunchEnd::kNone || end == cuda::LaunchEnd::kDone;
  if (report.moved != seen_moved_ || report.ended != seen_ended_ || begins) moved_ns_ = now_ns();
  seen_moved_ = report.moved;
  seen_ended_ = report.ended;
  if (end == cuda::LaunchEnd::kMismatch) look.state = DeviceSnapshot::State::kFailed;
  look.goes_on = end == cuda::LaunchEnd::kGoesOn;
  look.queued_ns = is_relaunched ? queued_ns() : 0;
  if (waits && (!is_tried || look.queued_ns > 0)) look.state = DeviceSnapshot::State::kBlocked;
  if (look.state == DeviceSnapshot::State::kFine) {
    // The last issued operation is the last one ended, once both counts agree: a launch may end before
    // note_launch, and a graph's operations are not issued.
    const bool is_last = !look.is_running && report.ended + given_up_ == issued_;
    if (is_last) look.program = last_program_;
    return look;
  }
  const auto found = programs_.find(reinterpret_cast<uint64_t>(report.part.program));
  if (found != programs_.end()) look.program = found->second;
  // After a round has left, lanes may move unreported.
  look.waited_ns = look.goes_on ? left_ns_ - std::min(left_ns_, moved_ns_) : now_ns() - moved_ns_;
  const cuda::Obstacle& obstacle = report.obstacle;
  look.obstacle = {.peer = obstacle.peer,
                   .step = obstacle.step,
                   .sending = obstacle.sending != 0,
                   .word = obstacle.word,
                   .expected = obstacle.expected};
  return look;
}

Status CudaRank::relaunch() {
  const BesideCaptures beside(driver());
  const std::scoped_lock lock(mutex_);
  const Left left = Left::of(*signals_);
  relaunched_left_ = left.word;
  relaunched_ns_ = now_ns();
  cuda::Launch launch{};
  launch.parts[0] = left.report.part;
  launch.parts[0].first_block = 0;
  launch.part_count = 1;
  launch.first = 0;
  launch.poll_limit = polls();
  const auto& program = programs_.at(reinterpret_cast<uint64_t>(launch.parts[0].program));
  const Status launched = contained([&]() -> Status {
    const CurrentContext current(context_);
    TUTTI_TRY(current.status());
    TUTTI_TRY(relaunch_begins_.record(relaunch_.handle()));
    return cuda::launch(context_, kernel(*program), {.blocks = program->lanes, .threads = program->threads},
                        relaunch_.handle(), &launch);
  });
  if (!launched) {
    relaunched_ns_ = 0;
    // No one else can release the stream that waits for the operation.
    release_stream();
  }
  return launched;
}

/// The time since a relaunch that has not begun, once that is long; else 0. mutex_ is held.
uint64_t CudaRank::queued_ns() const {
  const uint64_t since_ns = now_ns() - relaunched_ns_;
  if (since_ns < kQueuedNs) return 0;
  const auto has_begun = relaunch_begins_.is_done();
  return has_begun && !*has_begun ? since_ns : 0;
}

void CudaRank::give_up() {
  const std::scoped_lock lock(mutex_);
  if (given_up_left_ != relaunched_left_) release_stream();
  given_up_left_ = relaunched_left_;
}

/// Lets the stream go on that waits for the operation. mutex_ is held.
void CudaRank::release_stream() {
  ++given_up_;
  store_shared(signals_->done, 1, std::memory_order_release);
}

bool CudaRank::is_aborted() const {
  return load(signals_->abort) != 0;
}

/// A launch that begins looks at its device's word only: the host's is far away. By value, since that needs
/// neither a block nor a copy engine, which others may keep busy. Peers that still run find this rank's
/// buffer exposed no more.
void CudaRank::abort() {
  store_shared(signals_->abort, 1, std::memory_order_release);
  const BesideCaptures beside(driver());
  const std::scoped_lock lock(mutex_);
  if (std::exchange(is_barred_, true)) return;
  const CurrentContext current(context_);
  const CUstream stream = memory_.stream().handle();
  // What fails here fails on a dead device, where nothing runs.
  (void)driver().stream_write_value32(stream, reinterpret_cast<CUdeviceptr>(&state_->failed),
                                      static_cast<cuuint32_t>(cuda::LaunchEnd::kAborted),
                                      CU_STREAM_WRITE_VALUE_DEFAULT);
  (void)driver().stream_write_value64(stream, reinterpret_cast<CUdeviceptr>(&links_->exposed_buffer()->call),
                                      0, CU_STREAM_WRITE_VALUE_DEFAULT);
}

bool CudaRank::has_stopped() {
  const BesideCaptures beside(driver());
  const std::scoped_lock lock(mutex_);
  // A launch that has just begun without the bar has said so by the next call.
  if (bar_has_come_) return load(signals_->done) != 0;
  const CurrentContext current(context_);
  const CUresult answer = driver().stream_query(memory_.stream().handle());
  bar_has_come_ = answer == CUDA_SUCCESS;
  return !bar_has_come_ && answer != CUDA_ERROR_NOT_READY;
}

}  // namespace tutti
