#include "api/handle.h"

#include <cstring>
#include <string>
#include <thread>

#include "api/handle_pool.h"
#include "core/kept_by_thread.h"
#include "core/process_barrier.h"
#include "core/version.h"

namespace tutti {

static_assert(kVersionCode == TUTTI_VERSION_CODE);

namespace {

/// Never destroyed: a thread may call during exit.
HandlePool<tutti_comm>& handle_pool() {
  static auto* pool = new HandlePool<tutti_comm>;
  return *pool;
}

/// The text that tutti_last_error returns in the calling thread.
std::string& last_error_text() {
  return KeptByThread<std::string, struct LastErrorText>::get();
}

HandlePool<tutti_host_stream>& stream_pool() {
  static auto* pool = new HandlePool<tutti_host_stream>;
  return *pool;
}

}  // namespace

tutti_result_t report(const Status& status) noexcept {
  if (status.code() == Code::kInProgress) return TUTTI_IN_PROGRESS;
  try {
    std::string& text = last_error_text();
    text.clear();
    text.assign(status.text());
  } catch (...) {
    // Without memory for the text, only the code remains.
  }
  return static_cast<tutti_result_t>(status.code());
}

tutti_comm* acquire_handle() {
  prepare_process_barrier();
  tutti_comm* handle = handle_pool().take();
  handle->state = tutti_comm::State::kCreating;
  handle->setup_stop = std::make_unique<BootstrapStop>();
  handle->magic = tutti_comm::kLive;
  return handle;
}

bool close_handle(tutti_comm* handle) {
  uint64_t live = tutti_comm::kLive;
  if (!handle->magic.compare_exchange_strong(live, 0)) return false;
  process_barrier();
  return true;
}

void wait_until_left(const tutti_comm* handle) {
  while (handle->busy.load(std::memory_order_acquire) != 0 || handle->holds.load() != 0)
    std::this_thread::yield();
}

HandleRef::HandleRef(const tutti_comm* handle) {
  if (handle == nullptr) return;
  // Counts first and checks afterwards. Either this thread sees that the handle is closed, or the closing
  // thread sees this call.
  handle->holds.fetch_add(1);
  handle_ = handle;
  if (handle->magic.load() != tutti_comm::kLive) release();
}

void recycle_handle(tutti_comm* handle) {
  handle->magic = 0;
  if (handle->setup.joinable()) handle->setup.join();
  handle->progress.reset();
  handle->comm.reset();
  handle->has_host_tasks = false;
  handle->repeat = {};
  handle->last_send = handle->last_receive = {};
  handle->timeout_ms = 0;
  handle->setup_failure = {};
  handle->setup_stop.reset();
  handle->premul_ops.clear();
  handle->next_premul_op = TUTTI_OP_COUNT;
  handle->registrations.clear();
  handle_pool().rest(handle);
}

tutti_host_stream* acquire_stream() {
  auto stream = std::make_shared<HostStream>();
  tutti_host_stream* handle = stream_pool().take();
  handle->stream = std::move(stream);
  handle->magic = tutti_host_stream::kLive;
  return handle;
}

bool close_stream(tutti_host_stream* handle) {
  uint64_t live = tutti_host_stream::kLive;
  return handle->magic.compare_exchange_strong(live, 0);
}

void recycle_stream(tutti_host_stream* handle) {
  handle->stream.reset();
  stream_pool().rest(handle);
}

Status no_handle(const tutti_comm* handle) {
  if (handle == nullptr) return null_argument("comm");
  return {Code::kInvalidUsage, "argument comm is not a live communicator: it was destroyed or aborted"};
}

Status check_handle(const tutti_comm* handle) {
  if (handle == nullptr || handle->magic.load(std::memory_order_relaxed) != tutti_comm::kLive) [[unlikely]]
    return no_handle(handle);
  return Status::ok();
}

Status check_made(const tutti_comm* handle) {
  TUTTI_TRY(check_handle(handle));
  switch (handle->state.load(std::memory_order_acquire)) {
    case tutti_comm::State::kReady:
    case tutti_comm::State::kFinalized: break;
    case tutti_comm::State::kCreating:
      return {Code::kInvalidUsage,
              "the communicator is still being created: poll tutti_comm_async_error until it is not "
              "TUTTI_IN_PROGRESS"};
    case tutti_comm::State::kFailed: return handle->setup_failure;
  }
  if (!handle->comm->process().is_original()) [[unlikely]]
    return Process::forked();
  return Status::ok();
}

Status check_ready(const tutti_comm* handle) {
  TUTTI_TRY(check_made(handle));
  if (handle->state.load(std::memory_order_relaxed) == tutti_comm::State::kFinalized) {
    return {Code::kInvalidUsage,
            "the communicator is finalized and takes no more operations: query, destroy or abort it"};
  }
  return Status::ok();
}

Status create_premul_sum(tutti_comm* handle, const void* scalar, tutti_type_t type, bool by_place,
                         tutti_op_t& op) {
  if (tutti_type_bytes(type) == 0 || type == TUTTI_BOOL) {
    return {Code::kInvalidArgument,
            format("argument type is %d: pre-multiplied sum needs a number type", type)};
  }
  tutti_comm::Premul premul{static_cast<DataType>(type), 0, nullptr};
  if (by_place) {
    TUTTI_TRY(handle->comm->check_pointer("scalar", scalar));
    premul.scalar = scalar;
  } else {
    std::memcpy(&premul.bits, scalar, tutti_type_bytes(type));
  }
  op = static_cast<tutti_op_t>(handle->next_premul_op);
  handle->premul_ops.emplace(handle->next_premul_op++, premul);
  return Status::ok();
}

}  // namespace tutti

extern "C" TUTTI_API const char* tutti_last_error(void) noexcept {
  try {
    return tutti::last_error_text().c_str();
  } catch (...) {
    return "";
  }
}
