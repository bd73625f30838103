// CUDA tensors: the group's communicator on a device, the stream of its asynchronous calls, and their works.
//
// A call that the program waits for (async_op=False) is issued on the current stream. Other calls run on a
// stream of their own, after the current stream's work, so that they overlap with what the program issues
// next. Everything here goes through torch's device interface and the driver: the backend is compiled without
// CUDA's headers, and is the same for a torch without CUDA.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <deque>
#include <thread>

#include "work.h"

namespace tutti_torch {

/// Issues a call of tutti: (communicator, stream) -> result.
using Call = std::function<tutti_result_t(tutti_comm_t*, tutti_stream_t)>;
/// The Call of a work that stands for other works.
inline tutti_result_t no_call(tutti_comm_t* /*comm*/, tutti_stream_t /*stream*/) {
  return TUTTI_SUCCESS;
}

/// A call on a CUDA stream. `wait` makes the current stream wait and returns at once; with a deadline it
/// blocks. A thread of DeviceSide completes the work when the stream has passed the call.
class StreamWork : public Work {
 public:
  StreamWork(at::Device device, int rank, Description what, uint64_t sequence,
             std::shared_ptr<Observers> observers)
      : Work(rank, std::move(what), sequence, std::move(observers)), device_(device) {}

  at::Device device() const { return device_; }
  bool wait(std::chrono::milliseconds timeout) override;
  bool isCompleted() override;
  /// The tensors: legal to use on a stream that waits for the work.
  Tensors result() override { return outputs(); }
  /// Complete at once. Its callbacks run on streams that wait for the call.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  /// The program's thread waits too, as it does for a barrier.
  void block_program() { blocks_program_ = true; }

 private:
  friend class DeviceSide;
  /// The call is on the stream, and the stream is the current one.
  void passes(const c10::Stream& stream, std::function<std::exception_ptr()> failure);
  bool has_passed() const { return end_->query(); }

  const at::Device device_;
  std::optional<c10::Stream> stream_;
  std::optional<c10::Event> end_;  ///< of the call on the stream
  std::function<std::exception_ptr()> failure_now_;
  c10::intrusive_ptr<c10::ivalue::Future> stream_future_;  ///< made on demand
  bool blocks_program_ = false;
};

struct DeviceCall {
  c10::intrusive_ptr<StreamWork> work;
  Call call;
};

class DeviceSide {
 public:
  /// Owns the communicator, whose rank is on the device.
  DeviceSide(tutti_comm_t* comm, at::Device device);
  ~DeviceSide() { leave(false); }

  at::Device device() const { return device_; }
  tutti_comm_t* usable() const;
  /// Issues the calls together. One thread at a time.
  void issue(const std::vector<DeviceCall>& calls, bool is_async);
  /// Blocks until all works are complete.
  void drain();
  tutti_result_t state() const;
  void abort();
  /// Destroys the communicator, once its works are complete. Without `waits` works that are not complete are
  /// aborted.
  void leave(bool waits);

 private:
  struct Shared;
  static void watch(const std::shared_ptr<Shared>& shared);

  const at::Device device_;
  std::optional<c10::Stream> stream_;  ///< of asynchronous calls
  std::chrono::milliseconds deadline_set_{0};
  std::shared_ptr<Shared> shared_;
  std::thread watcher_;
};

}  // namespace tutti_torch
