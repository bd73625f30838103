// Exported functions about the library, communicators, streams and memory. Each checks its arguments and
// calls the library.
#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "api/create.h"
#include "api/group.h"
#include "api/handle.h"
#include "api/handle_pool.h"
#include "api/issue.h"
#include "api/work.h"
#include "core/thread.h"

using namespace tutti;  // NOLINT: this file is the border between the C names and ours

namespace {

UniqueId id_of(const tutti_unique_id_t& id) {
  UniqueId result;
  std::memcpy(&result, id.bytes, sizeof(result));
  return result;
}

/// Calls that queued operations on streams have already returned. So this call reports their failures.
Status end_operations(tutti_comm* handle) {
  wait_for_queue(handle);
  Status failure;
  if (handle->progress != nullptr) failure = handle->progress->take_failure();
  if (handle->comm != nullptr) {
    const Status left = handle->comm->leave();
    if (failure.is_ok()) failure = handle->comm->stream_failure();
    if (failure.is_ok()) failure = left;
  }
  return failure;
}

/// The communicator is finalized even if an error is returned: no later call may find what `leave` has ended.
Status finalize_comm(tutti_comm* handle) noexcept {
  if (handle->state.load(std::memory_order_acquire) == tutti_comm::State::kFinalized) return Status::ok();
  Status failure = contained([&] { return end_operations(handle); });
  handle->state.store(tutti_comm::State::kFinalized, std::memory_order_release);
  return failure;
}

/// Creates all ranks side by side. If one fails, none remains.
Status create_ranks(tutti_comm** comms, int rank_count, Process& process, const UniqueId& id,
                    const tutti_config_t* config) {
  std::fill_n(comms, rank_count, nullptr);
  std::vector<Status> results(static_cast<size_t>(rank_count));
  std::vector<std::thread> threads(static_cast<size_t>(rank_count));
  Status started;
  for (int rank = 0; rank < rank_count && started; ++rank) {
    const auto i = static_cast<size_t>(rank);
    const auto create = [&, rank, i] {
      results[i] = contained([&] { return create_comm(&comms[i], rank_count, id, rank, config); });
    };
    started = contained([&] { return start_thread(threads[i], "the thread that creates a rank", create); });
    if (!started && rank > 0) decline(&process, id, rank_count, rank, started);
  }
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
  const auto failed = std::find_if(results.begin(), results.end(), [](const Status& result) {
    return !result.is_ok() && result.code() != Code::kInProgress;
  });
  if (started && failed == results.end()) return results[0];
  for (int rank = 0; rank < rank_count; ++rank) {
    if (tutti_comm* const comm = std::exchange(comms[rank], nullptr); comm != nullptr) {
      comm->setup_stop->stop();
      recycle_handle(comm);
    }
  }
  return started ? *failed : started;
}

/// Stops the handle's set-up, and the set-up of a communicator that a call makes from it. Waits for the
/// set-up thread: afterwards `comm` is final.
void end_setup(tutti_comm* handle) {
  handle->setup_stop->stop();
  // A destroy and an abort may come here together.
  const std::scoped_lock lock(handle->setup_joining);
  if (handle->setup.joinable()) handle->setup.join();
}

Status destroy_comm(tutti_comm* handle) {
  Status failure;
  {
    // An abort by another thread may end this wait. The other thread then frees the handle.
    const HandleRef hold(handle);
    if (!hold) return no_handle(handle);
    TUTTI_TRY(bootstrap_process().status());
    end_setup(handle);
    failure = finalize_comm(handle);
  }
  if (!close_handle(handle)) return failure;
  wait_until_left(handle);
  recycle_handle(handle);
  return failure;
}

Status abort_comm(tutti_comm* handle) {
  TUTTI_TRY(check_handle(handle));
  TUTTI_TRY(bootstrap_process().status());
  if (!close_handle(handle)) return no_handle(handle);
  end_setup(handle);
  if (handle->comm != nullptr) {
    handle->comm->abort();
    handle->comm->shrink().stop();
  }
  // The other thread's call sees the alert in its next poll, and returns before the memory is freed.
  wait_until_left(handle);
  if (handle->comm != nullptr) {
    wait_for_queue(handle);
    static_cast<void>(handle->comm->leave());
  }
  recycle_handle(handle);
  return Status::ok();
}

/// For calls that need no communicator. A program may make such calls and fork its ranks afterwards.
Status check_not_forked() {
  return Process::in_forked_child() ? Process::forked() : Status::ok();
}

/// Checks for a live host stream that belongs to this process. A forked child has no thread to complete its
/// operations.
Status check_own_stream(tutti_host_stream* stream) {
  TUTTI_TRY(check_host_stream(tutti_stream_host(stream)));
  return check_not_forked();
}

/// The result of tutti_comm_async_error, as a status.
Status health(const tutti_comm* handle) {
  switch (handle->state.load(std::memory_order_acquire)) {
    case tutti_comm::State::kCreating: return {Code::kInProgress, "the communicator is being created"};
    case tutti_comm::State::kFailed: return handle->setup_failure;
    default: return handle->comm->error();
  }
}

/// Checks memory that the caller wants to register.
Status check_extent(const void* buffer, size_t bytes) {
  if (buffer == nullptr) return null_argument("buffer");
  if (bytes == 0) return {Code::kInvalidArgument, "argument bytes is 0: there is nothing to register"};
  if (bytes > UINTPTR_MAX - reinterpret_cast<uintptr_t>(buffer)) {
    return {Code::kInvalidArgument,
            format("argument bytes is %zu: a buffer at %p cannot be so long", bytes, buffer)};
  }
  return Status::ok();
}

Status register_memory(tutti_comm* handle, void* buffer, size_t bytes, tutti_registered_memory*& memory) {
  TUTTI_TRY(check_ready(handle));
  TUTTI_TRY(check_extent(buffer, bytes));
  TUTTI_TRY(handle->comm->check_pointer("buffer", buffer));
  if (in_group()) return {Code::kInvalidUsage, "tutti_memory_register cannot be called inside a group"};
  handle->repeat.valid = false;
  // Everything that can fail happens before the ranks agree.
  auto* const fresh = new_name<tutti_registered_memory>();
  decltype(handle->registrations) registered;
  uint32_t& own_number = registered[fresh];
  auto number = take_turn(handle).register_memory(buffer, bytes);
  TUTTI_TRY(number.status());
  if (*number == 0) return Status::ok();
  own_number = *number;
  handle->registrations.merge(registered);
  memory = fresh;
  return Status::ok();
}

Status deregister_memory(tutti_comm* handle, tutti_registered_memory* memory) {
  TUTTI_TRY(check_made(handle));
  const auto found = handle->registrations.find(memory);
  if (found == handle->registrations.end())
    return {Code::kInvalidArgument, "argument memory is not registered memory of this communicator"};
  if (in_group()) return {Code::kInvalidUsage, "tutti_memory_deregister cannot be called inside a group"};
  const uint32_t number = found->second;
  handle->registrations.erase(found);
  handle->repeat.valid = false;
  return take_turn(handle).deregister_memory(number, check_ready(handle).is_ok());
}

}  // namespace

extern "C" {

TUTTI_API const char* tutti_error_string(tutti_result_t result) noexcept {
  return code_name(static_cast<Code>(result)).data();
}

TUTTI_API tutti_result_t tutti_get_version(int* version) noexcept {
  return guarded([&]() -> Status {
    if (version == nullptr) return null_argument("version");
    *version = TUTTI_VERSION_CODE;
    return Status::ok();
  });
}

TUTTI_API size_t tutti_type_bytes(tutti_type_t type) noexcept {
  return type >= 0 && type < TUTTI_TYPE_COUNT ? type_bytes(static_cast<DataType>(type)) : 0;
}

TUTTI_API tutti_result_t tutti_host_stream_create(tutti_host_stream_t** stream) noexcept {
  return guarded([&]() -> Status {
    if (stream == nullptr) return null_argument("stream");
    TUTTI_TRY(check_not_forked());
    Process::refuse_children();
    *stream = acquire_stream();
    return Status::ok();
  });
}

TUTTI_API tutti_result_t tutti_host_stream_synchronize(tutti_host_stream_t* stream) noexcept {
  return guarded([&]() -> Status {
    TUTTI_TRY(check_own_stream(stream));
    return stream->stream->synchronize();
  });
}

TUTTI_API tutti_result_t tutti_host_stream_query(tutti_host_stream_t* stream) noexcept {
  return guarded([&]() -> Status {
    TUTTI_TRY(check_own_stream(stream));
    return stream->stream->query();
  });
}

TUTTI_API tutti_result_t tutti_host_stream_notify(tutti_host_stream_t* stream,
                                                  void (*done)(void*, tutti_result_t, const char*),
                                                  void* context) noexcept {
  return guarded([&]() -> Status {
    if (done == nullptr) return null_argument("done");
    TUTTI_TRY(check_own_stream(stream));
    // The handle may be destroyed as soon as `done` has been called.
    const auto order = stream->stream;
    order->notify([done, context](const Status& result) {
      // The text is the whole of a string, so it ends in a zero, and needs no copy.
      done(context, static_cast<tutti_result_t>(result.code()), result ? "" : result.text().data());
    });
    return Status::ok();
  });
}

TUTTI_API tutti_result_t tutti_host_stream_destroy(tutti_host_stream_t* stream) noexcept {
  return guarded([&]() -> Status {
    if (stream == nullptr) return Status::ok();
    TUTTI_TRY(check_own_stream(stream));
    if (!close_stream(stream)) return no_host_stream();
    Status status = stream->stream->synchronize();
    recycle_stream(stream);
    return status;
  });
}

TUTTI_API tutti_result_t tutti_get_unique_id(tutti_unique_id_t* id) noexcept {
  return guarded([&]() -> Status {
    if (id == nullptr) return null_argument("id");
    // Makes an id even when the settings are refused: the ranks that get the id then learn the reason from
    // tutti_comm_create.
    auto process = bootstrap_process();
    TUTTI_TRY(process.status());
    auto made = (*process)->make_id(true);
    TUTTI_TRY(made.status());
    std::memcpy(id->bytes, &*made, sizeof(id->bytes));
    return Status::ok();
  });
}

TUTTI_API tutti_result_t tutti_comm_create(tutti_comm_t** comm, int rank_count, tutti_unique_id_t id,
                                           int rank, const tutti_config_t* config) noexcept {
  return guarded([&] { return create_comm(comm, rank_count, id_of(id), rank, config); });
}

TUTTI_API tutti_result_t tutti_comm_create_all(tutti_comm_t** comms, int rank_count,
                                               const tutti_config_t* config) noexcept {
  return guarded([&]() -> Status {
    if (comms == nullptr) return null_argument("comms");
    if (rank_count < 1 || rank_count > static_cast<int>(kMaxCommRanks)) {
      return {Code::kInvalidArgument,
              format("argument rank_count is %d: it must be 1 to %u", rank_count, kMaxCommRanks)};
    }
    auto process = original_process();
    TUTTI_TRY(process.status());
    TUTTI_TRY(check_comm_config(config, (*process)->config()));
    auto id = (*process)->make_id(false);
    TUTTI_TRY(id.status());
    return create_ranks(comms, rank_count, **process, *id, config);
  });
}

TUTTI_API tutti_result_t tutti_comm_finalize(tutti_comm_t* comm) noexcept {
  return guarded_on(comm, [&]() -> Status {
    TUTTI_TRY(check_ready(comm));
    return finalize_comm(comm);
  });
}

TUTTI_API tutti_result_t tutti_comm_destroy(tutti_comm_t* comm) noexcept {
  return guarded([&] { return comm == nullptr ? Status::ok() : destroy_comm(comm); });
}

TUTTI_API tutti_result_t tutti_comm_abort(tutti_comm_t* comm) noexcept {
  return guarded([&] { return comm == nullptr ? Status::ok() : abort_comm(comm); });
}

TUTTI_API tutti_result_t tutti_comm_async_error(tutti_comm_t* comm, tutti_result_t* error) noexcept {
  return guarded_on(comm, [&]() -> Status {
    if (error == nullptr) return null_argument("error");
    TUTTI_TRY(check_handle(comm));
    const Status status = health(comm);
    *error = status.is_ok() ? TUTTI_SUCCESS : report(status);
    return Status::ok();
  });
}

TUTTI_API tutti_result_t tutti_comm_rank(const tutti_comm_t* comm, int* rank) noexcept {
  return guarded_on(comm, [&]() -> Status {
    if (rank == nullptr) return null_argument("rank");
    TUTTI_TRY(check_made(comm));
    *rank = static_cast<int>(comm->comm->rank());
    return Status::ok();
  });
}

TUTTI_API tutti_result_t tutti_comm_count(const tutti_comm_t* comm, int* rank_count) noexcept {
  return guarded_on(comm, [&]() -> Status {
    if (rank_count == nullptr) return null_argument("rank_count");
    TUTTI_TRY(check_made(comm));
    *rank_count = static_cast<int>(comm->comm->rank_count());
    return Status::ok();
  });
}

TUTTI_API tutti_result_t tutti_comm_set_timeout(tutti_comm_t* comm, uint64_t timeout_ms) noexcept {
  return guarded_on(comm, [&]() -> Status {
    TUTTI_TRY(check_ready(comm));
    if (timeout_ms > kYearMs) {
      return {Code::kInvalidArgument,
              format("argument timeout_ms is %llu: it must be 0 to %llu, a year",
                     static_cast<unsigned long long>(timeout_ms), static_cast<unsigned long long>(kYearMs))};
    }
    comm->timeout_ms = timeout_ms;
    comm->repeat.valid = false;
    return Status::ok();
  });
}

TUTTI_API tutti_result_t tutti_comm_explain(const tutti_comm_t* comm, char* text, size_t bytes) noexcept {
  return guarded_on(comm, [&]() -> Status {
    if (text == nullptr) return null_argument("text");
    TUTTI_TRY(check_made(comm));
    if (bytes == 0) return {Code::kInvalidArgument, "argument bytes is 0: the text needs room"};
    wait_for_queue(comm);
    const std::string line = comm->comm->explain();
    const size_t length = std::min(line.size(), bytes - 1);
    std::memcpy(text, line.data(), length);
    text[length] = '\0';
    return Status::ok();
  });
}

TUTTI_API tutti_result_t tutti_op_create_premul_sum(tutti_op_t* op, const void* scalar, tutti_type_t type,
                                                    tutti_comm_t* comm) noexcept {
  return guarded_on(comm, [&]() -> Status {
    if (op == nullptr) return null_argument("op");
    if (scalar == nullptr) return null_argument("scalar");
    TUTTI_TRY(check_ready(comm));
    const Devices* devices = comm->comm->process().devices_in_use();
    return create_premul_sum(comm, scalar, type, devices != nullptr && devices->is_device_memory(scalar),
                             *op);
  });
}

TUTTI_API tutti_result_t tutti_op_destroy(tutti_op_t op, tutti_comm_t* comm) noexcept {
  return guarded_on(comm, [&]() -> Status {
    TUTTI_TRY(check_made(comm));
    comm->repeat.valid = false;
    if (comm->premul_ops.erase(op) == 0) {
      return {Code::kInvalidArgument,
              format("argument op is %d: this communicator has made no such operator", op)};
    }
    return Status::ok();
  });
}

TUTTI_API tutti_result_t tutti_mem_alloc(void** pointer, size_t bytes) noexcept {
  return guarded([&]() -> Status {
    if (pointer == nullptr) return null_argument("pointer");
    *pointer = nullptr;
    auto process = original_process();
    TUTTI_TRY(process.status());
    if (bytes == 0) return Status::ok();
    auto memory = (*process)->heap().allocate(bytes);
    TUTTI_TRY(memory.status());
    *pointer = *memory;
    return Status::ok();
  });
}

TUTTI_API tutti_result_t tutti_mem_free(void* pointer) noexcept {
  return guarded([&]() -> Status {
    if (pointer == nullptr) return Status::ok();
    auto process = original_process();
    TUTTI_TRY(process.status());
    Devices* const devices = (*process)->devices_in_use();
    if (devices != nullptr && devices->free(pointer)) return Status::ok();
    return (*process)->heap().free(pointer);
  });
}

TUTTI_API tutti_result_t tutti_comm_mem_alloc(tutti_comm_t* comm, void** pointer, size_t bytes) noexcept {
  return guarded_on(comm, [&]() -> Status {
    if (pointer == nullptr) return null_argument("pointer");
    *pointer = nullptr;
    TUTTI_TRY(check_ready(comm));
    if (bytes == 0) return Status::ok();
    auto memory = comm->comm->allocate(bytes);
    TUTTI_TRY(memory.status());
    *pointer = *memory;
    return Status::ok();
  });
}

TUTTI_API tutti_result_t tutti_memory_register(tutti_comm_t* comm, void* buffer, size_t bytes,
                                               tutti_registered_memory_t** memory) noexcept {
  return guarded_on(comm, [&]() -> Status {
    if (memory == nullptr) return null_argument("memory");
    *memory = nullptr;
    return register_memory(comm, buffer, bytes, *memory);
  });
}

TUTTI_API tutti_result_t tutti_memory_deregister(tutti_comm_t* comm,
                                                 tutti_registered_memory_t* memory) noexcept {
  return guarded_on(
      comm, [&]() -> Status { return memory == nullptr ? Status::ok() : deregister_memory(comm, memory); });
}

}  // extern "C"
