// Operations of ranks on devices: how they come into streams, in order, and what becomes of their launches.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "comm/cuda_rank.h"
#include "comm/device_arguments.h"
#include "core/clock.h"

namespace tutti {
namespace {

using cuda::BesideCaptures;
using cuda::CurrentContext;

// A lane that was not ready so many times in a row gives its place on the device to others: about a
// millisecond, so that ranks which all have their place seldom leave.
constexpr uint64_t kPolls = 1000;

/// A word that the device writes.
template <class T>
T load(const T& word) {
  return std::atomic_ref(const_cast<T&>(word)).load(std::memory_order_acquire);
}

CudaRank& rank_of(const DeviceOperation& operation) {
  return static_cast<CudaRank&>(*operation.rank);
}

/// The locks of the operations' ranks. Several at a time only behind one more, so their order does not
/// matter.
class RankLocks {
 public:
  RankLocks(std::mutex& together, std::span<const DeviceOperation> operations)
      : together_(together, std::defer_lock), operations_(operations) {
    if (operations_.size() > 1) together_.lock();
    for (const DeviceOperation& operation : operations_) rank_of(operation).lock();
  }
  ~RankLocks() {
    for (const DeviceOperation& operation : operations_) rank_of(operation).unlock();
  }
  RankLocks(const RankLocks&) = delete;
  RankLocks& operator=(const RankLocks&) = delete;

 private:
  std::unique_lock<std::mutex> together_;
  std::span<const DeviceOperation> operations_;
};

}  // namespace

/// The stream, if it is one of this device.
Result<CUstream> CudaRank::find_stream(DeviceStream stream) const {
  if (stream.internal) return blocking_.handle();
  return check_stream(context_, rank_, stream.handle);
}

/// Makes the stream wait for the rank's operations so far. In a capture only for those that were captured
/// with it: what else runs when the graph is launched is the launching stream's affair.
Status CudaRank::order(CUstream stream, std::optional<uint64_t>& capture) {
  auto found = find_capture(driver(), stream);
  TUTTI_TRY(found.status());
  capture = *found;
  if (capture) {
    const bool first = capture_id_ != *capture;
    capture_id_ = *capture;
    if (first || stream == capture_stream_) return Status::ok();
    return capture_event_.make_wait(stream);
  }
  // Threads share the handle of their default streams.
  if (!has_mark_ || (stream == last_stream_ && stream != CU_STREAM_PER_THREAD)) return Status::ok();
  return issued_event_.make_wait(stream);
}

/// For the next operation's `order`.
Status CudaRank::leave_mark(CUstream stream, bool captured) {
  if (captured) {
    capture_stream_ = stream;
    captured_any_ = true;
  } else {
    last_stream_ = stream;
    has_mark_ = true;
  }
  return mark(captured).record(stream);
}

Status CudaRank::copy(void* to, const void* from, uint64_t bytes, DeviceStream stream) {
  const BesideCaptures beside(driver());
  const std::scoped_lock lock(mutex_);
  TUTTI_TRY(begin({.rank = this, .program = nullptr, .buffers = {}, .stream = stream}));
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  TUTTI_TRY(driver().check(driver().memcpy_async(reinterpret_cast<CUdeviceptr>(to),
                                                 reinterpret_cast<CUdeviceptr>(from), bytes, pending_.stream),
                           "cuMemcpyAsync"));
  return leave_mark(pending_.stream, pending_.capture.has_value());
}

Status CudaRank::begin(const DeviceOperation& operation) {
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  pending_ = {};
  pending_.program = static_cast<CudaProgram*>(operation.program);
  pending_.buffers = operation.buffers;
  auto stream = find_stream(operation.stream);
  TUTTI_TRY(stream.status());
  pending_.stream = *stream;
  return order(*stream, pending_.capture);
}

/// Whether the other rank is one of this one's communicator and process.
bool CudaRank::has_peer(const CudaRank& other) const {
  return other.rank_ < peers_.size() && peers_[other.rank_].links == other.links_;
}

bool CudaRank::can_join(const CudaRank& lead, const SharedLaunch& shared) const {
  if (this == &lead) return true;
  const CudaProgram& program = *pending_.program;
  return !pending_.is_launched && &device_ == &lead.device_ && has_peer(lead) &&
         pending_.capture == lead.pending_.capture &&
         program.by_packets == lead.pending_.program->by_packets && context_.facts().launches_cooperatively &&
         shared.launch.part_count < cuda::kMaxParts && shared.blocks + program.lanes <= device_.resident;
}

Status CudaRank::join(const CudaRank& lead, SharedLaunch& shared) {
  if (pending_.stream != lead.pending_.stream) {
    const CurrentContext current(context_);
    TUTTI_TRY(current.status());
    const bool captured = pending_.capture.has_value();
    TUTTI_TRY(leave_mark(pending_.stream, captured));
    TUTTI_TRY(mark(captured).make_wait(lead.pending_.stream));
  }
  const CudaProgram& program = *pending_.program;
  const uint32_t number = shared.launch.part_count++;
  shared.launch.parts[number] = {.program = reinterpret_cast<cuda::Program*>(program.address),
                                 .input = pending_.buffers.input,
                                 .output = pending_.buffers.output,
                                 .scale = pending_.buffers.scale,
                                 .first_block = shared.blocks,
                                 .block_count = program.lanes};
  shared.ranks[number] = this;
  shared.blocks += program.lanes;
  shared.threads = std::max(shared.threads, program.threads);
  return Status::ok();
}

Status CudaRank::queue(SharedLaunch& shared) {
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  cuda::Launch& launch = shared.launch;
  launch.first = 1;
  launch.poll_limit = kPolls;
  TUTTI_TRY(
      cuda::launch(context_, kernel(*pending_.program),
                   {.blocks = shared.blocks, .threads = shared.threads, .cooperative = launch.part_count > 1},
                   pending_.stream, &launch));
  const bool captured = pending_.capture.has_value();
  bool has_mark = false;
  for (CudaRank* rank : std::span(shared.ranks).first(launch.part_count)) {
    PendingOperation& theirs = rank->pending_;
    theirs.is_launched = true;
    theirs.program->captured = theirs.program->captured || captured;
    if (!captured) {
      ++rank->issued_;
      rank->last_program_ = theirs.program;
    }
    if (theirs.stream == pending_.stream) continue;
    if (!std::exchange(has_mark, true)) TUTTI_TRY(leave_mark(pending_.stream, captured));
    TUTTI_TRY(mark(captured).make_wait(theirs.stream));
  }
  return Status::ok();
}

Status CudaRank::end() {
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  const auto done = reinterpret_cast<CUdeviceptr>(&signals_->done);
  TUTTI_TRY(driver().check(driver().stream_wait_value32(pending_.stream, done, 1, CU_STREAM_WAIT_VALUE_EQ),
                           "cuStreamWaitValue32"));
  return leave_mark(pending_.stream, pending_.capture.has_value());
}

Status CudaDevices::launch(std::span<const DeviceOperation> operations) {
  const BesideCaptures beside(*driver_);
  const RankLocks locks(together_, operations);
  for (const DeviceOperation& operation : operations) TUTTI_TRY(rank_of(operation).begin(operation));
  for (const DeviceOperation& first : operations) {
    CudaRank& lead = rank_of(first);
    if (lead.is_launched()) continue;
    SharedLaunch shared;
    for (const DeviceOperation& operation : operations) {
      CudaRank& rank = rank_of(operation);
      if (rank.can_join(lead, shared)) TUTTI_TRY(rank.join(lead, shared));
    }
    TUTTI_TRY(lead.queue(shared));
  }
  for (const DeviceOperation& operation : operations) TUTTI_TRY(rank_of(operation).end());
  return Status::ok();
}

Result<bool> CudaRank::is_done() {
  const BesideCaptures beside(driver());
  const std::scoped_lock lock(mutex_);
  return has_ended();
}

/// Whether all operations outside captures have. mutex_ is held.
Result<bool> CudaRank::has_ended() const {
  if (!has_mark_) return true;
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  const CUresult result = driver().event_query(issued_event_.handle());
  if (result == CUDA_ERROR_NOT_READY) return false;
  TUTTI_TRY(driver().check(result, "cuEventQuery"));
  return true;
}

DeviceLook CudaRank::look() {
  const BesideCaptures beside(driver());
  const std::scoped_lock lock(mutex_);
  DeviceLook look;
  const uint64_t left = load(signals_->left);
  const uint64_t ended = load(signals_->ended);
  const auto ring = static_cast<cuda::Ring>(left & ((1u << cuda::kRingBits) - 1));
  look.launches = left >> cuda::kRingBits;
  look.sequence = load(signals_->sequence);
  look.may_be_replayed = captured_any_;
  // Operations of replayed graphs count among the ended ones.
  if (captured_any_) {
    const auto done = has_ended();
    look.is_running = done && !*done;
  } else {
    look.is_running = issued_ > ended + given_up_;
  }
  const uint64_t moved = load(signals_->moved);
  if (moved != seen_moved_ || ended != seen_ended_ || moved_ns_ == 0) moved_ns_ = now_ns();
  seen_moved_ = moved;
  seen_ended_ = ended;
  if (ring == cuda::Ring::kMismatch) look.state = DeviceLook::State::kFailed;
  if (ring == cuda::Ring::kUnfinished && left != relaunched_left_) look.state = DeviceLook::State::kBlocked;
  if (look.state == DeviceLook::State::kFine) {
    // What was issued last is what has ended last.
    look.program = look.is_running ? nullptr : last_program_;
    return look;
  }
  const auto found = programs_.find(reinterpret_cast<uint64_t>(signals_->part.program));
  if (found != programs_.end()) look.program = found->second.get();
  look.waited_ns = now_ns() - moved_ns_;
  const cuda::Obstacle& obstacle = signals_->obstacle;
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
  relaunched_left_ = load(signals_->left);
  cuda::Launch launch{};
  launch.parts[0] = signals_->part;
  launch.parts[0].first_block = 0;
  launch.part_count = 1;
  launch.first = 0;
  launch.poll_limit = kPolls;
  const auto& program = programs_.at(reinterpret_cast<uint64_t>(launch.parts[0].program));
  const Status launched =
      cuda::launch(context_, kernel(*program), {.blocks = program->lanes, .threads = program->threads},
                   relaunch_.handle(), &launch);
  if (!launched) {
    // Nobody else can release the stream that waits for the operation.
    ++given_up_;
    std::atomic_ref(signals_->done).store(1, std::memory_order_release);
  }
  return launched;
}

void CudaRank::abort() {
  std::atomic_ref(signals_->abort).store(1, std::memory_order_release);
}

}  // namespace tutti
