// The object behind a tutti_comm_t*, and the only way from C into the library and back.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "api/stream.h"
#include "comm/communicator.h"
#include "core/result.h"
#include "tutti/tutti.h"

struct tutti_comm {
  static constexpr uint64_t kLive = 0x7475747469636f6d;

  enum class State : uint32_t { kCreating, kReady, kFailed, kFinalized };

  std::atomic<uint64_t> magic{0};
  std::atomic<State> state{State::kCreating};
  std::unique_ptr<tutti::Communicator> comm;
  std::unique_ptr<tutti::ProgressThread> progress;
  bool has_host_tasks = false;             ///< progress may hold operations of host streams
  std::atomic<uint32_t> busy{0};           ///< 1 while the communicator's thread is in a call: see CallGuard
  mutable std::atomic<uint32_t> holds{0};  ///< calls that need the handle to stay: see HandleRef
  /// The arguments of the last collective. They were valid, and its plan is bound.
  struct Repeat {
    bool valid = false;
    bool in_place = false;
    uint64_t collective_and_type = 0;
    uint64_t op_and_root = 0;
    uint64_t count = 0;
    uint64_t send_bytes = 0;  ///< 0: send is ignored
    uint64_t recv_bytes = 0;
    uint64_t send_place = 0;  ///< in place: send + recv_place == recv + send_place
    uint64_t recv_place = 0;
  };
  Repeat repeat;
  /// The last message of a direction, but for its buffer. Its arguments were valid.
  struct LastMessage {
    tutti::Message message;
    uint64_t count = UINT64_MAX;  ///< this many elements are never valid
    bool ran_alone = false;       ///< blocking, outside a group, between ranks in host memory
  };
  std::byte barrier_sends{};  ///< of a repeated barrier
  std::byte barrier_receives{};
  LastMessage last_send;
  LastMessage last_receive;
  /// Deadline of operations issued from now on (tutti_comm_set_timeout). 0: the deadline of the config.
  uint64_t timeout_ms = 0;
  tutti::Status setup_failure;
  std::thread setup;
  std::mutex setup_joining;  ///< held by the thread that joins `setup`
  /// Stops this communicator's set-up. Once the communicator is ready, stops the set-up of a communicator
  /// that a call makes from it.
  std::unique_ptr<tutti::BootstrapStop> setup_stop;
  struct Premul {
    tutti::DataType type;
    uint64_t bits;
    const void* scalar = nullptr;  ///< in device memory, read by each operation; null: use `bits`
  };
  std::map<int, Premul> premul_ops;
  int next_premul_op = TUTTI_OP_COUNT;
  /// By the caller's handle: the number of the registration in this communicator.
  std::map<tutti_registered_memory*, uint32_t> registrations;
};

struct tutti_host_stream {
  static constexpr uint64_t kLive = 0x7475747469737472;
  std::atomic<uint64_t> magic{0};
  std::shared_ptr<tutti::HostStream> stream;
};

namespace tutti {

/// Keeps the text of a failure for tutti_last_error and returns the code. kInProgress is no failure.
tutti_result_t report(const Status& status) noexcept;

/// Runs the body of one exported function: catches every exception, maps the status to a code, keeps the
/// text.
template <class Body>
tutti_result_t guarded(Body&& body) noexcept {
  const Status status = contained(body);
  if (status.is_ok()) [[likely]]
    return TUTTI_SUCCESS;
  return report(status);
}

tutti_comm* acquire_handle();
/// Closes the handle: no new call can enter. False when the handle was already closed.
bool close_handle(tutti_comm* handle);
/// Waits until all calls that entered before the handle was closed have returned.
void wait_until_left(const tutti_comm* handle);
/// Frees everything behind the handle. No other thread may use the handle.
void recycle_handle(tutti_comm* handle);

tutti_host_stream* acquire_stream();
/// Closes the handle. False when the handle was already closed.
bool close_stream(tutti_host_stream* handle);
/// Recycles a closed handle whose stream is idle.
void recycle_stream(tutti_host_stream* handle);

/// The error for a handle, possibly null, that names no communicator.
Status no_handle(const tutti_comm* handle);
/// Ok when the handle names a communicator, in any state.
Status check_handle(const tutti_comm* handle);
/// Ok when the communicator is ready or finalized, and this is not a forked child.
Status check_made(const tutti_comm* handle);
/// Ok when operations may be issued: ready and not finalized.
Status check_ready(const tutti_comm* handle);

/// Marks that the communicator's thread is in a call: an abort by another thread waits before it frees
/// anything. One guard at a time.
/// On the short path, so it costs one store and no barrier. The closing thread makes this thread's stores
/// visible (process_barrier). Then either the closing thread sees this call, or this call sees that the
/// handle is closed.
class CallGuard {
 public:
  explicit CallGuard(tutti_comm* handle) : handle_(begin(handle) ? handle : nullptr) {}
  /// Adopts a call that `begin` has marked.
  CallGuard(tutti_comm* handle, std::adopt_lock_t /*begun*/) : handle_(handle) {}
  ~CallGuard() {
    if (handle_ != nullptr) end(handle_);
  }
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;
  /// False: return no_handle.
  explicit operator bool() const { return handle_ != nullptr; }

  static bool begin(tutti_comm* handle) {
    if (!is_live(handle)) return false;
    handle->busy.store(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (is_live(handle)) [[likely]]
      return true;
    end(handle);
    return false;
  }
  static void end(tutti_comm* handle) { handle->busy.store(0, std::memory_order_release); }

 private:
  static bool is_live(const tutti_comm* handle) {
    return handle != nullptr && handle->magic.load(std::memory_order_relaxed) == tutti_comm::kLive;
  }

  tutti_comm* handle_;
};

/// Keeps the handle like CallGuard, but in any thread and any number of times.
class HandleRef {
 public:
  explicit HandleRef(const tutti_comm* handle);
  HandleRef(HandleRef&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  HandleRef& operator=(HandleRef&& other) = delete;
  ~HandleRef() { release(); }
  /// False: return no_handle.
  explicit operator bool() const { return handle_ != nullptr; }
  void release() {
    if (handle_ != nullptr) std::exchange(handle_, nullptr)->holds.fetch_sub(1, std::memory_order_release);
  }

 private:
  const tutti_comm* handle_ = nullptr;
};

/// Like `guarded`, for a function about a communicator. The communicator stays until the body returns.
template <class Body>
tutti_result_t guarded_on(const tutti_comm* handle, Body&& body) noexcept {
  return guarded([&]() -> Status {
    const HandleRef hold(handle);
    return hold ? body() : no_handle(handle);
  });
}

/// check_ready for the short path, inside a CallGuard.
inline bool usable(const tutti_comm* handle) {
  return handle->state.load(std::memory_order_acquire) == tutti_comm::State::kReady &&
         handle->comm->process().is_original();
}

/// Makes an operator on a ready communicator. Reads the scalar now. With `by_place`, the device reads the
/// scalar at its address in each operation.
Status create_premul_sum(tutti_comm* handle, const void* scalar, tutti_type_t type, bool by_place,
                         tutti_op_t& op);

}  // namespace tutti
