// ShrinkProtocol: how the remaining ranks agree on the next communicator after a loss.
//
// Each rank shows on its status page that it has come. When all live ranks that are not excluded have come,
// the lowest one publishes its decision: the members and a new unique id. The others follow it, or the next
// rank's if it dies. If a member is lost during the bootstrap, the ranks agree again. A rank with a ready
// communicator agrees again too, until all live ranks have it (shrink_state.h,
// docs/decisions/0016-shrink.md).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/stop.h"
#include "bootstrap/unique_id.h"
#include "comm/members.h"
#include "comm/shrink_state.h"
#include "core/result.h"
#include "health/peers.h"

namespace tutti {

/// One thread, outside operations, unless stated.
class ShrinkProtocol {
 public:
  /// Makes the next id, served by this process.
  using MakeId = std::function<Result<UniqueId>()>;

  /// `peers` outlives the protocol.
  ShrinkProtocol(const Peers& peers, MakeId make_id) : peers_(peers), make_id_(std::move(make_id)) {}

  /// Call it before the first agree_on_members. Waits for ranks that are still leaving the previous shrink
  /// and must see this rank there. Errors: kTimeout, kAborted (stop).
  Status begin(uint64_t deadline_ns);
  /// Agrees with all live ranks that are not `excluded` (by rank). Members: join the next communicator with
  /// them now. Empty: all take the communicator that this rank holds. Errors: kTimeout, with the missing
  /// ranks; kMismatch (a rank excludes others); kAborted (stop); kSystemError, also if a live member of the
  /// last agreement has given up.
  Result<std::optional<Members>> agree_on_members(const std::vector<bool>& excluded, uint64_t deadline_ns);
  /// This rank has the communicator of `id` ready, and holds it until the shrink ends or it holds another.
  void hold_next(const UniqueId& id);
  /// Calls `stop` when a member is lost. Null: stops watching. False if one is lost already or the shrink was
  /// stopped.
  bool watch_members(const Members* members, BootstrapStop* stop);
  /// Whether this rank may follow. Errors: kMismatch (another rank excludes others), kInvalidUsage (this rank
  /// is excluded).
  Status check_members(const Members& members, const std::vector<bool>& excluded) const;
  /// Refuses the agreement of `id`, and tells all ranks.
  void refuse(const UniqueId& id);
  /// Gives up what this rank holds. Ranks that followed the same agreement learn not to wait.
  void give_up(const Status& why);
  /// The communicator is aborted: ends the shrink of another thread, now or later. Any thread.
  void stop();
  /// Whether the other ranks have given this one up, because it was stopped or cut off. Final.
  bool is_given_up() const { return peers_.presence(peers_.rank()) != StatusPage::kHere; }
  bool is_stopped() const { return stopped_.load(std::memory_order_acquire); }
  /// The control thread calls this.
  void member_lost(uint32_t rank);

 private:
  void show(ShrinkState::Phase phase) const;
  std::optional<ShrinkState> see(uint32_t rank);
  ShrinkStep next_step(const std::vector<uint32_t>& ranks);
  void forget_snapshots();
  void publish(const Members& members) const;
  void withdraw_decision() const;
  Result<std::optional<Members>> find_decision(uint32_t leader) const;
  Result<std::optional<Members>> decide(const std::vector<uint32_t>& ranks) const;
  std::string absent_of(const std::vector<uint32_t>& ranks) const;
  Status pause(uint64_t deadline_ns, const std::string& absent) const;
  Status find_refusal(const UniqueId& id) const;

  const Peers& peers_;
  MakeId make_id_;
  uint64_t held_ = 0;              ///< ShrinkState::held
  std::optional<UniqueId> tried_;  ///< last decision followed, in this shrink or before
  bool follows_ = false;           ///< as a member, in this shrink
  /// State of each other rank since this rank began to agree. From another host it comes with the answer
  /// numbered in awaited_ (0: not asked yet).
  std::vector<std::optional<ShrinkState>> seen_;
  std::vector<uint64_t> awaited_;

  std::atomic<bool> stopped_{false};
  std::mutex members_mutex_;
  const Members* members_ = nullptr;  ///< a loss stops members_stop_; guarded by members_mutex_
  BootstrapStop* members_stop_ = nullptr;
};

}  // namespace tutti
