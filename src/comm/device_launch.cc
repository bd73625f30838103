// Operations of ranks on devices: how they come into streams, in order, and what becomes of their launches.
#include <atomic>

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

}  // namespace

/// The stream, if it is one of this device.
Result<CUstream> CudaRank::find_stream(DeviceStream stream) const {
  if (stream.internal) return blocking_.handle();
  return check_stream(context_, rank_, stream.handle);
}

/// Makes the stream wait for the rank's operations so far. In a capture only for those that were captured
/// with it: what else runs when the graph is launched is the launching stream's affair.
Status CudaRank::order(CUstream stream, bool& captured) {
  const auto capture = find_capture(driver(), stream);
  TUTTI_TRY(capture.status());
  captured = capture->has_value();
  if (captured) {
    const bool first = capture_id_ != **capture;
    capture_id_ = **capture;
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
    return capture_event_.record(stream);
  }
  last_stream_ = stream;
  has_mark_ = true;
  return issued_event_.record(stream);
}

Status CudaRank::run(const CudaProgram& program, const cuda::Launch& launch, CUstream stream) const {
  const cuda::Kernel& kernel = program.by_packets ? device_.run_short : device_.run;
  return cuda::launch(context_, kernel, {.blocks = program.lanes, .threads = program.threads}, stream,
                      &launch);
}

/// `queue(CUstream, captured)` puts an operation in the stream, behind the rank's operations so far.
template <class Queue>
Status CudaRank::issue(DeviceStream stream, const Queue& queue) {
  const BesideCaptures beside(driver());
  const std::scoped_lock lock(mutex_);
  const CurrentContext current(context_);
  TUTTI_TRY(current.status());
  auto handle = find_stream(stream);
  TUTTI_TRY(handle.status());
  bool captured = false;
  TUTTI_TRY(order(*handle, captured));
  TUTTI_TRY(queue(*handle, captured));
  return leave_mark(*handle, captured);
}

Status CudaRank::launch(DeviceProgram& program, const DeviceBuffers& buffers, DeviceStream stream) {
  auto& ours = static_cast<CudaProgram&>(program);
  return issue(stream, [&](CUstream handle, bool captured) -> Status {
    cuda::Launch launch{};
    launch.parts[0] = {.program = reinterpret_cast<cuda::Program*>(ours.address),
                       .input = buffers.input,
                       .output = buffers.output,
                       .scale = buffers.scale,
                       .first_block = 0,
                       .block_count = ours.lanes};
    launch.part_count = 1;
    launch.first = 1;
    launch.poll_limit = kPolls;
    TUTTI_TRY(run(ours, launch, handle));
    ours.captured = ours.captured || captured;
    if (!captured) {
      ++issued_;
      last_program_ = &ours;
    }
    const auto done = reinterpret_cast<CUdeviceptr>(&signals_->done);
    return driver().check(driver().stream_wait_value32(handle, done, 1, CU_STREAM_WAIT_VALUE_EQ),
                          "cuStreamWaitValue32");
  });
}

Status CudaRank::copy(void* to, const void* from, uint64_t bytes, DeviceStream stream) {
  return issue(stream, [&](CUstream handle, bool) {
    return driver().check(driver().memcpy_async(reinterpret_cast<CUdeviceptr>(to),
                                                reinterpret_cast<CUdeviceptr>(from), bytes, handle),
                          "cuMemcpyAsync");
  });
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
  const Status launched = run(*program, launch, relaunch_.handle());
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
