#include "api/issue.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace tutti {
namespace {

constexpr uint32_t kCudaStream = 2;

/// Deadline of an operation that is issued now.
uint64_t timeout_of(const tutti_comm* handle) {
  return handle->timeout_ms > 0 ? handle->timeout_ms : handle->comm->options().timeout_ms;
}

/// One thing to run on a communicator.
struct Work {
  tutti_comm* handle = nullptr;
  tutti_stream_t stream{};
  std::variant<Call, MessageCall> what;
  uint64_t timeout_ms = 0;
};

bool is_group_of_messages(const Work& work) {
  const auto* call = std::get_if<MessageCall>(&work.what);
  return call != nullptr && !call->collective;
}

Work make_work(tutti_comm* handle, tutti_stream_t stream, std::variant<Call, MessageCall> what) {
  return {.handle = handle, .stream = stream, .what = std::move(what), .timeout_ms = timeout_of(handle)};
}

struct Group {
  Status spoiled;
  std::vector<Work> work;
};

Group& group() {
  thread_local Group current;
  return current;
}

bool same_stream(tutti_stream_t a, tutti_stream_t b) {
  return a.kind == b.kind && a.handle == b.handle;
}

/// Marks the communicator as used by a blocking call, for abort to wait for.
class Busy {
 public:
  explicit Busy(tutti_comm* handle) : handle_(handle) { handle_->busy.store(1, std::memory_order_relaxed); }
  ~Busy() { handle_->busy.store(0, std::memory_order_release); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  tutti_comm* handle_;
};

/// Operations of a communicator run in issue order: a blocking call waits for the queue.
void wait_for_queue(tutti_comm* handle) {
  if (handle->progress != nullptr && handle->progress->pending() != 0) handle->progress->wait_idle();
}

ProgressThread& progress_of(tutti_comm* handle) {
  if (handle->progress == nullptr) handle->progress = std::make_unique<ProgressThread>();
  return *handle->progress;
}

/// Runs on the progress thread: a call, or one that has been staged.
template <class Anything>
Status run_beside_callers(Communicator& comm, const Anything& call, uint64_t timeout_ms) {
  comm.set_timeout(timeout_ms);
  comm.wait_beside_callers(true);
  const Status status = comm.run(call);
  comm.wait_beside_callers(false);
  return status;
}

void enqueue(Work work) {
  tutti_comm* handle = work.handle;
  handle->has_host_tasks = true;
  auto stream = static_cast<tutti_host_stream*>(work.stream.handle)->stream;
  const uint64_t ticket = stream->take_ticket();
  Communicator* comm = handle->comm.get();
  progress_of(handle).push(
      {.run =
           [comm, what = std::move(work.what), timeout_ms = work.timeout_ms] {
             return std::visit([&](const auto& call) { return run_beside_callers(*comm, call, timeout_ms); },
                               what);
           },
       .cancelled = [comm] { return comm->has_error(); },
       .stream = std::move(stream),
       .ticket = ticket});
}

/// Queues the call's copies on a CUDA stream, and the call, on host memory, for the progress thread: behind
/// the calls that went that way before, and behind all others at once.
Status queue_staged(tutti_comm* handle, const auto& call, DeviceStream stream, uint64_t timeout_ms) {
  if (std::exchange(handle->has_host_tasks, false)) wait_for_queue(handle);
  const Busy busy(handle);
  ProgressThread& progress = progress_of(handle);
  Communicator* comm = handle->comm.get();
  auto staged = comm->stage(call, stream);
  TUTTI_TRY(staged.status());
  progress.push({.run = [comm, staged = std::move(*staged),
                         timeout_ms] { return run_beside_callers(*comm, staged, timeout_ms); },
                 .cancelled = {},
                 .stream = nullptr});
  return Status::ok();
}

DeviceStream device_stream(tutti_stream_t stream) {
  return {.internal = stream.kind != kCudaStream, .handle = stream.handle};
}

/// Queues it on a CUDA stream, behind what the communicator's progress thread has.
Status queue_on_device(tutti_comm* handle, const auto& call, tutti_stream_t stream, uint64_t timeout_ms) {
  const DeviceStream where = device_stream(stream);
  if (handle->comm->is_staged()) return queue_staged(handle, call, where, timeout_ms);
  wait_for_queue(handle);
  const Busy busy(handle);
  handle->comm->set_timeout(timeout_ms);
  return handle->comm->issue(call, where);
}

/// Calls of ranks of one communicator that are launched together, one of each. Whoever uses it marks them as
/// busy.
class Launches {
 public:
  bool holds(const tutti_comm* handle) const {
    return std::find(handles_.begin(), handles_.end(), handle) != handles_.end();
  }
  /// Whether it can be added: its rank runs on a device, is of the same communicator, and has none here.
  bool takes(const tutti_comm* handle) const {
    if (!handle->comm->runs_on_device() || holds(handle)) return false;
    return handles_.empty() || handles_.front()->comm->is_same_as(*handle->comm);
  }
  size_t size() const { return handles_.size(); }
  Status add(const Work& work) {
    handles_.push_back(work.handle);
    Communicator& comm = *work.handle->comm;
    comm.set_timeout(work.timeout_ms);
    const auto operation =
        std::visit([&](const auto& call) { return comm.prepare_on_device(call, device_stream(work.stream)); },
                   work.what);
    TUTTI_TRY(operation.status());
    if (operation->program != nullptr) operations_.push_back(*operation);
    return Status::ok();
  }
  Status launch() const {
    if (operations_.empty()) return Status::ok();
    Status launched = handles_.front()->comm->launch(operations_);
    for (tutti_comm* handle : handles_) {
      if (!launched) (void)handle->comm->give_up_launch(launched);
    }
    return launched;
  }

 private:
  std::vector<tutti_comm*> handles_;
  std::vector<DeviceOperation> operations_;
};

/// Queues calls on CUDA streams, in call order on each stream and of each rank. Those of one communicator's
/// ranks are launched together, for they wait for each other: in a stream that ranks share, a call goes with
/// that of the first of them, ahead of calls of other communicators in between.
class StreamCalls {
 public:
  explicit StreamCalls(std::vector<const Work*> work) : work_(std::move(work)), issued_(work_.size()) {
    for (const Work* one : work_) {
      if (one->handle->comm->runs_on_device() && !ranks_.contains(one->handle)) add_rank(one->handle);
    }
  }

  Status issue() {
    for (size_t first = 0; first < work_.size(); ++first) {
      if (issued_[first]) continue;
      const Work& work = *work_[first];
      if (work.handle->comm->runs_on_device()) {
        TUTTI_TRY(issue_with(first));
      } else {
        TUTTI_TRY(std::visit(
            [&](const auto& call) {
              return queue_on_device(work.handle, call, work.stream, work.timeout_ms);
            },
            work.what));
      }
    }
    return Status::ok();
  }

 private:
  void add_rank(tutti_comm* handle) {
    size_t& ranks = ranks_[handle];
    for (auto& [other, theirs] : ranks_) {
      if (!handle->comm->is_same_as(*other->comm)) continue;
      ++ranks;
      if (other != handle) ++theirs;
    }
  }

  /// The first call that is left, and those that go with it.
  Status issue_with(size_t first) {
    Launches launches;
    std::vector<const Work*> passed;
    TUTTI_TRY(add(first, launches));
    std::vector<tutti_stream_t> streams = {work_[first]->stream};
    const size_t most = ranks_.at(work_[first]->handle);
    for (size_t i = first + 1; i < work_.size() && launches.size() < most; ++i) {
      if (issued_[i]) continue;
      const Work& work = *work_[i];
      if (launches.takes(work.handle) && may_pass(work, passed, streams)) {
        TUTTI_TRY(add(i, launches));
        streams.push_back(work.stream);
      } else {
        passed.push_back(&work);
      }
    }
    return launches.launch();
  }

  /// Whether a call may go ahead of those that it has passed, with the launch on these streams.
  static bool may_pass(const Work& work, const std::vector<const Work*>& passed,
                       const std::vector<tutti_stream_t>& streams) {
    const auto is_its_own = [&](tutti_stream_t stream) { return same_stream(stream, work.stream); };
    const bool is_awaited = std::any_of(streams.begin(), streams.end(), is_its_own);
    return std::none_of(passed.begin(), passed.end(), [&](const Work* one) {
      return one->handle == work.handle || (!is_awaited && is_its_own(one->stream));
    });
  }

  Status add(size_t index, Launches& launches) {
    const Work& work = *work_[index];
    issued_[index] = true;
    wait_for_queue(work.handle);
    busy_.push_back(std::make_unique<Busy>(work.handle));
    return launches.add(work);
  }

  std::vector<const Work*> work_;
  std::vector<bool> issued_;
  std::map<tutti_comm*, size_t> ranks_;  ///< of the same communicator, in this group
  std::vector<std::unique_ptr<Busy>> busy_;
};

/// A group's sends to the own rank meet its receives from it, in call order.
Status check_self_messages(const MessageCall& call, uint32_t rank) {
  std::vector<const Message*> sends;
  std::vector<const Message*> receives;
  for (const Message& message : call.messages) {
    if (message.peer == rank) (message.sending ? sends : receives).push_back(&message);
  }
  const auto mismatch = [rank](const char* what) {
    return Status(Code::kInvalidUsage,
                  format("rank %u sends to itself, and %s: such a send needs its recv, of the "
                         "same count, type and tag, in the same group",
                         rank, what));
  };
  if (sends.size() != receives.size()) return mismatch("the group's sends and receives differ in number");
  for (size_t i = 0; i < sends.size(); ++i) {
    if (sends[i]->bytes != receives[i]->bytes || sends[i]->signature != receives[i]->signature) {
      return mismatch("a send and its receive differ");
    }
  }
  return Status::ok();
}

/// What a send to the own rank, or a receive from it, gets outside a group.
Status alone_with_itself(const Message& message) {
  return {Code::kInvalidUsage,
          format("rank %u %s itself outside a group, where nothing can meet that: call tutti_send and "
                 "tutti_recv, of the same count, type and tag, between tutti_group_start and tutti_group_end",
                 message.peer, message.sending ? "sends to" : "receives from")};
}

/// Within a group messages of one peer and direction meet in order of tag, then of call.
void sort_by_tag(MessageCall& call) {
  std::stable_sort(call.messages.begin(), call.messages.end(),
                   [](const Message& a, const Message& b) { return a.tag < b.tag; });
}

/// One communicator's blocking work of a group, driven step by step beside the others'.
struct Runner {
  tutti_comm* handle = nullptr;
  std::vector<Work*> queue;
  size_t next = 0;
  bool running = false;
  Status status;

  bool done() const { return next >= queue.size(); }

  /// Moves on; true when anything happened.
  bool step() {
    Communicator& comm = *handle->comm;
    if (!running) {
      comm.set_timeout(queue[next]->timeout_ms);
      status = std::visit([&](const auto& call) { return comm.begin(call); }, queue[next]->what);
      running = true;
    }
    if (status.is_ok()) {
      const Progress progress = comm.poll();
      if (progress == Progress::kBlocked || progress == Progress::kMoved) {
        if (progress == Progress::kMoved) comm.moved();
        return progress == Progress::kMoved;
      }
      status = comm.finish(progress);
    }
    running = false;
    next = status.is_ok() ? next + 1 : queue.size();
    return true;
  }
  void wait() {
    status = handle->comm->wait();
    if (!status.is_ok()) next = queue.size();
  }
};

/// Begins the first calls of the ranks of one communicator on devices, `first` and those behind it. Where one
/// cannot be made none is.
void begin_with(Runner& first, std::span<Runner> others) {
  Launches launches;
  std::vector<Runner*> begun = {&first};
  for (Runner& other : others) {
    const Communicator& comm = *other.handle->comm;
    if (!other.running && comm.runs_on_device() && comm.is_same_as(*first.handle->comm))
      begun.push_back(&other);
  }
  Status status;
  for (Runner* runner : begun) {
    if (status) status = launches.add(*runner->queue.front());
    runner->running = true;
  }
  if (status) status = launches.launch();
  for (Runner* runner : begun) {
    // What runs all the same is waited for: its communicator has the error.
    runner->status = runner->handle->comm->has_error() ? Status::ok() : status;
  }
}

void begin_on_devices(std::span<Runner> runners) {
  for (size_t i = 0; i < runners.size(); ++i) {
    if (!runners[i].running && runners[i].handle->comm->runs_on_device())
      begin_with(runners[i], runners.subspan(i + 1));
  }
}

Status run_together(std::vector<Work>& work) {
  std::vector<Runner> runners;
  for (Work& one : work) {
    auto found =
        std::find_if(runners.begin(), runners.end(), [&](const Runner& r) { return r.handle == one.handle; });
    if (found == runners.end()) {
      wait_for_queue(one.handle);
      runners.push_back({.handle = one.handle, .queue = {}, .next = 0, .running = false, .status = {}});
      found = runners.end() - 1;
    }
    found->queue.push_back(&one);
  }
  std::vector<std::unique_ptr<Busy>> busy;
  busy.reserve(runners.size());
  for (const Runner& runner : runners) busy.push_back(std::make_unique<Busy>(runner.handle));
  begin_on_devices(runners);
  for (bool left = true; left;) {
    bool moved = false;
    left = false;
    for (Runner& runner : runners) {
      if (runner.done()) continue;
      moved = runner.step() || moved;
      left = left || !runner.done();
    }
    if (!left || moved) continue;
    for (Runner& runner : runners) {
      if (!runner.done()) runner.wait();
    }
  }
  for (const Runner& runner : runners) TUTTI_TRY(runner.status);
  return Status::ok();
}

template <class Anything>
Status issue_any(tutti_comm* handle, Anything call, tutti_stream_t stream) {
  handle->repeat.valid = false;
  if (group_depth > 0) [[unlikely]] {
    group().work.push_back(make_work(handle, stream, std::move(call)));
    return Status::ok();
  }
  if (stream.kind == kCudaStream) return queue_on_device(handle, call, stream, timeout_of(handle));
  if (stream.kind != 0) [[unlikely]] {
    enqueue(make_work(handle, stream, std::move(call)));
    return Status::ok();
  }
  wait_for_queue(handle);
  const Busy busy(handle);
  handle->comm->set_timeout(timeout_of(handle));
  return handle->comm->run(call);
}

}  // namespace

constinit thread_local int group_depth = 0;

tutti_result_t repeat(tutti_comm* handle, const void* send, void* recv) noexcept {
  return guarded([&] {
    const Busy busy(handle);
    return handle->comm->run_again(send, recv);
  });
}

Status check_host_stream(tutti_stream_t stream) {
  const auto* host = static_cast<const tutti_host_stream*>(stream.handle);
  if (host == nullptr) return null_argument("stream");
  if (host->magic.load() != tutti_host_stream::kLive) {
    return {Code::kInvalidUsage, "argument stream is not a live host stream: it was destroyed"};
  }
  return Status::ok();
}

Status check_stream(const tutti_comm* handle, tutti_stream_t stream) {
  if (stream.kind == 0) [[likely]]
    return Status::ok();
  if (stream.kind == 1) return check_host_stream(stream);
  if (stream.kind == kCudaStream) {
    if (handle->comm->is_on_device()) return Status::ok();
    return {
        Code::kUnsupported,
        format("argument stream is a CUDA stream, but rank %u is in host memory: make its communicator with "
               "config.device set to a CUDA device, or pass a host stream",
               handle->comm->rank())};
  }
  return {Code::kInvalidArgument,
          format("argument stream has the unknown kind %u: make it with TUTTI_BLOCKING, "
                 "tutti_stream_host or tutti_stream_cuda",
                 stream.kind)};
}

Status issue(tutti_comm* handle, Call call, tutti_stream_t stream) {
  return issue_any(handle, std::move(call), stream);
}

Status issue(tutti_comm* handle, MessageCall call, tutti_stream_t stream) {
  return issue_any(handle, std::move(call), stream);
}

Status issue(tutti_comm* handle, const Message& message, tutti_stream_t stream) {
  handle->repeat.valid = false;
  if (group_depth == 0) {
    if (stream.kind == 0 && message.peer != handle->comm->rank()) [[likely]] {
      wait_for_queue(handle);
      const Busy busy(handle);
      handle->comm->set_timeout(timeout_of(handle));
      return handle->comm->run(message);
    }
    if (message.peer == handle->comm->rank()) return alone_with_itself(message);
    return issue_any(handle, MessageCall{.messages = {message}, .collective = false, .shape = {}}, stream);
  }
  Group& current = group();
  for (Work& work : current.work) {
    auto* call = std::get_if<MessageCall>(&work.what);
    if (call == nullptr || call->collective || work.handle != handle || !same_stream(work.stream, stream))
      continue;
    call->messages.push_back(message);
    work.timeout_ms = std::max(work.timeout_ms, timeout_of(handle));
    return Status::ok();
  }
  current.work.push_back(
      make_work(handle, stream, MessageCall{.messages = {message}, .collective = false, .shape = {}}));
  return Status::ok();
}

void group_start() {
  ++group_depth;
}

bool in_group() {
  return group_depth > 0;
}

void spoil_group(const Status& why) {
  if (group_depth > 0 && group().spoiled.is_ok()) group().spoiled = why;
}

Result<double> predict_group_us() {
  std::map<const tutti_comm*, double> busy_us;
  for (const Work& work : group().work) {
    const auto* call = std::get_if<Call>(&work.what);
    if (call == nullptr || call->blocks != nullptr) {
      return Status(
          Code::kUnsupported,
          "sends, receives and variable-count calls have no predicted time: predict a group without");
    }
    TUTTI_TRY(check_ready(work.handle));
    auto predicted = work.handle->comm->predict_us(call->shape);
    TUTTI_TRY(predicted.status());
    busy_us[work.handle] += *predicted;
  }
  double longest_us = 0;
  for (const auto& [handle, time_us] : busy_us) longest_us = std::max(longest_us, time_us);
  return longest_us;
}

Status group_end() {
  if (group_depth == 0)
    return {Code::kInvalidUsage, "tutti_group_end without tutti_group_start in this thread"};
  if (--group_depth > 0) return Status::ok();
  Group all = std::exchange(group(), Group{});
  TUTTI_TRY(all.spoiled);
  std::vector<Work> blocking;
  for (Work& work : all.work) {
    TUTTI_TRY(check_ready(work.handle));
    if (!is_group_of_messages(work)) continue;
    auto& call = std::get<MessageCall>(work.what);
    sort_by_tag(call);
    TUTTI_TRY(check_self_messages(call, work.handle->comm->rank()));
  }
  // Ranks may mix sends and collectives in different orders inside a group: all run the messages first.
  for (const bool messages_first : {true, false}) {
    std::vector<const Work*> on_devices;
    for (Work& work : all.work) {
      if (is_group_of_messages(work) != messages_first) continue;
      if (work.stream.kind == 0) {
        blocking.push_back(std::move(work));
      } else if (work.stream.kind == kCudaStream) {
        on_devices.push_back(&work);
      } else {
        enqueue(std::move(work));
      }
    }
    TUTTI_TRY(StreamCalls(std::move(on_devices)).issue());
  }
  return run_together(blocking);
}

}  // namespace tutti
