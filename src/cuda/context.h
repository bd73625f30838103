// Context, Stream, Event: each owns one object of the driver.
//
// A Context is the device's primary context, which CUDA's runtime and all libraries of the process share. It
// must outlive all objects made in it. No call here leaves a context current: each sets the one it needs and
// restores the caller's.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "core/result.h"
#include "cuda/driver.h"
#include "cuda/spare_memory.h"

namespace tutti::cuda {

class Context {
 public:
  /// Retains the primary context of `device`; the first use in a process creates it (about 100 ms, 100 MB of
  /// device memory). Errors: kInvalidArgument (no such device), kOutOfMemory, kSystemError.
  static Result<std::unique_ptr<Context>> retain(const Driver& driver, int device);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  const Driver& driver() const { return driver_; }
  int device() const { return device_; }
  CUdevice ordinal() const { return ordinal_; }
  CUcontext handle() const { return handle_; }
  const DeviceFacts& facts() const { return facts_; }

  /// Lets kernels and copies of this context access the memory of `peer`'s device. Errors: kUnsupported: the
  /// two devices cannot access each other.
  Status enable_peer(const Context& peer) const;
  /// For a peer in another process. Ok also if this process does not see the peer's device. Errors:
  /// kUnsupported: the two devices cannot access each other.
  Status check_peer(const std::array<char, 16>& uuid) const;

  /// Runs one task on a stream that is kept for set-up, and waits. Any thread. `what`: the task's function.
  Status run_now(const char* what, const std::function<CUresult(CUstream)>& task) const;

  SpareMemory& spare_memory() const { return *spare_memory_; }

 private:
  Context(const Driver& driver, int device)
      : driver_(driver), device_(device), spare_memory_(std::make_unique<SpareMemory>(*this)) {}

  const Driver& driver_;
  const int device_;
  CUdevice ordinal_ = 0;
  CUcontext handle_ = nullptr;
  DeviceFacts facts_;
  std::unique_ptr<SpareMemory> spare_memory_;
  mutable std::mutex setup_;  ///< guards the stream
  mutable CUstream setup_stream_ = nullptr;
};

/// Makes a context current for a scope. After a failure, the driver's calls in the scope fail too; `status`
/// says why.
class CurrentContext {
 public:
  explicit CurrentContext(const Context& context);
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  ~CurrentContext();
  const Status& status() const { return status_; }

 private:
  const Driver& driver_;
  Status status_;
};

/// Allows, for a scope, calls that CUDA forbids beside another thread's capture lest they belong to it. The
/// library's never do.
class BesideCaptures {
 public:
  explicit BesideCaptures(const Driver& driver) : driver_(driver) {
    (void)driver_.thread_exchange_capture_mode(&mode_);
  }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;
  ~BesideCaptures() { (void)driver_.thread_exchange_capture_mode(&mode_); }

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

/// A stream that does not wait for the legacy default stream. Its work goes on after the destructor.
class Stream {
 public:
  /// Errors: kOutOfMemory, kSystemError.
  static Result<Stream> create(const Context& context);
  Stream() = default;
  Stream(Stream&& other) noexcept { *this = std::move(other); }
  Stream& operator=(Stream&& other) noexcept;
  ~Stream() { reset(); }

  CUstream handle() const { return handle_; }
  /// Waits until all work is done. Errors: a failure of that work.
  Status synchronize() const;
  void reset();

 private:
  const Context* context_ = nullptr;
  CUstream handle_ = nullptr;
};

/// An event that orders streams.
class Event {
 public:
  /// `timed`: also takes the time, which costs. Errors: kOutOfMemory, kSystemError.
  static Result<Event> create(const Context& context, bool timed = false);
  Event() = default;
  Event(Event&& other) noexcept { *this = std::move(other); }
  Event& operator=(Event&& other) noexcept;
  ~Event() { reset(); }

  CUevent handle() const { return handle_; }
  /// The event now stands for the work in `stream` so far.
  Status record(CUstream stream) const;
  /// Later work of `stream` waits for the event.
  Status make_wait(CUstream stream) const;
  /// Whether the event's work has ended. Errors: a failure of the device.
  Result<bool> is_done() const;
  /// Blocks the calling thread.
  Status synchronize() const;
  void reset();

 private:
  const Context* context_ = nullptr;
  CUevent handle_ = nullptr;
};

}  // namespace tutti::cuda
