// What stands behind a tutti_comm_t*, and the one way from C into the library and back.
#pragma once

#include <atomic>
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

/// What a caller holds of registered memory.
struct tutti_registered_memory {
  uint32_t number = 0;  ///< in its communicator
};

/// A communicator's handle; they are kept in a HandlePool.
struct tutti_comm {
  static constexpr uint64_t kLive = 0x7475747469636f6d;

  enum class State : uint32_t { kCreating, kReady, kFailed, kFinalized };

  std::atomic<uint64_t> magic{0};
  std::atomic<State> state{State::kCreating};
  std::unique_ptr<tutti::Communicator> comm;
  std::unique_ptr<tutti::ProgressThread> progress;
  bool has_host_tasks = false;    ///< progress may hold operations of host streams
  std::atomic<uint32_t> busy{0};  ///< the thread that uses the communicator is in a call: see CallGuard
  mutable std::atomic<uint32_t> holds{0};  ///< others that need it to stay: see HandleRef
  /// The last collective, as the caller said it: its arguments were found right and its plan is bound.
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
  /// Deadline of what is issued now (tutti_comm_set_timeout); 0: the config's.
  uint64_t timeout_ms = 0;
  tutti::Status setup_failure;
  std::thread setup;
  /// Of its own set-up, and, once it is ready, of that of a communicator that a call is making from it.
  std::unique_ptr<tutti::BootstrapStop> setup_stop;
  struct Premul {
    tutti::DataType type;
    uint64_t bits;
    const void* scalar = nullptr;  ///< in device memory: read by each operation; else in `bits`
  };
  std::map<int, Premul> premul_ops;
  int next_premul_op = TUTTI_OP_COUNT;
  std::map<tutti_registered_memory*, std::unique_ptr<tutti_registered_memory>> registrations;
};

/// A host stream's handle; they are kept in a HandlePool.
struct tutti_host_stream {
  static constexpr uint64_t kLive = 0x7475747469737472;
  std::atomic<uint64_t> magic{0};
  std::shared_ptr<tutti::HostStream> stream;
};

namespace tutti {

/// Keeps the text for tutti_last_error and gives the code.
tutti_result_t report(const Status& status) noexcept;

/// Runs the body of one exported function: catches everything, maps to a code, keeps the text.
template <class Body>
tutti_result_t guarded(Body&& body) noexcept {
  const Status status = contained(body);
  if (status.is_ok()) [[likely]]
    return TUTTI_SUCCESS;
  return report(status);
}

/// A fresh handle in state kCreating.
tutti_comm* acquire_handle();
/// The handle is dead from here on: no call enters any more. False when it was dead already.
bool close_handle(tutti_comm* handle);
/// Waits until the calls that were inside when the handle was closed have left.
void wait_until_left(const tutti_comm* handle);
/// Frees what is behind the handle, which nobody else uses.
void recycle_handle(tutti_comm* handle);

/// A fresh handle of a host stream.
tutti_host_stream* acquire_stream();
/// The handle is dead from here on. False when it was dead already.
bool close_stream(tutti_host_stream* handle);
/// For a handle that was closed, and whose stream is idle.
void recycle_stream(tutti_host_stream* handle);

/// That the handle, which may be null, names no communicator.
Status no_handle(const tutti_comm* handle);
/// Ok when the handle names a communicator that exists (in whatever state).
Status check_handle(const tutti_comm* handle);
/// Ok when there is a communicator to ask: ready or finalized, not in a forked child.
Status check_made(const tutti_comm* handle);
/// Ok when operations may be issued on it: made and not finalized.
Status check_ready(const tutti_comm* handle);

/// The thread that uses the communicator is in a call: while it lives, an abort by another thread waits
/// before it frees anything. On the short path, so it costs no more than a store: whoever closes the handle
/// makes this thread's stores visible from outside (process_barrier), and then either sees this call or was
/// seen by it. One at a time.
class CallGuard {
 public:
  explicit CallGuard(tutti_comm* handle) : handle_(begin(handle) ? handle : nullptr) {}
  /// Of a call that has begun.
  CallGuard(tutti_comm* handle, std::adopt_lock_t /*begun*/) : handle_(handle) {}
  ~CallGuard() {
    if (handle_ != nullptr) end(handle_);
  }
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;
  /// False: no_handle.
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

/// The same for any thread, and for any number of them.
class HandleRef {
 public:
  explicit HandleRef(const tutti_comm* handle);
  HandleRef(HandleRef&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  HandleRef& operator=(HandleRef&& other) = delete;
  ~HandleRef() { release(); }
  /// False: no_handle.
  explicit operator bool() const { return handle_ != nullptr; }
  void release() {
    if (handle_ != nullptr) std::exchange(handle_, nullptr)->holds.fetch_sub(1, std::memory_order_release);
  }

 private:
  const tutti_comm* handle_ = nullptr;
};

/// As `guarded`, for the body of an exported function about a communicator, which stays until it has
/// returned.
template <class Body>
tutti_result_t guarded_on(const tutti_comm* handle, Body&& body) noexcept {
  return guarded([&]() -> Status {
    const HandleRef hold(handle);
    return hold ? body() : no_handle(handle);
  });
}

/// What check_ready finds out, for the short path: inside CallGuard.
inline bool usable(const tutti_comm* handle) {
  return handle->state.load(std::memory_order_acquire) == tutti_comm::State::kReady &&
         handle->comm->process().is_original();
}

/// Makes an operator on a ready communicator: its scalar is read now, or, `by_place`, from where it is by the
/// device that runs each operation.
Status create_premul_sum(tutti_comm* handle, const void* scalar, tutti_type_t type, bool by_place,
                         tutti_op_t& op);

}  // namespace tutti
