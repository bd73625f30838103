#include "device.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>

#include "group.h"

namespace tutti_torch {
namespace {

using c10::impl::VirtualGuardImpl;

// How often the watcher asks whether a call has ended: memory of its tensors is kept so much longer.
constexpr std::chrono::milliseconds kLookAgain{1};

/// Lets this thread ask for events while another thread captures a graph. CUDA would otherwise end the
/// capture with an error.
void allow_during_capture() {
  constexpr int kRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return;
  using Exchange = int (*)(int*);
  const auto exchange = reinterpret_cast<Exchange>(dlsym(driver, "cuThreadExchangeStreamCaptureMode"));
  int mode = kRelaxed;
  if (exchange != nullptr) (void)exchange(&mode);
  (void)dlclose(driver);
}

}  // namespace

/// What the works and the watcher use. The works may outlive the group.
struct DeviceSide::Shared {
  explicit Shared(tutti_comm_t* owned) : comm(owned) {}

  std::exception_ptr failure(std::chrono::milliseconds timeout) const {
    tutti_comm_t* const now = comm.load();
    if (now == nullptr) return error_of(TUTTI_ABORTED, "the process group was aborted or destroyed", timeout);
    tutti_result_t state = TUTTI_SUCCESS;
    const tutti_result_t asked = tutti_comm_async_error(now, &state);
    return error_of(asked != TUTTI_SUCCESS ? asked : state, tutti_last_error(), timeout);
  }

  std::atomic<tutti_comm_t*> comm;  ///< null after an abort or the end
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<c10::intrusive_ptr<StreamWork>> open;
  bool is_stopping = false;
};

void StreamWork::passes(const c10::Stream& stream, std::function<std::exception_ptr()> failure) {
  if (const auto copy_out = take_finish()) copy_out();
  stream_ = stream;
  failure_now_ = std::move(failure);
  end_.emplace(stream.device_type());
  end_->record(stream);
}

bool StreamWork::wait(std::chrono::milliseconds timeout) {
  TORCH_CHECK(end_.has_value(), "tutti: the call belongs to a batch that has not been issued");
  if (timeout != kNoTimeout) return Work::wait(timeout);
  const VirtualGuardImpl cuda(device_.type());
  end_->block(cuda.getStream(device_));
  if (blocks_program_) end_->synchronize();
  if (const auto failure = failure_now_()) std::rethrow_exception(failure);
  return true;
}

bool StreamWork::isCompleted() {
  return Work::isCompleted() || (end_.has_value() && has_passed());
}

c10::intrusive_ptr<c10::ivalue::Future> StreamWork::getFuture() {
  TORCH_CHECK(end_.has_value(), "tutti: the call belongs to a batch that has not been issued");
  const std::scoped_lock lock(mutex_);
  if (!stream_future_) {
    stream_future_ = c10::make_intrusive<c10::ivalue::Future>(tensors_type(), std::vector{device_});
    const c10::StreamGuard on_stream(*stream_);
    if (const auto failure = failure_now_()) {
      stream_future_->setError(failure);
    } else {
      stream_future_->markCompleted(c10::IValue(outputs()));
    }
  }
  return stream_future_;
}

DeviceSide::DeviceSide(tutti_comm_t* comm, at::Device device)
    : device_(device), shared_(std::make_shared<Shared>(comm)) {
  watcher_ = std::thread([shared = shared_] { watch(shared); });
}

tutti_comm_t* DeviceSide::usable() const {
  tutti_comm_t* const comm = shared_->comm.load();
  TORCH_CHECK(comm != nullptr, kGroupHasEnded);
  return comm;
}

void DeviceSide::issue(const std::vector<DeviceCall>& calls, bool is_async) {
  const VirtualGuardImpl cuda(device_.type());
  const c10::Stream current = cuda.getStream(device_);
  if (is_async && !stream_) stream_ = cuda.getStreamFromGlobalPool(device_, /*isHighPriority=*/true);
  const c10::Stream stream = is_async ? *stream_ : current;
  auto timeout = std::chrono::milliseconds(0);
  for (const auto& [work, call] : calls) timeout = std::max(timeout, work->getTimeout());
  tutti_comm_t* const comm = usable();
  if (deadline_set_ != timeout) {
    throw_on(tutti_comm_set_timeout(comm, static_cast<uint64_t>(timeout.count())));
    deadline_set_ = timeout;
  }
  if (is_async) {
    c10::Event before(device_.type());
    before.record(current);
    before.block(stream);
  }
  const tutti_stream_t order = tutti_stream_cuda(stream.native_handle());
  const auto issue_all = [&] {
    for (const auto& [work, call] : calls) {
      const tutti_result_t result = call(comm, order);
      if (result != TUTTI_SUCCESS) return result;
    }
    return TUTTI_SUCCESS;
  };
  throw_on(calls.size() == 1 ? issue_all() : together(issue_all), timeout);
  const c10::StreamGuard on_stream(stream);
  for (const auto& [work, call] : calls)
    work->passes(stream, [shared = shared_, timeout] { return shared->failure(timeout); });
  if (cuda.isStreamCapturing(stream)) {
    // Nothing runs now, and nobody may ask for the end: the allocator keeps the tensors for the graph.
    for (const auto& [work, call] : calls) {
      work->each_kept(
          [&](const at::Tensor& t) { cuda.recordDataPtrOnStream(t.storage().data_ptr(), stream); });
      work->complete(nullptr);
    }
    return;
  }
  const std::scoped_lock lock(shared_->mutex);
  for (const auto& [work, call] : calls) shared_->open.push_back(work);
  shared_->changed.notify_all();
}

/// The watcher: completes works whose calls have ended.
void DeviceSide::watch(const std::shared_ptr<Shared>& shared) {
  allow_during_capture();
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->changed.wait(lock, [&] { return shared->is_stopping || !shared->open.empty(); });
    if (shared->open.empty()) return;
    auto work = shared->open.front();
    const bool gives_up = shared->is_stopping;
    lock.unlock();
    bool is_over = gives_up;
    std::exception_ptr error;
    try {
      is_over = work->has_passed() || gives_up;
      if (is_over) error = shared->failure(work->getTimeout());
    } catch (...) {  // the device has failed
      is_over = true;
      error = std::current_exception();
    }
    if (is_over) work->complete(error);
    lock.lock();
    if (!is_over) {
      shared->changed.wait_for(lock, kLookAgain, [&] { return shared->is_stopping; });
      continue;
    }
    shared->open.pop_front();
    shared->changed.notify_all();
    // Freeing tensors may need Python's lock, whose holder may wait for this one.
    lock.unlock();
    work.reset();
    lock.lock();
  }
}

void DeviceSide::drain() {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock, [&] { return shared_->open.empty(); });
}

tutti_result_t DeviceSide::state() const {
  tutti_comm_t* const comm = shared_->comm.load();
  tutti_result_t state = TUTTI_ABORTED;
  if (comm != nullptr && tutti_comm_async_error(comm, &state) != TUTTI_SUCCESS) state = TUTTI_ABORTED;
  return state;
}

void DeviceSide::abort() {
  if (tutti_comm_t* const comm = shared_->comm.exchange(nullptr)) (void)tutti_comm_abort(comm);
}

void DeviceSide::leave(bool waits) {
  if (!watcher_.joinable()) return;
  if (waits) drain();
  bool is_idle = false;
  {
    const std::scoped_lock lock(shared_->mutex);
    is_idle = shared_->open.empty();
  }
  if (tutti_comm_t* const comm = shared_->comm.exchange(nullptr))
    (void)(is_idle ? tutti_comm_destroy(comm) : tutti_comm_abort(comm));
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->is_stopping = true;
    shared_->changed.notify_all();
  }
  watcher_.join();
}

}  // namespace tutti_torch
