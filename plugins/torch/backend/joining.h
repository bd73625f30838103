// How the ranks of a group join: rank 0 puts the id of their communicator into the store. A rank may wait for
// the other ranks as long as the group's timeout lasts. Another thread can end the wait.
#pragma once

#include <tutti/tutti.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tutti_torch {

struct GroupOptions;

// tutti refuses longer deadlines.
constexpr std::chrono::milliseconds kLongestDeadline = std::chrono::hours(24 * 365);

/// Ends the joins of a group, for good.
class JoinStop {
 public:
  /// Any thread: the join under way fails soon, and later joins fail at once.
  void stop();
  /// Blocks for `time`, or until stop(). Errors: stop() was called.
  void pause(std::chrono::milliseconds time);
  /// Errors: stop() was called.
  void check() { pause(std::chrono::milliseconds(0)); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopped_ = false;
};

/// Where ranks meet: at a key of a store.
struct Meeting {
  c10d::Store& store;
  const char* key;
  int rank;
  int size;
};

struct Joined {
  tutti_comm_t* comm;
  std::string name;  ///< of this instance of the group: equal on all ranks, and never used again
};

/// Deletes the key, if the store can.
void forget(c10d::Store& store, const std::string& key);

/// Blocks until all ranks have come, at most for the group's timeout. `device` as in tutti_config_t. `stop`
/// may be null: then nobody ends the wait. The caller owns the communicator.
Joined join_ranks(const Meeting& meeting, const GroupOptions& options, int device, JoinStop* stop);

}  // namespace tutti_torch
