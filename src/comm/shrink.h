// ShrinkProtocol: going on without the lost: how the ranks that are left agree on the next communicator.
//
// Each says on its status page that it has come. The lowest rank that lives decides, once all that live and
// are not excluded have come, and publishes who they are and a new unique id. The other ranks follow the
// decision, or that of the next rank when the lowest one dies. A member that is lost while they meet ends
// that meeting, and they agree anew. A rank that has the new communicator ready agrees as well, until all
// that live turn out to have it (shrink_state.h, docs/decisions/0016-shrink.md).
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

/// Beside operations, by one thread, but where a function says otherwise.
class ShrinkProtocol {
 public:
  /// Makes the id of a next communicator; served from this process.
  using MakeId = std::function<Result<UniqueId>()>;

  /// `peers` outlives the protocol.
  ShrinkProtocol(const Peers& peers, MakeId make_id) : peers_(peers), make_id_(std::move(make_id)) {}

  /// Before the first agree_on_members. Waits for ranks that are on their way out of the shrink before, and
  /// need to see that this one is. Errors: kTimeout, kAborted (stop).
  Status begin(uint64_t deadline_ns);
  /// Waits until all ranks that live and are not `excluded` (by rank) have come here too, and agrees with
  /// them: on who makes up the next communicator, which they are to meet in now; or, no members, that the one
  /// which this rank holds is the next communicator of all. Errors: kTimeout naming who has not come,
  /// kMismatch (a rank excludes others), kAborted (stop), kSystemError (also: a member of the last agreement
  /// that lives has given up).
  Result<std::optional<Members>> agree_on_members(const std::vector<bool>& excluded, uint64_t deadline_ns);
  /// This rank has the communicator ready that is met under `id`, in place of any that it held before, and
  /// keeps it until the shrink ends or it holds another.
  void hold_next(const UniqueId& id);
  /// From now on `stop` is called when one of the members is lost; null: no more. False when one is lost
  /// already, or the shrink was stopped.
  bool watch_members(const Members* members, BootstrapStop* stop);
  /// Whether this rank may follow that agreement. Errors: kMismatch (another rank excludes others),
  /// kInvalidUsage (it excludes this rank).
  Status check_members(const Members& members, const std::vector<bool>& excluded) const;
  /// Tells all ranks that this one does not follow the agreement of that id.
  void refuse(const UniqueId& id);
  /// This rank gives up, and what it holds, because of `why`. Ranks that have followed the same agreement are
  /// told not to wait for it.
  void give_up(const Status& why);
  /// Ends a shrink that another thread is in, now or later: the communicator is aborted. Any thread.
  void stop();
  /// Whether other ranks have given this one up, for it was stopped or cut off: there is no way back.
  bool is_given_up() const { return peers_.presence(peers_.rank()) != StatusPage::kHere; }
  bool is_stopped() const { return stopped_.load(std::memory_order_acquire); }
  /// A rank of the communicator is lost. On the control thread.
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
  std::optional<UniqueId> tried_;  ///< the last decision that was followed, in this shrink or before
  bool follows_ = false;           ///< `tried_`, in this shrink, as one of its members
  /// What this rank knows of the others, as they were at a moment since it began to agree. Of a rank on
  /// another host it comes with the answer of the number in awaited_; 0: not asked yet.
  std::vector<std::optional<ShrinkState>> seen_;
  std::vector<uint64_t> awaited_;

  std::atomic<bool> stopped_{false};
  std::mutex members_mutex_;
  const Members* members_ = nullptr;       ///< whose loss stops members_stop_; guarded by members_mutex_
  BootstrapStop* members_stop_ = nullptr;  ///< as members_
};

}  // namespace tutti
