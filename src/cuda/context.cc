#include "cuda/context.h"

#include <cstring>

namespace tutti::cuda {

Result<std::unique_ptr<Context>> Context::retain(const Driver& driver, int device) {
  std::unique_ptr<Context> context(new Context(driver, device));
  auto facts = driver.describe(device);
  TUTTI_TRY(facts.status());
  context->facts_ = std::move(*facts);
  TUTTI_TRY(driver.check(driver.device_get(&context->ordinal_, device), "cuDeviceGet"));
  TUTTI_TRY(driver.check(driver.primary_ctx_retain(&context->handle_, context->ordinal_),
                         format("cuDevicePrimaryCtxRetain(device %d)", device)));
  return context;
}

Context::~Context() {
  spare_memory_.reset();
  if (setup_stream_ != nullptr) (void)driver_.stream_destroy(setup_stream_);
  // Fails only while the process and its driver end.
  if (handle_ != nullptr) (void)driver_.primary_ctx_release(ordinal_);
}

Status Context::enable_peer(const Context& peer) const {
  if (peer.device() == device_) return Status::ok();
  int can = 0;
  TUTTI_TRY(
      driver_.check(driver_.device_can_access_peer(&can, ordinal_, peer.ordinal_), "cuDeviceCanAccessPeer"));
  if (can == 0) {
    return {Code::kUnsupported,
            format("CUDA device %d cannot reach the memory of device %d", device_, peer.device_)};
  }
  const CurrentContext current(*this);
  TUTTI_TRY(current.status());
  const CUresult answer = driver_.ctx_enable_peer_access(peer.handle_, 0);
  if (answer == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return Status::ok();
  return driver_.check(answer,
                       format("cuCtxEnablePeerAccess(device %d to device %d)", device_, peer.device_));
}

Status Context::check_peer(const std::array<char, 16>& uuid) const {
  for (int device = 0; device < driver_.device_count() && uuid != facts_.uuid; ++device) {
    CUdevice theirs = 0;
    CUuuid found{};
    if (driver_.device_get(&theirs, device) != CUDA_SUCCESS ||
        driver_.device_get_uuid(&found, theirs) != CUDA_SUCCESS ||
        std::memcmp(found.bytes, uuid.data(), uuid.size()) != 0)
      continue;
    int can = 0;
    TUTTI_TRY(driver_.check(driver_.device_can_access_peer(&can, ordinal_, theirs), "cuDeviceCanAccessPeer"));
    if (can != 0) return Status::ok();
    return {Code::kUnsupported, format("CUDA devices %d and %d cannot access each other", device_, device)};
  }
  return Status::ok();
}

Status Context::run_now(const char* what, const std::function<CUresult(CUstream)>& task) const {
  const CurrentContext current(*this);
  TUTTI_TRY(current.status());
  const std::scoped_lock lock(setup_);
  if (setup_stream_ == nullptr)
    TUTTI_TRY(driver_.check(driver_.stream_create(&setup_stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  TUTTI_TRY(driver_.check(task(setup_stream_), what));
  return driver_.check(driver_.stream_synchronize(setup_stream_), "cuStreamSynchronize");
}

CurrentContext::CurrentContext(const Context& context)
    : driver_(context.driver()),
      status_(driver_.check(driver_.ctx_push_current(context.handle()), "cuCtxPushCurrent")) {}

CurrentContext::~CurrentContext() {
  if (!status_) return;
  CUcontext popped = nullptr;
  (void)driver_.ctx_pop_current(&popped);
}

Result<Stream> Stream::create(const Context& context) {
  const Driver& driver = context.driver();
  const CurrentContext current(context);
  TUTTI_TRY(current.status());
  Stream stream;
  stream.context_ = &context;
  TUTTI_TRY(driver.check(driver.stream_create(&stream.handle_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  return stream;
}

Stream& Stream::operator=(Stream&& other) noexcept {
  if (this != &other) {
    reset();
    context_ = other.context_;
    handle_ = std::exchange(other.handle_, nullptr);
  }
  return *this;
}

Status Stream::synchronize() const {
  return context_->driver().check(context_->driver().stream_synchronize(handle_), "cuStreamSynchronize");
}

void Stream::reset() {
  if (handle_ != nullptr) (void)context_->driver().stream_destroy(handle_);
  handle_ = nullptr;
}

Result<Event> Event::create(const Context& context, bool timed) {
  const Driver& driver = context.driver();
  const CurrentContext current(context);
  TUTTI_TRY(current.status());
  Event event;
  event.context_ = &context;
  const unsigned flags = timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
  TUTTI_TRY(driver.check(driver.event_create(&event.handle_, flags), "cuEventCreate"));
  return event;
}

Event& Event::operator=(Event&& other) noexcept {
  if (this != &other) {
    reset();
    context_ = other.context_;
    handle_ = std::exchange(other.handle_, nullptr);
  }
  return *this;
}

Status Event::record(CUstream stream) const {
  return context_->driver().check(context_->driver().event_record(handle_, stream), "cuEventRecord");
}

Status Event::make_wait(CUstream stream) const {
  return context_->driver().check(
      context_->driver().stream_wait_event(stream, handle_, CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent");
}

Result<bool> Event::is_done() const {
  const CurrentContext current(*context_);
  TUTTI_TRY(current.status());
  const Driver& driver = context_->driver();
  const CUresult result = driver.event_query(handle_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  TUTTI_TRY(driver.check(result, "cuEventQuery"));
  return true;
}

Status Event::synchronize() const {
  return context_->driver().check(context_->driver().event_synchronize(handle_), "cuEventSynchronize");
}

void Event::reset() {
  if (handle_ != nullptr) (void)context_->driver().event_destroy(handle_);
  handle_ = nullptr;
}

}  // namespace tutti::cuda
