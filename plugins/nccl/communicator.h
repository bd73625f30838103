// The object behind an ncclComm_t: a tutti communicator, and the state that NCCL's interface adds.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "core/result.h"
#include "plugins/nccl/config.h"
#include "plugins/nccl/device.h"
#include "plugins/nccl/errors.h"
#include "tutti/tutti.h"

namespace tutti::nccl {

/// Blocking work in its own thread, for calls that return ncclInProgress.
class Job {
 public:
  /// If no thread can start, the job ends at once with an error status. `end` makes running work fail soon,
  /// and may use what the work uses.
  explicit Job(std::function<Status()> work, std::function<void()> end = {});
  ~Job() { wait(); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Whether the job's thread has started.
  bool has_run() const { return has_run_; }
  bool is_done() const { return done_.load(std::memory_order_acquire); }
  /// Makes the job fail soon, unless its work has ended or has no `end`. Any thread.
  void stop();
  /// Blocks until the job is done. Any thread, any number of times.
  void wait();
  /// The result of the work, valid once the job is done.
  const Status& status() const { return status_; }

 private:
  Status status_;
  bool has_run_ = false;
  std::atomic<bool> done_{false};
  std::mutex ending_;
  std::function<void()> end_;  ///< guarded by ending_; empty once the work has ended
  std::mutex joining_;
  std::thread thread_;
};

struct UserOp {
  tutti_type_t type = TUTTI_FLOAT32;
  const void* scalar = nullptr;  ///< on host memory: read at each call; null: `op` holds the scalar
  tutti_op_t op = TUTTI_SUM;
};

}  // namespace tutti::nccl

struct ncclComm {
  static constexpr uint64_t kLive = 0x7475747469636363;

  std::atomic<uint64_t> magic{0};
  std::atomic<uint32_t> users{0};  ///< calls inside; abort and destroy wait for them
  /// Set up, and no job runs: operations may be issued. Each call reads this once.
  std::atomic<bool> ready{false};
  std::atomic<bool> revoked{false};  ///< the program has revoked the communicator: no more operations
  tutti::nccl::CommConfig config;
  int rank = 0;
  int rank_count = 0;
  int device = tutti::nccl::kHostMemory;
  tutti_comm_t* comm = nullptr;  ///< null until set-up has ended; written under `mutex`, read once ready
  tutti_host_stream_t* stream = nullptr;  ///< non-blocking on host memory: operations run on this stream
  std::mutex mutex;                       ///< guards the fields below
  std::shared_ptr<tutti::nccl::Job> job;  ///< a split (shared by parent and children), or a finalize
  tutti::Status failure;                  ///< the failure of a job, or of an operation on the stream
  tutti::nccl::ErrorText last_error;
  std::string reported;  ///< the last failure that ncclCommGetAsyncError returned
  std::map<int, tutti::nccl::UserOp> ops;
  std::map<ncclWindow_t, void*> windows;  ///< the first byte of each window
  /// The handles that ncclCommRegister has returned.
  std::set<void*> registrations;

  bool on_device() const { return device != tutti::nccl::kHostMemory; }
  /// The stream for operations. On a device it is the stream that the call names.
  tutti_stream_t operation_stream(cudaStream_t named) const {
    if (on_device()) return tutti_stream_cuda(named);
    return stream == nullptr ? TUTTI_BLOCKING : tutti_stream_host(stream);
  }
  /// kInProgress during set-up or while a job runs; else the job's result.
  tutti::Status set_up_state();
  /// Blocks until the job is done. The job's result.
  tutti::Status finish_job();
  /// Ok when operations may be issued.
  tutti::Status check_ready() {
    if (ready.load(std::memory_order_acquire)) [[likely]]
      return tutti::Status::ok();
    return explain_not_ready();
  }
  /// Ok when another communicator can be made from this one. This one may have failed.
  tutti::Status check_made();
  /// The result of ncclCommGetAsyncError.
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
  /// kInvalidArgument unless `comm` names a live communicator.
  const Status& status() const { return status_; }

 private:
  ncclComm* comm_;
  Status status_;
};

/// A fresh handle for a rank on `device`, not ready yet.
Result<ncclComm*> acquire_comm(const CommConfig& config, int device);
/// Frees a handle whose communicator was never made.
void discard_comm(ncclComm* comm);

Status finalize_comm(ncclComm* comm);
/// Ends the operations in progress on all ranks. No more operations can be issued.
Status revoke_comm(ncclComm* comm);
/// The handle is dead afterwards, even after an error.
Status destroy_comm(ncclComm* comm);
Status abort_comm(ncclComm* comm);
/// What ends the set-ups that run on the parent: then the parent has been aborted.
std::function<void()> end_of_set_ups(ncclComm* parent);

/// Runs the body of one call on a live communicator. Keeps the text of a failure in the communicator too.
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
