#include "api/work.h"

#include <memory>
#include <span>
#include <utility>

namespace tutti {
namespace {

/// Returns the progress thread. The first operation that needs it starts it.
Result<ProgressThread*> progress_of(tutti_comm* handle) {
  if (handle->progress == nullptr) {
    auto started = ProgressThread::start();
    TUTTI_TRY(started.status());
    handle->progress = std::move(*started);
  }
  return handle->progress.get();
}

const std::shared_ptr<HostStream>& host_stream(tutti_stream_t stream) {
  return static_cast<const tutti_host_stream*>(stream.handle)->stream;
}

template <class Anything>
Status run_beside_callers(Communicator& comm, const Anything& call, uint64_t timeout_ms) {
  comm.set_timeout(timeout_ms);
  comm.wait_beside_callers(true);
  const Status status = comm.run(call);
  comm.wait_beside_callers(false);
  return status;
}

/// Records the call in a capture. Each launch of the graph gives the call to the progress thread.
template <class Anything>
Status capture_staged(tutti_comm* handle, const Anything& call, DeviceStream stream, uint64_t timeout_ms) {
  const auto progress = progress_of(handle);
  TUTTI_TRY(progress.status());
  Communicator* comm = handle->comm.get();
  const auto replay = [comm, thread = *progress, timeout_ms](const StagedCall<Anything>& begun) {
    const Status pushed = contained([&] {
      return thread->push({.run =
                               [comm, begun, timeout_ms] {
                                 return run_beside_callers(
                                     *comm, std::span<const StagedCall<Anything>>(&begun, 1), timeout_ms);
                               },
                           .cancelled = {},
                           .streams = {}});
    });
    if (pushed) return;
    comm->fail_all(pushed);
    comm->staged()->release(begun);
  };
  return comm->staged()->capture(call, stream, replay);
}

/// A graph that holds a part of a call is of no use: other ranks would wait for the rest.
template <class Anything>
Status capture_all(tutti_comm* handle, std::span<const Anything> calls, DeviceStream stream,
                   uint64_t timeout_ms) {
  for (const Anything& call : calls) {
    const Status captured = contained([&] { return capture_staged(handle, call, stream, timeout_ms); });
    if (captured) continue;
    if (&call != &calls.front()) handle->comm->fail_all(captured);
    return captured;
  }
  return Status::ok();
}

/// Queues the copies of a call, or of its pieces, on a CUDA stream, and the call itself, on host memory, for
/// the progress thread. It runs after earlier staged calls, and after all other calls at once. If the stream
/// has the copies and the thread cannot have the call, all ranks get the error.
template <class Anything>
Status queue_staged(tutti_comm* handle, std::span<const Anything> calls, DeviceStream stream,
                    uint64_t timeout_ms) {
  const auto captured = handle->comm->staged()->is_captured(stream);
  TUTTI_TRY(captured.status());
  if (*captured) return capture_all(handle, calls, stream, timeout_ms);
  if (std::exchange(handle->has_host_tasks, false)) wait_for_queue(handle);
  const auto progress = progress_of(handle);
  TUTTI_TRY(progress.status());
  Communicator* comm = handle->comm.get();
  auto staged = comm->staged()->stage(calls, stream);
  TUTTI_TRY(staged.status());
  const StagedCall<Anything> last{.call = {}, .number = staged->back().number};
  Status pushed = contained([&] {
    return (*progress)->push({.run =
                                  [comm, staged = std::move(*staged), timeout_ms] {
                                    return run_beside_callers(
                                        *comm, std::span<const StagedCall<Anything>>(staged), timeout_ms);
                                  },
                              .cancelled = {},
                              .streams = {}});
  });
  if (!pushed) {
    comm->fail_all(pushed);
    wait_for_queue(handle);
    comm->staged()->release(last);
  }
  return pushed;
}

}  // namespace

Status enqueue(Work work) {
  tutti_comm* handle = work.handle;
  const auto progress = progress_of(handle);
  TUTTI_TRY(progress.status());
  handle->has_host_tasks = true;
  std::vector<std::shared_ptr<HostStream>> streams = {host_stream(work.stream)};
  for (const tutti_stream_t stream : work.other_streams) streams.push_back(host_stream(stream));
  Communicator* comm = handle->comm.get();
  return (*progress)->push(
      {.run =
           [comm, what = std::move(work.what), timeout_ms = work.timeout_ms] {
             return std::visit([&](const auto& call) { return run_beside_callers(*comm, call, timeout_ms); },
                               what);
           },
       .cancelled = [comm] { return comm->has_error(); },
       .streams = std::move(streams)});
}

DeviceStream device_stream(tutti_stream_t stream) {
  return {.internal = stream.kind != kCudaStream, .handle = stream.handle};
}

Status queue_on_device(const Work& work) {
  tutti_comm* handle = work.handle;
  const DeviceStream where = device_stream(work.stream);
  if (handle->comm->staged() != nullptr) {
    return std::visit(
        [&](const auto& call) { return queue_staged(handle, std::span(&call, 1), where, work.timeout_ms); },
        work.what);
  }
  Communicator& comm = take_turn(handle, work.timeout_ms);
  return std::visit([&](const auto& call) { return comm.issue(call, where); }, work.what);
}

Status queue_pieces(tutti_comm* handle, std::span<const Call> pieces, tutti_stream_t stream) {
  return queue_staged(handle, pieces, device_stream(stream), timeout_of(handle));
}

}  // namespace tutti
