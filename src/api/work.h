// Work: one checked call on its way, and the ways that it can take: at once, by the communicator's progress
// thread, or onto a CUDA stream.
#pragma once

#include <cstdint>
#include <variant>

#include "api/handle.h"
#include "comm/call.h"
#include "comm/device_rank.h"

namespace tutti {

/// tutti_stream_t::kind of a CUDA stream.
inline constexpr uint32_t kCudaStream = 2;

/// One thing to run on a communicator.
struct Work {
  tutti_comm* handle = nullptr;
  tutti_stream_t stream{};
  std::variant<Call, MessageCall> what;
  uint64_t timeout_ms = 0;
};

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
inline void wait_for_queue(tutti_comm* handle) {
  if (handle->progress != nullptr && handle->progress->pending() != 0) handle->progress->wait_idle();
}
/// For the communicator's progress thread, on a host stream.
void enqueue(Work work);
/// Queues it on a CUDA stream, behind what the communicator's progress thread has.
Status queue_on_device(const Work& work);
/// What a rank on a device is told of the stream; a blocking call has none.
DeviceStream device_stream(tutti_stream_t stream);

}  // namespace tutti
