// What stands behind an ncclComm_t: a tutti communicator, and what NCCL's interface keeps beside it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/result.h"
#include "plugins/nccl/config.h"
#include "plugins/nccl/device.h"
#include "plugins/nccl/errors.h"
#include "tutti/tutti.h"

namespace tutti::nccl {

/// Blocking work on a thread of its own, for calls that return ncclInProgress.
class Job {
 public:
  /// Where no thread can be started the job is done at once, and its status says so.
  explicit Job(std::function<Status()> work);
  ~Job() { wait(); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Whether its thread could be started.
  bool has_run() const { return has_run_; }
  bool is_done() const { return done_.load(std::memory_order_acquire); }
  /// Blocks until it is done. Any thread, any number of times.
  void wait();
  /// What the work returned; once it is done.
  const Status& status() const { return status_; }

 private:
  Status status_;
  bool has_run_ = false;
  std::atomic<bool> done_{false};
  std::mutex joining_;
  std::thread thread_;
};

/// An operator that ncclRedOpCreatePreMulSum has made.
struct UserOp {
  tutti_type_t type = TUTTI_FLOAT32;
  const void* scalar = nullptr;  ///< of a rank on host memory: read at each call; null: `op` has it
  tutti_op_t op = TUTTI_SUM;
};

}  // namespace tutti::nccl

struct ncclComm {
  static constexpr uint64_t kLive = 0x7475747469636363;

  std::atomic<uint64_t> magic{0};
  std::atomic<uint32_t> users{0};  ///< calls inside, for abort and destroy to wait for
  /// Set up, and no job runs: operations may be issued. One load on every call.
  std::atomic<bool> ready{false};
  std::atomic<bool> revoked{false};  ///< no operations any more, on purpose
  tutti::nccl::CommConfig config;
  int rank = 0;
  int rank_count = 0;
  int device = tutti::nccl::kHostMemory;
  tutti_comm_t* comm = nullptr;  ///< null until a split has ended; written under `mutex`, read once ready
  tutti_host_stream_t* stream = nullptr;  ///< of a non-blocking one on host memory: where its operations run
  std::mutex mutex;                       ///< guards what follows
  std::shared_ptr<tutti::nccl::Job> job;  ///< a split (shared by parent and children), or a finalize
  tutti::Status failure;                  ///< what a job or an operation on the stream ended with
  tutti::nccl::ErrorText last_error;
  std::string reported;  ///< the last failure that ncclCommGetAsyncError has told
  std::map<int, tutti::nccl::UserOp> ops;
  std::map<ncclWindow_t, void*> windows;  ///< where their memory begins
  /// What ncclCommRegister has returned; the handle is the key.
  std::map<void*, std::unique_ptr<char>> registrations;

  bool on_device() const { return device != tutti::nccl::kHostMemory; }
  /// Where its operations are issued: those of a rank on a device on the stream that the call names.
  tutti_stream_t operation_stream(cudaStream_t named) const {
    if (on_device()) return tutti_stream_cuda(named);
    return stream == nullptr ? TUTTI_BLOCKING : tutti_stream_host(stream);
  }
  /// kInProgress while it is set up or a job runs, else what that ended with.
  tutti::Status set_up_state();
  /// Ok when operations may be issued.
  tutti::Status check_ready() {
    if (ready.load(std::memory_order_acquire)) [[likely]]
      return tutti::Status::ok();
    return explain_not_ready();
  }
  /// Ok when another communicator can be made from it, though it may have failed.
  tutti::Status check_made();
  /// What ncclCommGetAsyncError reports.
  tutti::Status async_error();

 private:
  tutti::Status explain_not_ready();
};

namespace tutti::nccl {

/// Keeps a communicator from being freed while a call is inside.
class Use {
 public:
  explicit Use(ncclComm* comm);
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  /// kInvalidArgument unless it names a live communicator.
  const Status& status() const { return status_; }

 private:
  ncclComm* comm_;
  Status status_;
};

/// A fresh handle of a rank on that device, not ready yet.
Result<ncclComm*> acquire_comm(const CommConfig& config, int device);
/// Frees a handle whose communicator was never made.
void discard_comm(ncclComm* comm);

Status finalize_comm(ncclComm* comm);
/// Ends the operations of all ranks that are under way; none is issued any more.
Status revoke_comm(ncclComm* comm);
/// The handle is dead afterwards, whatever is returned.
Status destroy_comm(ncclComm* comm);
Status abort_comm(ncclComm* comm);

/// Runs the body of one call on a live communicator, keeps its failure's text there too.
template <class Body>
Status run_on(const char* call, ncclComm* comm, Body&& body) {
  const Use use(comm);
  TUTTI_TRY(use.status());
  Status status = body();
  if (has_failed(status)) [[unlikely]] {
    const std::scoped_lock lock(comm->mutex);
    comm->last_error = numbered(std::string(call) + ": " + std::string(status.text()));
  }
  return status;
}

template <class Body>
ncclResult_t guarded_on(const char* call, ncclComm* comm, Body&& body) noexcept {
  return guarded(call, [&] { return run_on(call, comm, body); });
}

}  // namespace tutti::nccl
