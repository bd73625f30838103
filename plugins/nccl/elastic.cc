// Exported calls by which a communicator loses or gains ranks, or rests. tutti's communicators cannot yet;
// this is the one place that says so.
#include "plugins/nccl/errors.h"

using namespace tutti;        // NOLINT: this file is the border between NCCL's names and ours
using namespace tutti::nccl;  // NOLINT

namespace {

ncclResult_t refuse(const char* call, const char* what, ncclComm_t* result) noexcept {
  if (result != nullptr) *result = nullptr;
  return guarded(call, [&] { return not_implemented(what); });
}

}  // namespace

TUTTI_NCCL_CALL(ncclResult_t, ncclCommShrink, ncclComm_t, int*, int, ncclComm_t* newcomm, ncclConfig_t*,
                int) {
  return refuse("ncclCommShrink",
                "a communicator cannot lose ranks (abort it, and make a new one of the ranks that are left)",
                newcomm);
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommGetUniqueId, ncclComm_t, ncclUniqueId*) {
  return refuse("ncclCommGetUniqueId", "a communicator cannot grow (make a new one with ncclGetUniqueId)",
                nullptr);
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommGrow, ncclComm_t, int, const ncclUniqueId*, int, ncclComm_t* newcomm,
                ncclConfig_t*) {
  return refuse("ncclCommGrow", "a communicator cannot grow (make a new one of all ranks)", newcomm);
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommRevoke, ncclComm_t, int) {
  return refuse("ncclCommRevoke", "a communicator cannot be revoked and then used (abort it)", nullptr);
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommSuspend, ncclComm_t, int) {
  return refuse("ncclCommSuspend",
                "a communicator cannot be suspended (on host memory it holds no GPU memory)", nullptr);
}

TUTTI_NCCL_CALL(ncclResult_t, ncclCommResume, ncclComm_t) {
  return refuse("ncclCommResume", "a communicator cannot be suspended, so there is nothing to resume",
                nullptr);
}
