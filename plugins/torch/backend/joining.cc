#include "joining.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <set>
#include <thread>

#include "backend.h"

namespace tutti_torch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How often a join that can be stopped looks whether its communicator is there.
constexpr milliseconds kLookAgain{1};
// The longest pause between two looks into the store.
constexpr milliseconds kLookIntoStore{50};

/// The ids with which ranks of this process have joined. A later group of the same name may find an old id,
/// because rank 0 deletes the id only when its own communicator is there.
class UsedIds {
 public:
  static UsedIds& all() {
    static auto* const used = new UsedIds;  // outlives everything
    return *used;
  }
  /// Returns whether the id is new to the rank.
  bool add(int rank, const std::string& name) {
    const std::scoped_lock lock(mutex_);
    return used_.emplace(rank, name).second;
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<int, std::string>> used_;
};

/// A short name for an id, which is random. FNV-1a.
std::string name_of(const tutti_unique_id_t& id) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : id.bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return std::to_string(hash);
}

/// Rank 0 deletes its id in the end: all ranks have the id, or the join has failed.
class Deleter {
 public:
  explicit Deleter(const Meeting& meeting) : meeting_(meeting) {}
  ~Deleter() {
    if (meeting_.rank == 0 && meeting_.size > 1) forget(meeting_.store, meeting_.key);
  }
  Deleter(const Deleter&) = delete;
  Deleter& operator=(const Deleter&) = delete;

 private:
  const Meeting& meeting_;
};

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
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    if (stop != nullptr) {
      wait_for_key(meeting, timeout, *stop);
    } else {
      store.wait({key}, timeout);
    }
    const auto value = store.get(key);
    if (!value.empty()) {  // else torch's TCP store has lost the key since the wait: rank 0 deleted an old id
      TORCH_CHECK(value.size() == sizeof(id.bytes), "tutti: the store holds ", value.size(), " bytes under ",
                  key, " instead of an id");
      std::copy(value.begin(), value.end(), id.bytes);
      if (UsedIds::all().add(rank, name_of(id))) return id;
    }
    if (Clock::now() >= deadline)
      std::rethrow_exception(error_of(TUTTI_TIMEOUT, "rank 0 of the group has not come again", timeout));
    if (stop != nullptr) {
      stop->pause(kLookAgain);
    } else {
      std::this_thread::sleep_for(kLookAgain);
    }
  }
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

void forget(c10d::Store& store, const std::string& key) {
  try {
    store.deleteKey(key);
  } catch (const std::exception&) {
    // A store that cannot delete keys, or has gone: nothing depends on it.
  }
}

Joined join_ranks(const Meeting& meeting, const GroupOptions& options, int device, JoinStop* stop) {
  const auto timeout = std::clamp(options.timeout, milliseconds(1), kLongestDeadline);
  const Deleter deleter(meeting);
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
  return {.comm = comm.release(), .name = name_of(id)};
}

}  // namespace tutti_torch
