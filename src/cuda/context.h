// Context, Stream, Event: what a rank holds of its device, each the owner of one thing of the driver's.
//
// A Context is the device's primary context, which CUDA's runtime and every library of the process share. All
// that is made in it keeps a pointer to the Context, which must outlive it. Nothing here leaves a context
// current: a call that needs one makes it current for itself, and so leaves the caller's alone.
#pragma once

#include <memory>
#include <utility>

#include "core/result.h"
#include "cuda/driver.h"

namespace tutti::cuda {

class Context {
 public:
  /// Retains the primary context of `device`, which makes it if this process has not used the device yet
  /// (some 100 ms, some 100 MB of its memory). Errors: kInvalidArgument (no such device), kOutOfMemory,
  /// kSystemError.
  static Result<std::unique_ptr<Context>> retain(const Driver& driver, int device);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  const Driver& driver() const { return driver_; }
  int device() const { return device_; }
  CUdevice ordinal() const { return ordinal_; }
  CUcontext handle() const { return handle_; }
  const DeviceFacts& facts() const { return facts_; }

  /// Lets kernels and copies of this context reach memory of `peer`'s device; ok if they do already.
  /// Errors: kUnsupported: the two devices have no access to each other.
  Status enable_peer(const Context& peer) const;

 private:
  Context(const Driver& driver, int device) : driver_(driver), device_(device) {}

  const Driver& driver_;
  const int device_;
  CUdevice ordinal_ = 0;
  CUcontext handle_ = nullptr;
  DeviceFacts facts_;
};

/// Makes a context current for a scope. Where that fails, so do the driver's calls in the scope: `status`
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

/// Lets the thread make, for a scope, calls that CUDA forbids beside somebody's capture because they might
/// belong into it; ours do not.
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

/// A stream that does not wait for the legacy default stream. Destroying it lets its work finish by itself.
class Stream {
 public:
  /// Errors: kOutOfMemory, kSystemError.
  static Result<Stream> create(const Context& context);
  Stream() = default;
  Stream(Stream&& other) noexcept { *this = std::move(other); }
  Stream& operator=(Stream&& other) noexcept;
  ~Stream() { reset(); }

  CUstream handle() const { return handle_; }
  /// Waits until all work is done. Errors: what failed in it.
  Status synchronize() const;
  void reset();

 private:
  const Context* context_ = nullptr;
  CUstream handle_ = nullptr;
};

/// An event that orders streams.
class Event {
 public:
  /// With `timed` it also takes the time, which costs. Errors: kOutOfMemory, kSystemError.
  static Result<Event> create(const Context& context, bool timed = false);
  Event() = default;
  Event(Event&& other) noexcept { *this = std::move(other); }
  Event& operator=(Event&& other) noexcept;
  ~Event() { reset(); }

  CUevent handle() const { return handle_; }
  /// Stands for the work that `stream` has been given so far.
  Status record(CUstream stream) const;
  /// What `stream` is given from now on waits for the event.
  Status make_wait(CUstream stream) const;
  /// Whether the work that it stands for has ended. Errors: what failed on the device.
  Result<bool> is_done() const;
  /// Blocks the calling thread.
  Status synchronize() const;
  void reset();

 private:
  const Context* context_ = nullptr;
  CUevent handle_ = nullptr;
};

}  // namespace tutti::cuda
