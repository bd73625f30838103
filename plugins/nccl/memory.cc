// Exported calls about memory: allocation, registration, windows, one-sided operations.
#include "plugins/nccl/communicator.h"

using namespace tutti;        // NOLINT: this file is the border between NCCL's names and ours
using namespace tutti::nccl;  // NOLINT

namespace {

Status one_sided() {
  return not_implemented("one-sided operations are not implemented (use ncclSend and ncclRecv)");
}

Status no_such_window() {
  return {Code::kInvalidArgument,
          "argument win is not a window: ncclCommWindowRegister gives none, only NULL"};
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
  return guarded_on("ncclCommRegister", comm, [&]() -> Status {
    TUTTI_TRY(comm->check_ready());
    return status_of(tutti_comm_register(comm->comm, buff, size, handle));
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommDeregister, ncclComm_t comm, void* handle) {
  return guarded_on("ncclCommDeregister", comm, [&]() -> Status {
    TUTTI_TRY(comm->check_ready());
    return status_of(tutti_comm_deregister(comm->comm, handle));
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommWindowRegister, ncclComm_t comm, void* buff, size_t size,
                ncclWindow_t* win, int) {
  return guarded_on("ncclCommWindowRegister", comm, [&]() -> Status {
    if (win == nullptr) return null_argument("win");
    *win = nullptr;
    if (buff == nullptr && size > 0) return null_argument("buff");
    return comm->check_ready();
  });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommWindowDeregister, ncclComm_t comm, ncclWindow_t win) {
  return guarded_on("ncclCommWindowDeregister", comm,
                    [&] { return win == nullptr ? Status::ok() : no_such_window(); });
}

TUTTI_NCCL_CALL(ncclResult_t, ncclWinGetUserPtr, ncclComm_t comm, ncclWindow_t, void** outUserPtr) {
  return guarded_on("ncclWinGetUserPtr", comm, [&]() -> Status {
    if (outUserPtr == nullptr) return null_argument("outUserPtr");
    *outUserPtr = nullptr;
    return no_such_window();
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
