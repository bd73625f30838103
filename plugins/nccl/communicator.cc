#include "plugins/nccl/communicator.h"

#include <dlfcn.h>

#include <utility>

#include "api/handle.h"
#include "api/handle_pool.h"
#include "core/thread.h"
#include "plugins/nccl/cuda_memory.h"

namespace tutti::nccl {
namespace {

/// Never destroyed: a thread may call during exit.
HandlePool<ncclComm>& comm_pool() {
  static auto* pool = new HandlePool<ncclComm>;
  return *pool;
}

Status dead_handle() {
  return {Code::kInvalidArgument,
          "argument comm is not a live communicator: it was destroyed or aborted, or its set-up failed"};
}

/// Closes the handle: no new call can enter. False when the handle was already closed.
bool close_handle(ncclComm* comm) {
  uint64_t live = ncclComm::kLive;
  return comm->magic.compare_exchange_strong(live, 0);
}

/// Waits until all calls that entered before the handle was closed have returned.
void wait_for_users(const ncclComm* comm) {
  while (comm->users.load() != 0) std::this_thread::yield();
}

void recycle(ncclComm* comm) {
  comm->comm = nullptr;
  comm->job.reset();
  comm->failure = Status::ok();
  comm->last_error = {};
  comm->reported.clear();
  comm->ops.clear();
  comm->windows.clear();
  comm->registrations.clear();
  if (comm->stream != nullptr) {
    // Failures of its operations have been reported, or no caller is left to ask for them.
    tutti_host_stream_destroy(std::exchange(comm->stream, nullptr));
  }
  comm_pool().rest(comm);
}

/// The communicator of tutti; null while it is being made.
tutti_comm* made(ncclComm* comm) {
  const std::scoped_lock lock(comm->mutex);
  if (comm->comm == nullptr) return nullptr;
  const auto state = comm->comm->state.load(std::memory_order_acquire);
  const bool there = state == tutti_comm::State::kReady || state == tutti_comm::State::kFinalized;
  return there ? comm->comm : nullptr;
}

/// Ends what calls of other threads wait for: an operation, or the set-up of a communicator that is made from
/// this one. Later operations and set-ups fail too, but a shrink does not use them.
void end_calls(const tutti_comm* below) {
  below->comm->abort();
  below->setup_stop->stop();
}

/// The same, and ends a shrink too.
void end_all_calls(const tutti_comm* below) {
  end_calls(below);
  below->comm->shrink().stop();
}

/// A forked child must not wait for a thread of its parent.
Status check_not_forked(ncclComm* comm) {
  const tutti_comm* below = made(comm);
  if (below != nullptr && !below->comm->process().is_original()) return Process::forked();
  return Status::ok();
}

std::shared_ptr<Job> job_of(ncclComm* comm) {
  const std::scoped_lock lock(comm->mutex);
  return comm->job;
}

/// The file of this library, so that a user sees which of several has been loaded.
const char* path_of_library() {
  Dl_info found{};
  const bool is_known = dladdr(reinterpret_cast<const void*>(&pncclGetVersion), &found) != 0;
  return is_known && found.dli_fname != nullptr ? found.dli_fname : "an unknown file";
}

/// Writes the first line of the log, once.
bool introduce() {
  log(LogLevel::kVersion,
      format("NCCL version %d.%d.%d, served by tutti %d.%d.%d from %s", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH,
             TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH, path_of_library()));
  return true;
}

void log_end(const char* what, const ncclComm* comm) {
  log(LogLevel::kInfo, format("NCCL INFO comm %p rank %d nranks %d - %s", static_cast<const void*>(comm),
                              comm->rank, comm->rank_count, what));
}

}  // namespace

Job::Job(std::function<Status()> work, std::function<void()> end) : end_(std::move(end)) {
  const Status started =
      start_thread(thread_, "a thread for a call that returns at once", [this, work = std::move(work)] {
        status_ = contained(work);
        {
          const std::scoped_lock lock(ending_);
          end_ = nullptr;
        }
        done_.store(true, std::memory_order_release);
      });
  has_run_ = started.is_ok();
  if (has_run_) return;
  status_ = started;
  end_ = nullptr;
  done_.store(true, std::memory_order_release);
}

void Job::stop() {
  const std::scoped_lock lock(ending_);
  if (end_) end_();
}

void Job::wait() {
  const std::scoped_lock lock(joining_);
  if (thread_.joinable()) thread_.join();
}

Use::Use(ncclComm* comm) : comm_(comm) {
  if (comm == nullptr) {
    status_ = null_argument("comm");
    return;
  }
  // Counts first and checks afterwards. Either this thread sees that the handle is closed, or the closing
  // thread sees this call.
  comm->users.fetch_add(1);
  if (comm->magic.load() == ncclComm::kLive) [[likely]]
    return;
  comm->users.fetch_sub(1);
  comm_ = nullptr;
  status_ = dead_handle();
}

Use::~Use() {
  if (comm_ != nullptr) comm_->users.fetch_sub(1, std::memory_order_release);
}

Result<ncclComm*> acquire_comm(const CommConfig& config, int device) {
  static const bool kIntroduced = introduce();
  static_cast<void>(kIntroduced);
  look_for_cuda_driver();
  ncclComm* comm = comm_pool().take();
  comm->config = config;
  comm->device = device;
  comm->ready = false;
  comm->revoked = false;
  if (!config.blocking && !comm->on_device()) {
    const Status made_stream = status_of(tutti_host_stream_create(&comm->stream));
    if (!made_stream) {
      recycle(comm);
      return made_stream;
    }
  }
  comm->magic.store(ncclComm::kLive);
  return comm;
}

void discard_comm(ncclComm* comm) {
  if (!close_handle(comm)) return;
  wait_for_users(comm);
  recycle(comm);
}

Status finalize_comm(ncclComm* comm) {
  if (comm == nullptr) return Status::ok();
  const Use use(comm);
  TUTTI_TRY(use.status());
  TUTTI_TRY(comm->check_ready());
  const auto finalize = [comm] { return status_of(tutti_comm_finalize(comm->comm)); };
  log_end("finalize", comm);
  if (comm->config.blocking) return finalize();
  const std::scoped_lock lock(comm->mutex);
  comm->ready = false;
  comm->job = std::make_shared<Job>(finalize);
  return {Code::kInProgress, ""};
}

Status revoke_comm(ncclComm* comm) {
  TUTTI_TRY(comm->check_made());
  TUTTI_TRY(check_not_forked(comm));
  {
    const std::scoped_lock lock(comm->mutex);
    if (comm->revoked) return Status::ok();
    comm->revoked = true;
    comm->ready = false;
  }
  log_end("revoke", comm);
  end_calls(made(comm));
  // Waits until the other calls have left. This call counts as a user too.
  while (comm->users.load() > 1) std::this_thread::yield();
  // Operations that a group issued are with tutti.
  wait_until_left(comm->comm);
  if (comm->stream != nullptr) static_cast<void>(tutti_host_stream_synchronize(comm->stream));
  // The reason for the revoke is no longer an error of this communicator.
  const std::scoped_lock lock(comm->mutex);
  comm->failure = Status::ok();
  return Status::ok();
}

Status destroy_comm(ncclComm* comm) {
  if (comm == nullptr) return Status::ok();
  TUTTI_TRY(check_not_forked(comm));
  if (!close_handle(comm)) return dead_handle();
  log_end("destroy", comm);
  // Calls first, then the job: a call that is inside may start a job.
  wait_for_users(comm);
  if (const auto job = job_of(comm)) job->wait();
  const bool revoked = comm->revoked;
  const Status status = status_of(tutti_comm_destroy(comm->comm));
  recycle(comm);
  return revoked ? Status::ok() : status;
}

Status abort_comm(ncclComm* comm) {
  if (comm == nullptr) return Status::ok();
  TUTTI_TRY(check_not_forked(comm));
  if (!close_handle(comm)) return dead_handle();
  log_end("abort", comm);
  // First the waiting calls are woken, then they return, then the memory is freed. A job may be the making of
  // this communicator, which waits inside its parent. tutti_comm_abort stops the set-up of this communicator,
  // which no call is inside.
  if (const tutti_comm* below = made(comm)) end_all_calls(below);
  if (const auto running = job_of(comm)) running->stop();
  wait_for_users(comm);
  if (const auto job = job_of(comm)) job->wait();
  const Status status = status_of(tutti_comm_abort(comm->comm));
  recycle(comm);
  return status;
}

std::function<void()> end_of_set_ups(ncclComm* parent) {
  const tutti_comm* below = made(parent);
  if (below == nullptr) return {};
  // Whoever frees the parent waits for its job first, and the job forgets this when its work has ended.
  return [below] { end_all_calls(below); };
}

}  // namespace tutti::nccl

using tutti::Code;
using tutti::Status;

Status ncclComm::set_up_state() {
  if (ready.load(std::memory_order_acquire)) return Status::ok();
  const std::scoped_lock lock(mutex);
  if (job != nullptr) {
    if (!job->is_done()) return {Code::kInProgress, "the communicator's last call is not finished"};
    job->wait();
    if (failure.is_ok()) failure = job->status();
    job.reset();
  }
  if (!failure.is_ok() || revoked) return failure;
  tutti_result_t error = TUTTI_SUCCESS;
  Status status = tutti::nccl::status_of(tutti_comm_async_error(comm, &error));
  if (status.is_ok()) status = tutti::nccl::status_of(error);
  if (status.is_ok()) ready.store(true, std::memory_order_release);
  return status;
}

Status ncclComm::finish_job() {
  if (const auto running = tutti::nccl::job_of(this)) running->wait();
  return set_up_state();
}

Status ncclComm::explain_not_ready() {
  Status state = set_up_state();
  if (state.code() == Code::kInProgress) {
    return {
        Code::kInvalidArgument,
        "the communicator is not ready, its last call has not finished: poll ncclCommGetAsyncError until the "
        "result is not ncclInProgress"};
  }
  if (!revoked) return state;
  return {Code::kInvalidUsage, "the communicator was revoked: only shrink, destroy and abort are legal"};
}

Status ncclComm::check_made() {
  const Status state = set_up_state();
  if (state.code() == Code::kInProgress) return explain_not_ready();
  // A failure after the set-up does not matter here.
  return tutti::nccl::made(this) != nullptr ? Status::ok() : state;
}

Status ncclComm::async_error() {
  if (Status state = set_up_state(); !state.is_ok() || revoked) return state;
  if (stream != nullptr) {
    const Status operations = tutti::nccl::status_of(tutti_host_stream_query(stream));
    if (operations.code() == Code::kInProgress) return operations;
    const std::scoped_lock lock(mutex);
    // The stream reports a failure once. This interface reports it until the communicator is gone.
    if (failure.is_ok()) failure = operations;
    if (!failure.is_ok()) return failure;
  }
  tutti_result_t error = TUTTI_SUCCESS;
  if (Status asked = tutti::nccl::status_of(tutti_comm_async_error(comm, &error)); !asked.is_ok())
    return asked;
  return tutti::nccl::status_of(error);
}
