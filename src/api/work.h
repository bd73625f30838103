// Work: one checked call on its way, and the ways that it can take: at once, by the communicator's progress
// thread, or onto a CUDA stream.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "api/handle.h"
#include "device/device_rank.h"
#include "engine/call.h"

namespace tutti {

/// tutti_stream_t::kind.
inline constexpr uint32_t kHostStream = 1;
inline constexpr uint32_t kCudaStream = 2;

/// One thing to run on a communicator.
struct Work {
  tutti_comm* handle = nullptr;
  tutti_stream_t stream{};
  std::vector<tutti_stream_t> other_streams =
      {};  ///< where it waits for its turn too, if it is on a host stream
  std::variant<Call, MessageCall> what;
  uint64_t timeout_ms = 0;
};

/// Whether the progress thread has something to do.
inline bool has_queue(const tutti_comm* handle) {
  return handle->progress != nullptr && handle->progress->pending() != 0;
}
/// Operations of a communicator run in issue order: what else uses it waits for its progress thread to be
/// done. The caller has marked itself (CallGuard, HandleRef): an abort ends the wait.
inline void wait_for_queue(const tutti_comm* handle) {
  if (has_queue(handle)) handle->progress->wait_idle();
}
/// The communicator for an operation of the calling thread, of that deadline. As wait_for_queue.
inline Communicator& take_turn(tutti_comm* handle, uint64_t timeout_ms) {
  wait_for_queue(handle);
  handle->comm->set_timeout(timeout_ms);
  return *handle->comm;
}
/// Deadline of an operation that is issued now.
inline uint64_t timeout_of(const tutti_comm* handle) {
  return handle->timeout_ms > 0 ? handle->timeout_ms : handle->comm->options().timeout_ms;
}
/// For an operation that is issued now.
inline Communicator& take_turn(tutti_comm* handle) {
  return take_turn(handle, timeout_of(handle));
}
/// For the communicator's progress thread, on a host stream. Errors: kSystemError (there can be no thread),
/// kOutOfMemory; nothing has been queued then.
Status enqueue(Work work);
/// Queues it on a CUDA stream, behind what the communicator's progress thread has.
Status queue_on_device(const Work& work);
/// What a rank on a device is told of the stream; a blocking call has none.
DeviceStream device_stream(tutti_stream_t stream);

}  // namespace tutti
