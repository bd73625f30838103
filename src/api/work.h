// Work: one checked call, and the ways to run it: at once, by the communicator's progress thread, or on a
// CUDA stream.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "api/handle.h"
#include "device/device_rank.h"
#include "engine/call.h"

namespace tutti {

/// Values of tutti_stream_t::kind.
inline constexpr uint32_t kHostStream = 1;
inline constexpr uint32_t kCudaStream = 2;

struct Work {
  tutti_comm* handle = nullptr;
  tutti_stream_t stream{};
  std::vector<tutti_stream_t> other_streams =
      {};  ///< where it waits for its turn too, if it is on a host stream
  std::variant<Call, MessageCall> what;
  uint64_t timeout_ms = 0;
};

inline bool has_queue(const tutti_comm* handle) {
  return handle->progress != nullptr && handle->progress->pending() != 0;
}
/// A communicator's operations run in issue order, so a new use of it waits for its progress thread. The
/// caller holds a CallGuard or HandleRef. An abort ends the wait.
inline void wait_for_queue(const tutti_comm* handle) {
  if (has_queue(handle)) handle->progress->wait_idle();
}
/// Waits as wait_for_queue. Returns the communicator, set to the deadline of an operation of the calling
/// thread.
inline Communicator& take_turn(tutti_comm* handle, uint64_t timeout_ms) {
  wait_for_queue(handle);
  handle->comm->set_timeout(timeout_ms);
  return *handle->comm;
}
inline uint64_t timeout_of(const tutti_comm* handle) {
  return handle->timeout_ms > 0 ? handle->timeout_ms : handle->comm->options().timeout_ms;
}
/// The same, with the deadline of an operation that is issued now.
inline Communicator& take_turn(tutti_comm* handle) {
  return take_turn(handle, timeout_of(handle));
}
/// Queues work on a host stream, for the communicator's progress thread. Errors, after which nothing is
/// queued: kSystemError (no thread can start), kOutOfMemory.
Status enqueue(Work work);
/// Queues work on a CUDA stream, after the operations of the communicator's progress thread.
Status queue_on_device(const Work& work);
/// The same for all pieces of a call that passes through host memory: all of them, or none.
Status queue_pieces(tutti_comm* handle, std::span<const Call> pieces, tutti_stream_t stream);
/// The stream in the form that the device executor takes. A blocking call has none.
DeviceStream device_stream(tutti_stream_t stream);

}  // namespace tutti
