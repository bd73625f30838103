// What stands behind a tutti_comm_t*, and the one way from C into the library and back.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <thread>

#include "api/stream.h"
#include "comm/communicator.h"
#include "core/result.h"
#include "tutti/tutti.h"

/// A communicator's handle; they are kept in a HandlePool.
struct tutti_comm {
  static constexpr uint64_t kLive = 0x7475747469636f6d;

  enum class State : uint32_t { kCreating, kReady, kFailed, kFinalized };

  std::atomic<uint64_t> magic{0};
  std::atomic<State> state{State::kCreating};
  std::unique_ptr<tutti::Communicator> comm;
  std::unique_ptr<tutti::ProgressThread> progress;
  bool has_host_tasks = false;      ///< progress may hold operations of host streams
  std::atomic<uint32_t> busy{0};    ///< a blocking call is inside
  std::atomic<uint32_t> makers{0};  ///< calls inside that make a communicator from this one
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
  std::unique_ptr<tutti::SetUpStop> setup_stop;
  struct Premul {
    tutti::DataType type;
    uint64_t bits;
    const void* place = nullptr;  ///< in device memory: read by each operation; else in `bits`
  };
  std::map<int, Premul> premul_ops;
  int next_premul_op = TUTTI_OP_COUNT;
  std::map<void*, std::unique_ptr<char>> registrations;
};

struct tutti_host_stream {
  static constexpr uint64_t kLive = 0x7475747469737472;
  std::atomic<uint64_t> magic{kLive};
  std::shared_ptr<tutti::HostStream> stream = std::make_shared<tutti::HostStream>();
};

namespace tutti {

/// Keeps the text for tutti_last_error and gives the code.
tutti_result_t report(const Status& status) noexcept;

/// Runs the body of one exported function: catches everything, maps to a code, keeps the text.
template <class Body>
tutti_result_t guarded(Body&& body) noexcept {
  try {
    const Status status = body();
    if (status.is_ok()) [[likely]]
      return TUTTI_SUCCESS;
    return report(status);
  } catch (const std::bad_alloc&) {
    return report({Code::kOutOfMemory, "out of memory"});
  } catch (const std::exception& error) {
    return report({Code::kInternal, error.what()});
  } catch (...) {
    return report({Code::kInternal, "unknown exception"});
  }
}

/// A fresh handle in state kCreating.
tutti_comm* acquire_handle();
/// The handle is dead from here on.
void recycle_handle(tutti_comm* handle);

/// Ok when the handle names a communicator that exists (in whatever state).
Status check_handle(const tutti_comm* handle);
/// Ok when there is a communicator to ask: ready or finalized, not in a forked child.
Status check_made(const tutti_comm* handle);
/// Ok when operations may be issued on it: made and not finalized.
Status check_ready(const tutti_comm* handle);

/// What check_ready finds out, for the short path.
inline bool usable(const tutti_comm* handle) {
  return handle != nullptr && handle->magic.load(std::memory_order_relaxed) == tutti_comm::kLive &&
         handle->state.load(std::memory_order_acquire) == tutti_comm::State::kReady &&
         handle->comm->process().is_original();
}

inline Status null_argument(const char* name) {
  return {Code::kInvalidArgument, format("argument %s is NULL", name)};
}

}  // namespace tutti
