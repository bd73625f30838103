#include "api/group.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "api/issue.h"
#include "core/kept_by_thread.h"

namespace tutti {
namespace {

/// A stream that the group's calls on a communicator name.
struct Named {
  tutti_comm* handle = nullptr;
  tutti_stream_t stream{};
};

struct Group {
  Status spoiled;
  std::vector<Work> work;
  std::vector<Named> named;  ///< each stream once, in the order of the calls
};

Group& group() {
  return KeptByThread<Group>::get();
}

/// A communicator's part of a group. On the streams that its calls name, the part is one operation. The
/// operation begins when all streams have reached it, and all streams continue when it has ended. It runs on
/// the first stream.
struct Part {
  explicit Part(tutti_comm* handle) : hold(handle) {}
  HandleRef
      hold;  ///< until this communicator's calls are done: an abort does not wait for other communicators
  std::vector<tutti_stream_t> streams;
};
using Parts = std::map<tutti_comm*, Part>;

bool is_group_of_messages(const Work& work) {
  const auto* call = std::get_if<MessageCall>(&work.what);
  return call != nullptr && !call->collective;
}

bool same_stream(tutti_stream_t a, tutti_stream_t b) {
  return a.kind == b.kind && a.handle == b.handle;
}

/// Calls that are launched together: at most one for each rank of one communicator.
class Launches {
 public:
  bool holds(const tutti_comm* handle) const {
    return std::find(handles_.begin(), handles_.end(), handle) != handles_.end();
  }
  /// Whether the rank's call can be added: the rank runs on a device, belongs to the same communicator, and
  /// has no call here yet.
  bool takes(const tutti_comm* handle) const {
    if (handle->comm->device() == nullptr || holds(handle)) return false;
    return handles_.empty() || handles_.front()->comm->device()->is_same_as(*handle->comm->device());
  }
  size_t size() const { return handles_.size(); }
  Status add(const Work& work) {
    handles_.push_back(work.handle);
    Communicator& comm = take_turn(work.handle, work.timeout_ms);
    const auto operation =
        std::visit([&](const auto& call) { return comm.prepare_on_device(call, device_stream(work.stream)); },
                   work.what);
    TUTTI_TRY(operation.status());
    if (operation->program == nullptr) return Status::ok();
    operations_.push_back(*operation);
    launched_.push_back(&comm);
    return Status::ok();
  }
  /// Sets `has_begun` if any operation is under way, even when the result is an error. Otherwise leaves it
  /// unchanged.
  Status launch(bool& has_begun) const {
    if (operations_.empty()) return Status::ok();
    const Status launched = contained([&] { return launched_.front()->device()->launch(operations_); });
    for (const DeviceOperation& operation : operations_) has_begun = has_begun || operation.rank->has_begun();
    if (launched) return launched;
    for (Communicator* comm : launched_) (void)comm->device()->give_up_launch(launched);
    return launched;
  }

 private:
  std::vector<tutti_comm*> handles_;
  std::vector<DeviceOperation> operations_;
  std::vector<Communicator*> launched_;  ///< the communicators of `operations_`
};

/// Queues calls on CUDA streams, in call order for each stream and each rank. The calls of one communicator's
/// ranks wait for each other, so they are launched together. In a stream that ranks share, such a call moves
/// ahead to the communicator's first call, past calls of other communicators.
class StreamCalls {
 public:
  explicit StreamCalls(std::vector<const Work*> work) : work_(std::move(work)), issued_(work_.size()) {
    for (const Work* one : work_) {
      if (one->handle->comm->device() != nullptr && !ranks_.contains(one->handle)) add_rank(one->handle);
    }
  }

  /// `has_begun`: see Launches.
  Status issue(bool& has_begun) {
    for (size_t first = 0; first < work_.size(); ++first) {
      if (issued_[first]) continue;
      const Work& work = *work_[first];
      if (work.handle->comm->device() != nullptr) {
        TUTTI_TRY(issue_with(first, has_begun));
      } else {
        TUTTI_TRY(queue_on_device(work));
        has_begun = true;
      }
    }
    return Status::ok();
  }

 private:
  void add_rank(tutti_comm* handle) {
    size_t& ranks = ranks_[handle];
    for (auto& [other, theirs] : ranks_) {
      if (!handle->comm->device()->is_same_as(*other->comm->device())) continue;
      ++ranks;
      if (other != handle) ++theirs;
    }
  }

  /// Issues the first remaining call and the calls that are launched with it.
  Status issue_with(size_t first, bool& has_begun) {
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
    return launches.launch(has_begun);
  }

  /// Whether the call may move ahead of the calls in `passed`, into a launch on `streams`.
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
    return launches.add(work);
  }

  std::vector<const Work*> work_;
  std::vector<bool> issued_;
  std::map<tutti_comm*, size_t> ranks_;  ///< of the same communicator, in this group
};

/// Checks that a group's sends to the own rank match its receives from the own rank, in call order.
Status check_self_messages(const MessageCall& call, uint32_t rank) {
  for (const auto& [send, receive] : self_pairs(call.messages, rank)) {
    const bool match = send != nullptr && receive != nullptr && send->bytes == receive->bytes &&
                       send->type == receive->type && send->tag == receive->tag;
    if (match) continue;
    const auto described = [](const Message* message) {
      return message == nullptr ? std::string("none") : describe_message(*message);
    };
    return {Code::kInvalidUsage,
            format("rank %u sends to itself in a group: a send is %s, its recv is %s; such a send "
                   "needs a recv of the same count, type and tag in the same group",
                   rank, described(send).c_str(), described(receive).c_str())};
  }
  return Status::ok();
}

/// In a group, messages of one peer and direction match in order of tag, then in call order.
void sort_by_tag(MessageCall& call) {
  std::stable_sort(call.messages.begin(), call.messages.end(),
                   [](const Message& a, const Message& b) { return a.tag < b.tag; });
}

/// One communicator's blocking work in a group. The thread drives it step by step, in turn with other
/// communicators.
struct Runner {
  tutti_comm* handle;
  HandleRef hold;
  std::vector<Work*> queue = {};
  size_t next = 0;
  bool running = false;
  Status status = {};

  bool done() const { return next >= queue.size(); }
  /// From here on the communicator may be freed.
  void end(const Status& how) {
    status = how;
    running = false;
    next = queue.size();
    hold.release();
  }

  /// Advances. Returns true when anything happened.
  bool step() {
    bool moved = true;
    const Status stepped = handle->comm->guard(true, [&] {
      moved = advance();
      return Status::ok();
    });
    if (!stepped) status = stepped;
    return moved;
  }
  void wait() {
    if (status) {
      status = handle->comm->guard(true, [&] { return handle->comm->wait(); });
    } else {
      std::this_thread::yield();
    }
  }

 private:
  bool advance() {
    Communicator& comm = *handle->comm;
    if (!status) {
      // The other runners continue meanwhile: their ranks may be the ones that use these buffers.
      if (!comm.buffers_are_free()) return false;
      end(status);
      return true;
    }
    if (!running) {
      take_turn(handle, queue[next]->timeout_ms);
      status = comm.share_resource_error(
          std::visit([&](const auto& call) { return comm.begin(call); }, queue[next]->what));
      running = true;
      if (!status) return true;
    }
    const Progress progress = comm.poll();
    if (progress == Progress::kBlocked || progress == Progress::kMoved) {
      if (progress == Progress::kMoved) comm.moved();
      return progress == Progress::kMoved;
    }
    status = comm.finish(progress);
    running = false;
    if (!status) return true;
    ++next;
    if (done()) end(status);
    return true;
  }
};

/// Begins the first calls of `first` and of the ranks in `others` that belong to the same communicator on
/// devices. If one call cannot be made, none begins.
void begin_with(Runner& first, std::span<Runner> others) {
  Launches launches;
  std::vector<Runner*> begun = {&first};
  for (Runner& other : others) {
    if (other.done()) continue;
    const Communicator& comm = *other.handle->comm;
    if (!other.running && comm.device() != nullptr &&
        comm.device()->is_same_as(*first.handle->comm->device()))
      begun.push_back(&other);
  }
  Status status;
  for (Runner* runner : begun) {
    if (status) status = launches.add(*runner->queue.front());
    runner->running = true;
  }
  bool has_begun = false;
  if (status) status = launches.launch(has_begun);
  for (Runner* runner : begun) {
    // An operation that was launched despite the error is still waited for. Its communicator has the error.
    runner->status = runner->handle->comm->has_error() ? Status::ok() : status;
  }
}

void begin_on_devices(std::span<Runner> runners) {
  for (size_t i = 0; i < runners.size(); ++i) {
    if (!runners[i].done() && !runners[i].running && runners[i].handle->comm->device() != nullptr)
      begin_with(runners[i], runners.subspan(i + 1));
  }
}

/// Waits until all progress threads are idle: no call of the group begins earlier. A communicator that is
/// aborted meanwhile drops out.
void wait_for_queues(std::span<Runner> runners) {
  for (Waiter waiter(WaitMode::kYield);; waiter.pause()) {
    bool waits = false;
    for (Runner& runner : runners) {
      if (runner.done()) continue;
      const Communicator& comm = *runner.handle->comm;
      if (has_queue(runner.handle)) {
        waits = true;
      } else if (comm.has_error()) {
        runner.end(comm.error());
      }
    }
    if (!waits) return;
  }
}

Status run_together(std::vector<Work>& work, Parts parts) {
  std::vector<Runner> runners;
  for (Work& one : work) {
    auto found =
        std::find_if(runners.begin(), runners.end(), [&](const Runner& r) { return r.handle == one.handle; });
    if (found == runners.end()) {
      runners.push_back({.handle = one.handle, .hold = std::move(parts.at(one.handle).hold)});
      found = runners.end() - 1;
    }
    found->queue.push_back(&one);
  }
  parts.clear();
  wait_for_queues(runners);
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

void name(Group& all, const Named& named) {
  const bool is_known = std::any_of(all.named.begin(), all.named.end(), [&](const Named& other) {
    return other.handle == named.handle && same_stream(other.stream, named.stream);
  });
  if (!is_known) all.named.push_back(named);
}

/// Adds the stream to the communicator's part of a group, and the communicator if it is new.
Status take_part(const Named& named, Parts& parts) {
  Part& part = parts.try_emplace(named.handle, named.handle).first->second;
  if (!part.hold) return no_handle(named.handle);
  TUTTI_TRY(check_ready(named.handle));
  TUTTI_TRY(check_stream(named.handle, named.stream));
  if (!part.streams.empty() && part.streams.front().kind != named.stream.kind) {
    return {Code::kInvalidUsage,
            format("a group mixes blocking calls, host streams and CUDA streams of rank %u of one "
                   "communicator: these calls are one operation, so give all of them streams of one kind or "
                   "TUTTI_BLOCKING, or open one group for each kind",
                   named.handle->comm->rank())};
  }
  part.streams.push_back(named.stream);
  return Status::ok();
}

/// Gives a call the streams of its communicator's part.
Status prepare(Work& work, const Parts& parts) {
  const std::vector<tutti_stream_t>& streams = parts.at(work.handle).streams;
  work.stream = streams.front();
  if (work.stream.kind == kHostStream) work.other_streams.assign(streams.begin() + 1, streams.end());
  if (!is_group_of_messages(work)) return Status::ok();
  auto& call = std::get<MessageCall>(work.what);
  sort_by_tag(call);
  return check_self_messages(call, work.handle->comm->rank());
}

/// Before the calls, the first CUDA stream of each communicator waits for the communicator's other streams;
/// after the calls, the other streams wait for the first. No such wait stands between the calls, because a
/// stream may also carry a call of another rank, for which this rank's call waits.
Status order_streams(const Parts& parts, bool before) {
  Status failure;
  for (const auto& [handle, part] : parts) {
    if (part.streams.size() < 2 || part.streams.front().kind != kCudaStream) continue;
    void* const first = part.streams.front().handle;
    std::vector<void*> others;
    for (size_t i = 1; i < part.streams.size(); ++i) others.push_back(part.streams[i].handle);
    const std::span<void* const> one(&first, 1);
    const Status ordered =
        before ? handle->comm->order_streams(others, one) : handle->comm->order_streams(one, others);
    if (failure.is_ok()) failure = ordered;
    // After the calls, one failure does not stop the ordering of the remaining communicators.
    if (before) TUTTI_TRY(failure);
  }
  return failure;
}

/// Inside a group, ranks may mix messages and collectives in different orders, so all ranks run messages
/// first. Blocking calls are left in `blocking`, for the end. Sets `has_begun` if any stream holds an
/// operation, even when the result is an error.
Status issue_on_streams(std::vector<Work>& all, std::vector<Work>& blocking, bool& has_begun) {
  for (const bool messages_first : {true, false}) {
    std::vector<const Work*> on_devices;
    for (Work& work : all) {
      if (is_group_of_messages(work) != messages_first) continue;
      if (work.stream.kind == 0) {
        blocking.push_back(std::move(work));
      } else if (work.stream.kind == kCudaStream) {
        on_devices.push_back(&work);
      } else {
        TUTTI_TRY(enqueue(std::move(work)));
        has_begun = true;
      }
    }
    TUTTI_TRY(StreamCalls(std::move(on_devices)).issue(has_begun));
  }
  return Status::ok();
}

void fail_all(const Parts& parts, const Status& why) {
  for (const auto& [handle, part] : parts) {
    if (!handle->comm->has_error()) handle->comm->fail_all(why);
  }
}

}  // namespace

constinit thread_local int group_depth = 0;

void add_to_group(Work work) {
  name(group(), {.handle = work.handle, .stream = work.stream});
  group().work.push_back(std::move(work));
}

void add_to_group(tutti_comm* handle, const Message& message, tutti_stream_t stream, uint64_t timeout_ms) {
  Group& current = group();
  name(current, {.handle = handle, .stream = stream});
  for (Work& work : current.work) {
    auto* call = std::get_if<MessageCall>(&work.what);
    if (call == nullptr || call->collective || work.handle != handle) continue;
    call->messages.push_back(message);
    work.timeout_ms = std::max(work.timeout_ms, timeout_ms);
    return;
  }
  current.work.push_back({.handle = handle,
                          .stream = stream,
                          .what = MessageCall{.messages = {message}, .collective = false, .shape = {}},
                          .timeout_ms = timeout_ms});
}

void group_start() {
  ++group_depth;
}

bool in_group() {
  return group_depth > 0;
}

bool group_has_calls_on(const tutti_comm* handle) {
  const std::vector<Named>& named = group().named;
  return std::any_of(named.begin(), named.end(), [&](const Named& one) { return one.handle == handle; });
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
          "sends, receives and variable-count calls have no predicted time: leave them out of the group");
    }
    const HandleRef hold(work.handle);
    if (!hold) return no_handle(work.handle);
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
  Parts parts;
  for (const Named& named : all.named) TUTTI_TRY(take_part(named, parts));
  for (Work& work : all.work) TUTTI_TRY(prepare(work, parts));
  TUTTI_TRY(order_streams(parts, true));
  std::vector<Work> blocking;
  bool has_begun = false;
  const Status issued = contained([&] { return issue_on_streams(all.work, blocking, has_begun); });
  // The groups of the other ranks are complete. Those ranks would wait for the rest of this group.
  if (!issued && has_begun) fail_all(parts, issued);
  // Other streams must wait for queued operations even after a failure.
  const Status ordered = order_streams(parts, false);
  TUTTI_TRY(issued);
  TUTTI_TRY(ordered);
  return run_together(blocking, std::move(parts));
}

}  // namespace tutti
