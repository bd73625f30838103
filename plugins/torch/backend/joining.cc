#include "joining.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "backend.h"

namespace tutti_torch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How often a join that can be stopped looks whether its communicator is there.
constexpr milliseconds kLookAgain{1};
// The longest pause between two looks into the store.
constexpr milliseconds kLookIntoStore{50};

/// Waits for the key of rank 0. Looks again and again: nobody can end a wait inside the store, and torch's
/// TCP store writes a warning for each wait whose time is over. Errors: those of the store; the timeout; the
/// stop.
void wait_for_key(const Meeting& meeting, milliseconds timeout, JoinStop& stop) {
  const auto deadline = Clock::now() + timeout;
  auto pause = kLookAgain;
  while (!meeting.store.check({meeting.key})) {
    if (Clock::now() >= deadline)
      std::rethrow_exception(error_of(TUTTI_TIMEOUT, "rank 0 of the group has not come", timeout));
    stop.pause(pause);
    pause = std::min(2 * pause, kLookIntoStore);
  }
}

/// The id of the communicator: rank 0 puts it into the store.
tutti_unique_id_t share_id(const Meeting& meeting, milliseconds timeout, JoinStop* stop) {
  auto& [store, key, rank, size] = meeting;
  tutti_unique_id_t id;
  if (rank == 0) {
    throw_on(tutti_get_unique_id(&id));
    if (size > 1) store.set(key, std::vector<uint8_t>(id.bytes, id.bytes + sizeof(id.bytes)));
    return id;
  }
  if (stop != nullptr) {
    wait_for_key(meeting, timeout, *stop);
  } else {
    store.wait({key}, timeout);
  }
  const auto value = store.get(key);
  TORCH_CHECK(value.size() == sizeof(id.bytes), "tutti: the store holds ", value.size(), " bytes under ", key,
              " instead of an id");
  std::copy(value.begin(), value.end(), id.bytes);
  return id;
}

/// Waits until the communicator has been created, or could not be.
tutti_result_t wait_for_creation(tutti_comm_t* comm, JoinStop& stop) {
  for (;;) {
    tutti_result_t state = TUTTI_SUCCESS;
    const tutti_result_t asked = tutti_comm_async_error(comm, &state);
    if (asked != TUTTI_SUCCESS) return asked;
    if (state != TUTTI_IN_PROGRESS) return state;
    stop.pause(kLookAgain);
  }
}

struct Abort {
  void operator()(tutti_comm_t* comm) const { (void)tutti_comm_abort(comm); }
};

}  // namespace

void JoinStop::stop() {
  const std::scoped_lock lock(mutex_);
  is_stopped_ = true;
  changed_.notify_all();
}

void JoinStop::pause(milliseconds time) {
  std::unique_lock lock(mutex_);
  const bool is_stopped = changed_.wait_for(lock, time, [&] { return is_stopped_; });
  TORCH_CHECK(!is_stopped, kGroupHasEnded);
}

tutti_comm_t* join_ranks(const Meeting& meeting, const GroupOptions& options, int device, JoinStop* stop) {
  const auto timeout = std::clamp(options.timeout, milliseconds(1), kLongestDeadline);
  const tutti_unique_id_t id = share_id(meeting, timeout, stop);
  tutti_config_t config = TUTTI_CONFIG_INIT;
  config.device = device;
  config.nonblocking = stop != nullptr ? 1 : 0;
  config.reproducible = options.reproducible ? 1 : 0;
  config.threads = options.threads;
  config.timeout_ms = static_cast<uint64_t>(timeout.count());
  config.setup_timeout_ms = config.timeout_ms;
  tutti_comm_t* created = nullptr;
  tutti_result_t result = tutti_comm_create(&created, meeting.size, id, meeting.rank, &config);
  std::unique_ptr<tutti_comm_t, Abort> comm(created);
  if (result == TUTTI_IN_PROGRESS) result = wait_for_creation(created, *stop);
  throw_on(result, timeout);
  if (meeting.rank == 0 && meeting.size > 1) {
    try {
      meeting.store.deleteKey(meeting.key);  // all ranks have the id; a later group may have the same name
    } catch (const std::exception&) {
      // A store that cannot delete keys.
    }
  }
  return comm.release();
}

}  // namespace tutti_torch
