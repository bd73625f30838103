// Exported calls about memory: allocation, registration, windows, one-sided operations. A window is
// registered memory of tutti.
#include <cstdint>
#include <mutex>

#include "api/handle_pool.h"
#include "plugins/nccl/group.h"

using namespace tutti;        // NOLINT: this file is the border between NCCL's names and ours
using namespace tutti::nccl;  // NOLINT

namespace {

Status one_sided() {
  return not_implemented("one-sided operations are not implemented (use ncclSend and ncclRecv)");
}

/// Runs a call on windows, collective on `comm`: at once, or at the end of the group.
Status change_windows(const char* call, ncclComm_t comm, std::function<Status(tutti_comm_t*)> change) {
  TUTTI_TRY(comm->check_ready());
  SetUp job{.call = call, .config = comm->config, .parent = comm};
  job.make = [change = std::move(change)](tutti_comm_t* below, tutti_comm_t** /*made*/) {
    return change(below);
  };
  return set_up(std::move(job), comm->config.blocking);
}

Status register_window(ncclComm_t comm, void* buffer, size_t bytes, ncclWindow_t* window) {
  if (window == nullptr) return null_argument("win");
  *window = nullptr;
  if (buffer == nullptr && bytes > 0) return null_argument("buff");
  TUTTI_TRY(comm->check_ready());
  if (!comm->on_device() || bytes == 0) return Status::ok();
  return change_windows("ncclCommWindowRegister", comm, [=](tutti_comm_t* below) {
    tutti_registered_memory_t* memory = nullptr;
    TUTTI_TRY(status_of(tutti_memory_register(below, buffer, bytes, &memory)));
    *window = reinterpret_cast<ncclWindow_t>(memory);
    if (memory == nullptr) return Status::ok();
    const std::scoped_lock lock(comm->mutex);
    comm->windows.insert_or_assign(*window, buffer);
    return Status::ok();
  });
}

Status deregister_window(ncclComm_t comm, ncclWindow_t window) {
  if (window == nullptr) return Status::ok();
  return change_windows("ncclCommWindowDeregister", comm, [=](tutti_comm_t* below) {
    {
      const std::scoped_lock lock(comm->mutex);
      comm->windows.erase(window);
    }
    return status_of(tutti_memory_deregister(below, reinterpret_cast<tutti_registered_memory_t*>(window)));
  });
}

/// ncclCommRegister is local, so ranks cannot map each other's memory in it. The call checks its arguments
/// and has no other effect. ncclCommWindowRegister maps the memory.
Status register_buffer(ncclComm_t comm, const void* buffer, size_t bytes, void** handle) {
  if (handle == nullptr) return null_argument("handle");
  TUTTI_TRY(comm->check_ready());
  if (buffer == nullptr) return null_argument("buff");
  if (bytes == 0) return {Code::kInvalidArgument, "argument size is 0: there is nothing to register"};
  if (bytes > UINTPTR_MAX - reinterpret_cast<uintptr_t>(buffer)) {
    return {Code::kInvalidArgument,
            format("argument size is %zu: a buffer at %p cannot be so long", bytes, buffer)};
  }
  *handle = new_name<void>();
  const std::scoped_lock lock(comm->mutex);
  comm->registrations.insert(*handle);
  return Status::ok();
}

Status deregister_buffer(ncclComm_t comm, void* handle) {
  TUTTI_TRY(comm->check_ready());
  const std::scoped_lock lock(comm->mutex);
  if (comm->registrations.erase(handle) == 0)
    return {Code::kInvalidArgument, "argument handle is not a registration of this communicator"};
  return Status::ok();
}

}  // namespace

TUTTI_NCCL_CALL(ncclResult_t, ncclMemAlloc, void** ptr, size_t size) {
  return guarded("ncclMemAlloc", [&]() -> Status {
    const int device = current_device();
    if (device == kHostMemory || size == 0) return status_of(tutti_mem_alloc(ptr, size));
    if (ptr == nullptr) return null_argument("ptr");
    auto memory = allocate_on_device(device, size);
    TUTTI_TRY(memory.status());
    *ptr = *memory;
    return Status::ok();
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclMemFree, void* ptr) {
  return guarded("ncclMemFree",
                 [&] { return free_on_device(ptr) ? Status::ok() : status_of(tutti_mem_free(ptr)); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommRegister, ncclComm_t comm, void* buff, size_t size, void** handle) {
  return guarded_on("ncclCommRegister", comm, [&] { return register_buffer(comm, buff, size, handle); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommDeregister, ncclComm_t comm, void* handle) {
  return guarded_on("ncclCommDeregister", comm, [&] { return deregister_buffer(comm, handle); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommWindowRegister, ncclComm_t comm, void* buff, size_t size,
                ncclWindow_t* win, int) {
  return grouped_on("ncclCommWindowRegister", comm, [&] { return register_window(comm, buff, size, win); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommWindowDeregister, ncclComm_t comm, ncclWindow_t win) {
  return grouped_on("ncclCommWindowDeregister", comm, [&] { return deregister_window(comm, win); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclWinGetUserPtr, ncclComm_t comm, ncclWindow_t win, void** outUserPtr) {
  return guarded_on("ncclWinGetUserPtr", comm, [&]() -> Status {
    if (outUserPtr == nullptr) return null_argument("outUserPtr");
    *outUserPtr = nullptr;
    const std::scoped_lock lock(comm->mutex);
    const auto found = comm->windows.find(win);
    if (found == comm->windows.end()) return {Code::kInvalidArgument, "argument win is not a window"};
    *outUserPtr = found->second;
    return Status::ok();
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclPutSignal, const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t,
                int, int, unsigned int, ncclComm_t, cudaStream_t) {
  return guarded("ncclPutSignal", one_sided);
}

TUTTI_NCCL_CALL(ncclResult_t, ncclSignal, int, int, int, unsigned int, ncclComm_t, cudaStream_t) {
  return guarded("ncclSignal", one_sided);
}

TUTTI_NCCL_CALL(ncclResult_t, ncclWaitSignal, int, ncclWaitSignalDesc_t*, ncclComm_t, cudaStream_t) {
  return guarded("ncclWaitSignal", one_sided);
}
