// Going on without the lost: how the ranks that are left agree on the next communicator.
//
// Each says on its status page that it has come. The lowest rank that lives decides, once all that live and
// are not excluded have come, and publishes who they are and a new unique id; the others follow it, or, when
// it dies, the next one. A member that is lost while they meet ends that meeting, and they agree anew.
#include <algorithm>
#include <ctime>
#include <string>

#include "comm/communicator.h"
#include "core/clock.h"

namespace tutti {
namespace {

// Between two looks at who has come.
constexpr long kLookNs = 50'000;

}  // namespace

Result<Members> Communicator::agree_on_members(const std::vector<bool>& excluded,
                                               const std::optional<UniqueId>& tried, uint64_t deadline_ns) {
  header_->status.in_shrink.store(1, std::memory_order_release);
  shrink_answers_.assign(rank_count_, UINT64_MAX);
  for (;;) {
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < rank_count_; ++rank) {
      if (rank == rank_ || (!excluded[rank] && presence(rank) == StatusPage::kHere)) ranks.push_back(rank);
    }
    std::string absent;
    if (ranks[0] == rank_) {
      for (const uint32_t rank : ranks) {
        if (rank != rank_ && !is_in_shrink(rank))
          absent += (absent.empty() ? "" : ", ") + std::to_string(rank);
      }
      if (absent.empty()) return decide(ranks);
    } else {
      Members members = read_decision(links_.peers()[ranks[0]].segment->header().decision);
      const bool is_new = !members.ranks.empty() && !(tried && tried->nonce == members.id.nonce);
      if (is_new) return members;
      absent = std::to_string(ranks[0]) + " or a rank that it waits for";
    }
    if (tried) TUTTI_TRY(find_refusal(*tried));
    if (shrink_is_stopped()) return Status(Code::kAborted, "the communicator was aborted by another thread");
    if (now_ns() > deadline_ns) {
      return Status(
          Code::kTimeout,
          format("rank %u waits in tutti_comm_shrink for rank %s, which has not called it: exclude ranks "
                 "that cannot come",
                 rank_, absent.c_str()));
    }
    const timespec pause{0, kLookNs};
    nanosleep(&pause, nullptr);
  }
}

void Communicator::refuse(const UniqueId& id) {
  const Members refusal{.ranks = {}, .lost = {}, .id = id};
  write_decision(header_->decision, refusal);
  if (plane_ != nullptr) plane_->send_members(refusal.pack());
}

/// Whether a rank has refused the agreement of that id.
Status Communicator::find_refusal(const UniqueId& id) const {
  for (uint32_t rank = 0; rank < links_.peers().size(); ++rank) {
    const Members said = read_decision(links_.peers()[rank].segment->header().decision);
    if (!said.ranks.empty() || said.id.nonce != id.nonce) continue;
    return {Code::kMismatch,
            format("rank %u excludes other ranks from the next communicator than rank %u: all ranks "
                   "must exclude the same",
                   rank, rank_)};
  }
  return Status::ok();
}

uint32_t Communicator::presence(uint32_t rank) const {
  return links_.peers()[rank].segment->header().status.has_left.load(std::memory_order_acquire);
}

bool Communicator::is_in_shrink(uint32_t rank) {
  if (!is_remote(rank)) {
    return links_.peers()[rank].segment->header().status.in_shrink.load(std::memory_order_acquire) != 0;
  }
  const ControlPlane::View view = plane_->view(rank);
  uint64_t& seen = shrink_answers_[rank];
  const bool is_fresh = seen != UINT64_MAX && view.answers > seen;
  // One question at a time.
  if (seen == UINT64_MAX || is_fresh) {
    seen = view.answers;
    plane_->ask(rank);
  }
  return is_fresh && view.copy.in_shrink != 0;
}

Result<Members> Communicator::decide(const std::vector<uint32_t>& ranks) {
  auto id = process_.make_id(host_count_ > 1);
  TUTTI_TRY(id.status());
  Members members{.ranks = ranks, .lost = {}, .id = *id};
  for (uint32_t rank = 0; rank < rank_count_; ++rank) {
    if (!members.contains(rank) && presence(rank) != StatusPage::kHere) members.lost.push_back(rank);
  }
  write_decision(header_->decision, members);
  if (plane_ != nullptr) plane_->send_members(members.pack());
  return members;
}

Status Communicator::check_members(const Members& members, const std::vector<bool>& excluded) const {
  if (!members.contains(rank_)) {
    return {Code::kInvalidUsage,
            format("rank %u is excluded from the next communicator by rank %u", rank_, members.ranks[0])};
  }
  for (uint32_t rank = 0; rank < rank_count_; ++rank) {
    const bool is_in = members.contains(rank);
    // Who is lost is noticed by some sooner than by others.
    const bool may_be_out = excluded[rank] || members.has_lost(rank) || presence(rank) != StatusPage::kHere;
    if (is_in ? !excluded[rank] : may_be_out) continue;
    const uint32_t leader = members.ranks[0];
    return {Code::kMismatch,
            format("rank %u excludes rank %u from the next communicator, rank %u does not: all ranks "
                   "must exclude the same",
                   is_in ? rank_ : leader, rank, is_in ? leader : rank_)};
  }
  return Status::ok();
}

bool Communicator::watch_members(const Members* members, SetUpStop* stop) {
  const std::scoped_lock lock(members_mutex_);
  members_ = members;
  members_stop_ = stop;
  if (members == nullptr) return true;
  return std::all_of(members->ranks.begin(), members->ranks.end(),
                     [this](uint32_t rank) { return rank == rank_ || presence(rank) == StatusPage::kHere; });
}

/// Called on the control thread.
void Communicator::member_lost(uint32_t rank) {
  const std::scoped_lock lock(members_mutex_);
  if (members_ != nullptr && members_->contains(rank)) members_stop_->stop_early();
}

void Communicator::stop_shrink() {
  shrink_stopped_.store(true, std::memory_order_release);
  const std::scoped_lock lock(members_mutex_);
  if (members_stop_ != nullptr) members_stop_->stop();
}

void Communicator::end_shrink() {
  header_->status.in_shrink.store(0, std::memory_order_release);
}

}  // namespace tutti
