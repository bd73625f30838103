#include "plugins/nccl/group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "api/group.h"
#include "api/issue.h"
#include "core/kept_by_thread.h"

namespace tutti::nccl {
namespace {

struct Closing {
  ncclComm* comm = nullptr;
  Status (*what)(ncclComm*) = nullptr;
};

struct Group {
  int depth = 0;
  Status spoiled;
  std::vector<SetUp> waiting;   ///< set-ups that the end waits for
  std::vector<SetUp> starting;  ///< set-ups that the end starts
  bool non_blocking = false;    ///< an operation of a non-blocking communicator was issued
  std::vector<Closing> closings;
};

Group& group() {
  return KeptByThread<Group>::get();
}

void log_begin(const SetUp& job) {
  log(LogLevel::kInfo, format("NCCL INFO %s comm %p%s%s", job.call, static_cast<const void*>(job.comm),
                              job.config.name.empty() ? "" : " commName ", job.config.name.c_str()));
}

/// Asks the tutti communicator for its rank and rank count.
Status read_place(ncclComm* comm) {
  TUTTI_TRY(status_of(tutti_comm_rank(comm->comm, &comm->rank)));
  return status_of(tutti_comm_count(comm->comm, &comm->rank_count));
}

/// The id by which the rank joins. If it is address_id's, the ranks first get rank 0's id at the address.
Status find_id(const SetUp& job, bool waits, tutti_unique_id_t& id) {
  id = id_below(job.id);
  const ncclUniqueId by_address = address_id();
  if (std::memcmp(&job.id, &by_address, sizeof(by_address)) != 0) return Status::ok();
  const std::string& address = settings().comm_id;
  if (address.empty()) {
    return {Code::kInvalidArgument, "argument id was made where NCCL_COMM_ID is set, but here it is not"};
  }
  if (!waits) {
    return not_implemented(
        "a non-blocking communicator cannot use NCCL_COMM_ID (set blocking to 1, or unset NCCL_COMM_ID and "
        "carry the id of one rank to the others)");
  }
  const ncclComm& comm = *job.comm;
  if (comm.rank == 0) TUTTI_TRY(status_of(tutti_get_unique_id(&id)));
  const Status shared =
      status_of(tutti_share_unique_id(&id, ("tutti://" + address).c_str(), comm.rank, comm.rank_count, 0));
  if (shared) return shared;
  return {shared.code(), "NCCL_COMM_ID is " + address + ": " + std::string(shared.text())};
}

Status join(const SetUp& job, bool waits) {
  tutti_config_t config = TUTTI_CONFIG_INIT;
  config.nonblocking = waits ? 0 : 1;
  if (job.comm->device != kHostMemory) config.device = TUTTI_CUDA_DEVICE(job.comm->device);
  const ncclComm& comm = *job.comm;
  tutti_unique_id_t id;
  TUTTI_TRY(find_id(job, waits, id));
  return status_of(tutti_comm_create(&job.comm->comm, comm.rank_count, id, comm.rank, &config));
}

/// Makes the communicator from its parent.
Status derive(const SetUp& job) {
  tutti_comm_t* below = nullptr;
  TUTTI_TRY(job.make(job.parent->comm, &below));
  if (job.comm == nullptr) return Status::ok();
  const std::scoped_lock lock(job.comm->mutex);
  job.comm->comm = below;
  return read_place(job.comm);
}

Status run(const SetUp& job) {
  log_begin(job);
  if (job.parent == nullptr) return join(job, true);
  const Use use(job.parent);
  TUTTI_TRY(use.status());
  return derive(job);
}

/// Ends a set-up that its caller waited for: the caller gets the handle, or the handle is freed.
Status settle(const SetUp& job, Status status) {
  if (job.comm == nullptr) return status;
  if (!status.is_ok()) {
    discard_comm(job.comm);
    return status;
  }
  job.comm->ready.store(true, std::memory_order_release);
  if (job.result != nullptr) *job.result = job.comm;
  log(LogLevel::kInfo, format("NCCL INFO comm %p rank %d nranks %d - set up", static_cast<void*>(job.comm),
                              job.comm->rank, job.comm->rank_count));
  return status;
}

/// A list of set-ups that run one after another. Set-ups in different lanes wait for each other. Each rank
/// that joins by an id has its own lane. Set-ups from one parent share a lane, because they are collective
/// calls on the parent.
using Lane = std::vector<const SetUp*>;

std::vector<Lane> lanes_of(const std::vector<SetUp>& jobs) {
  std::vector<Lane> lanes;
  for (const SetUp& job : jobs) {
    const auto found = std::find_if(lanes.begin(), lanes.end(), [&](const Lane& lane) {
      return job.parent != nullptr && lane[0]->parent == job.parent;
    });
    if (found != lanes.end()) {
      found->push_back(&job);
    } else {
      lanes.push_back({&job});
    }
  }
  return lanes;
}

/// After a failure, later set-ups from the same parent cannot reach their peers.
Status run_lane(const Lane& lane) {
  Status status;
  for (const SetUp* job : lane) {
    if (status.is_ok()) status = run(*job);
    static_cast<void>(settle(*job, status));
  }
  return status;
}

Status run_all(const std::vector<SetUp>& jobs) {
  const std::vector<Lane> lanes = lanes_of(jobs);
  // Nothing can be made from a parent inside an open tutti group of this thread.
  if (lanes.size() == 1 && !tutti::in_group()) return run_lane(lanes[0]);
  std::vector<std::unique_ptr<Job>> threads;
  threads.reserve(lanes.size());
  for (const Lane& lane : lanes) {
    threads.push_back(std::make_unique<Job>([&lane] { return run_lane(lane); }));
  }
  Status first;
  for (size_t i = 0; i < lanes.size(); ++i) {
    threads[i]->wait();
    const Status& status = threads[i]->status();
    if (first.is_ok()) first = status;
    if (threads[i]->has_run()) continue;
    for (const SetUp* job : lanes[i]) static_cast<void>(settle(*job, status));
  }
  return first;
}

/// Starts the set-ups from one non-blocking parent, as one job that the parent and the children share.
Status start_derived(const std::vector<SetUp>& jobs) {
  ncclComm* parent = jobs[0].parent;
  const Use use(parent);
  TUTTI_TRY(use.status());
  const auto work = [jobs] {
    Status status;
    for (const SetUp& job : jobs) {
      log_begin(job);
      if (status.is_ok()) status = derive(job);
    }
    return status;
  };
  const auto end = end_of_set_ups(parent);
  std::vector<std::unique_lock<std::mutex>> locks;
  // The children are locked first: no other thread knows them yet.
  for (const SetUp& job : jobs) {
    if (job.comm != nullptr) locks.emplace_back(job.comm->mutex);
  }
  const std::scoped_lock lock(parent->mutex);
  parent->ready = false;
  parent->job = std::make_shared<Job>(work, end);
  for (const SetUp& job : jobs) {
    if (job.comm != nullptr) job.comm->job = parent->job;
  }
  return Status::ok();
}

Status start_lane(const Lane& lane) {
  if (lane[0]->parent != nullptr) {
    std::vector<SetUp> derived;
    for (const SetUp* job : lane) derived.push_back(*job);
    return start_derived(derived);
  }
  log_begin(*lane[0]);
  Status started = join(*lane[0], false);
  return started.code() == Code::kInProgress ? Status::ok() : started;
}

/// Cancels a set-up that has not started. A handle that the caller already has is dead.
void drop(const SetUp& job) {
  if (job.comm == nullptr) return;
  if (job.result != nullptr) *job.result = nullptr;
  discard_comm(job.comm);
}

/// After a failure, no further set-up starts.
Status start_all(const std::vector<SetUp>& jobs) {
  Status status;
  for (const Lane& lane : lanes_of(jobs)) {
    if (status.is_ok()) status = start_lane(lane);
    if (status.is_ok()) continue;
    for (const SetUp* job : lane) drop(*job);
  }
  return status.is_ok() ? Status(Code::kInProgress, "") : status;
}

/// Waits for the started set-ups whose parent also has operations in the group. Both use the parent, which
/// takes calls of one thread at a time, and on every rank the set-ups come first.
Status finish_before_operations(const std::vector<SetUp>& started) {
  for (const SetUp& job : started) {
    if (job.parent == nullptr) continue;
    const Use use(job.parent);
    TUTTI_TRY(use.status());
    if (tutti::group_has_calls_on(job.parent->comm)) TUTTI_TRY(job.parent->finish_job());
  }
  return Status::ok();
}

void drop_set_ups(const Group& all) {
  for (const std::vector<SetUp>* jobs : {&all.waiting, &all.starting}) {
    for (const SetUp& job : *jobs) drop(job);
  }
}

/// The first failure; else kInProgress if either status is kInProgress.
Status combine(const Status& first, const Status& second) {
  if (has_failed(first) || (!has_failed(second) && !first.is_ok())) return first;
  return second;
}

/// tutti's group in this thread, which always ends with NCCL's group. If it stayed open, later calls would
/// only be recorded, and still return success.
class GroupBelow {
 public:
  GroupBelow() = default;
  GroupBelow(const GroupBelow&) = delete;
  GroupBelow& operator=(const GroupBelow&) = delete;
  ~GroupBelow() {
    if (open_) static_cast<void>(end({Code::kInternal, "the end of the group has failed"}));
  }
  /// If `why` is an error, nothing is issued and `why` is the result.
  Status end(const Status& why) {
    open_ = false;
    if (!why.is_ok()) tutti::spoil_group(why);
    return status_of(tutti_group_end());
  }

 private:
  bool open_ = true;
};

/// Ends communicators after the group's operations. The calls in the group have returned success, so this
/// happens whatever became of the group.
Status run_closings(const Group& all, Status status) {
  for (const Closing& closing : all.closings) status = combine(status, closing.what(closing.comm));
  return status;
}

Status not_in_group() {
  return {Code::kInvalidUsage, "no ncclGroupStart is open in this thread"};
}

}  // namespace

tutti_unique_id_t id_below(const ncclUniqueId& id) {
  tutti_unique_id_t below;
  static_assert(sizeof(below.bytes) == sizeof(id.internal));
  std::memcpy(below.bytes, id.internal, sizeof(below.bytes));
  return below;
}

Status make_id(ncclUniqueId* id) {
  if (id == nullptr) return null_argument("id");
  tutti_unique_id_t below;
  TUTTI_TRY(status_of(tutti_get_unique_id(&below)));
  std::memcpy(id->internal, below.bytes, sizeof(id->internal));
  return Status::ok();
}

ncclUniqueId address_id() {
  ncclUniqueId id{};
  constexpr char kMark[] = "NCCL_COMM_ID";
  std::memcpy(id.internal, kMark, sizeof(kMark));
  return id;
}

Status set_up(SetUp job, bool waits) {
  if (job.result != nullptr) *job.result = waits ? nullptr : job.comm;
  Group& current = group();
  if (current.depth > 0) {
    if (job.parent == nullptr) {
      // As in NCCL, the caller has the handle at once. The caller's variable may be gone when the group ends.
      *job.result = job.comm;
      job.result = nullptr;
    }
    (waits ? current.waiting : current.starting).push_back(std::move(job));
    return Status::ok();
  }
  const std::vector<SetUp> one = {std::move(job)};
  return waits ? run_all(one) : start_all(one);
}

Status join_rank(const char* call, ncclComm** comm, int nranks, const ncclUniqueId& id, int rank,
                 const ncclConfig_t* config, int device) {
  if (comm == nullptr) return null_argument("comm");
  *comm = nullptr;
  if (nranks < 1)
    return {Code::kInvalidArgument, format("argument nranks is %d: it must be at least 1", nranks)};
  if (rank < 0 || rank >= nranks) {
    return {Code::kInvalidArgument, format("argument rank is %d: it must be 0 to %d", rank, nranks - 1)};
  }
  auto options = read_comm_config(config, {});
  TUTTI_TRY(options.status());
  auto handle = acquire_comm(*options, device);
  TUTTI_TRY(handle.status());
  (*handle)->rank = rank;
  (*handle)->rank_count = nranks;
  SetUp job{.call = call, .result = comm, .config = *options, .comm = *handle, .id = id};
  return set_up(std::move(job), options->blocking);
}

Status close(ncclComm* comm, Status (*what)(ncclComm*)) {
  if (group().depth == 0) return what(comm);
  group().closings.push_back({comm, what});
  return Status::ok();
}

Status issued(ncclComm* comm) {
  if (comm->stream == nullptr) [[likely]]
    return Status::ok();
  if (group().depth == 0) return {Code::kInProgress, ""};
  group().non_blocking = true;
  return Status::ok();
}

void spoil(const Status& why) noexcept {
  Group& current = group();
  if (current.depth > 0 && current.spoiled.is_ok()) current.spoiled = why;
}

Status group_start() {
  if (group().depth++ == 0) return status_of(tutti_group_start());
  return Status::ok();
}

Status group_end() {
  if (group().depth == 0) return not_in_group();
  if (--group().depth > 0) return Status::ok();
  GroupBelow below;
  const Group all = std::exchange(group(), Group{});
  if (!all.spoiled.is_ok()) {
    drop_set_ups(all);
    return run_closings(all, below.end(all.spoiled));
  }
  Status status = all.starting.empty() ? Status::ok() : start_all(all.starting);
  if (!all.waiting.empty()) status = combine(status, run_all(all.waiting));
  if (!has_failed(status)) status = combine(status, finish_before_operations(all.starting));
  // After a failed set-up, the operations of the group are not issued.
  status = combine(status, below.end(has_failed(status) ? status : Status::ok()));
  if (all.non_blocking) status = combine(status, {Code::kInProgress, ""});
  return run_closings(all, status);
}

Result<double> group_simulate_end() {
  if (group().depth == 0) return not_in_group();
  if (--group().depth > 0) return 0.0;
  GroupBelow below;
  const Group all = std::exchange(group(), Group{});
  auto predicted = tutti::predict_group_us();
  drop_set_ups(all);
  static_cast<void>(run_closings(all, below.end({Code::kInvalidUsage, "the group was only simulated"})));
  TUTTI_TRY(all.spoiled);
  if (!all.waiting.empty() || !all.starting.empty() || !all.closings.empty()) {
    return Status(Code::kInvalidUsage,
                  "only operations can be simulated, not calls that make or end communicators");
  }
  return predicted;
}

}  // namespace tutti::nccl
