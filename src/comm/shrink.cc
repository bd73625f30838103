#include "comm/shrink.h"

#include <algorithm>
#include <ctime>
#include <string>

#include "core/clock.h"

namespace tutti {
namespace {

constexpr long kLookNs = 50'000;

}  // namespace

Status ShrinkProtocol::begin(uint64_t deadline_ns) {
  const auto own = ShrinkState::unpack(peers_.own().status.shrink.load(std::memory_order_relaxed));
  forget_snapshots();
  for (bool is_awaited = own.phase == ShrinkState::kThrough; is_awaited;) {
    std::string late;
    for (uint32_t rank = 0; rank < peers_.rank_count(); ++rank) {
      if (rank == peers_.rank() || peers_.presence(rank) != StatusPage::kHere) continue;
      const auto theirs = see(rank);
      const bool is_through = theirs && (theirs->held != own.held || theirs->phase == ShrinkState::kThrough);
      if (!is_through) add_to_list(late, std::to_string(rank));
    }
    is_awaited = !late.empty();
    if (is_awaited) TUTTI_TRY(pause(deadline_ns, late));
  }
  follows_ = false;
  held_ = 0;
  return Status::ok();
}

Result<std::optional<Members>> ShrinkProtocol::agree_on_members(const std::vector<bool>& excluded,
                                                                uint64_t deadline_ns) {
  forget_snapshots();
  show(ShrinkState::kAgreeing);
  for (;;) {
    // Ranks that this rank calls lost may live and continue without it.
    if (is_given_up()) {
      return Status(
          Code::kPeerLost,
          format("rank %u was stopped or cut off for longer than the heartbeat (TUTTI_HEARTBEAT_MS), "
                 "so the others have given it up and go on without it: destroy the communicator",
                 peers_.rank()));
    }
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < peers_.rank_count(); ++rank) {
      if (rank == peers_.rank() || (!excluded[rank] && peers_.presence(rank) == StatusPage::kHere))
        ranks.push_back(rank);
    }
    const ShrinkStep step = next_step(ranks);
    if (step == ShrinkStep::kTake) {
      withdraw_decision();
      show(ShrinkState::kThrough);
      return std::optional<Members>();
    }
    auto members = step == ShrinkStep::kDecide ? decide(ranks) : find_decision(ranks[0]);
    TUTTI_TRY(members.status());
    if (*members) {
      tried_ = (*members)->id;
      follows_ = (*members)->contains(peers_.rank());
      show(ShrinkState::kBootstrap);
      return members;
    }
    if (follows_) TUTTI_TRY(find_refusal(*tried_));
    TUTTI_TRY(pause(deadline_ns, absent_of(ranks)));
  }
}

void ShrinkProtocol::hold_next(const UniqueId& id) {
  held_ = shrink_tag(id);
  show(ShrinkState::kBootstrap);
}

void ShrinkProtocol::give_up(const Status& why) {
  held_ = 0;
  show(ShrinkState::kAway);
  // All ranks know of a mismatch from the rank that found it. They know of an abort because this rank leaves.
  const bool is_known = why.code() == Code::kMismatch || is_stopped();
  if (!follows_ || is_known) return withdraw_decision();
  publish({.ranks = {}, .lost = {peers_.rank()}, .id = *tried_});
}

void ShrinkProtocol::publish(const Members& members) const {
  write_decision(peers_.own().decision, members);
  if (peers_.control_plane() != nullptr) peers_.control_plane()->send_members(members.pack());
}

void ShrinkProtocol::show(ShrinkState::Phase phase) const {
  const ShrinkState state{phase, held_};
  peers_.own().status.shrink.store(state.pack());
}

void ShrinkProtocol::forget_snapshots() {
  seen_.assign(peers_.rank_count(), std::nullopt);
  awaited_.assign(peers_.rank_count(), 0);
}

/// The peer's state since forget_snapshots(); empty until it has answered.
std::optional<ShrinkState> ShrinkProtocol::see(uint32_t rank) {
  std::optional<ShrinkState>& seen = seen_[rank];
  if (!peers_.is_remote(rank)) {
    seen = ShrinkState::unpack(peers_.page(rank).shrink.load());
    return seen;
  }
  // One question at a time. Earlier answers do not count.
  uint64_t& awaited = awaited_[rank];
  const ControlPlane::View view = peers_.control_plane()->view(rank);
  const bool has_answered = awaited != 0 && view.answers >= awaited;
  if (has_answered) seen = ShrinkState::unpack(view.copy.shrink);
  if (awaited == 0 || has_answered) awaited = peers_.control_plane()->ask(rank);
  return seen;
}

/// A rank that neither leads nor holds a communicator waits for the decision.
ShrinkStep ShrinkProtocol::next_step(const std::vector<uint32_t>& ranks) {
  const bool leads = ranks[0] == peers_.rank();
  if (!leads && held_ == 0) return ShrinkStep::kWait;
  std::vector<std::optional<ShrinkState>> others;
  for (const uint32_t rank : ranks) {
    if (rank != peers_.rank()) others.push_back(see(rank));
  }
  return shrink_step(held_, leads, others);
}

/// The leader's decision, unless this rank has tried it.
Result<std::optional<Members>> ShrinkProtocol::find_decision(uint32_t leader) const {
  if (leader == peers_.rank()) return std::optional<Members>();
  const Members members = read_decision(peers_.header(leader).decision);
  const bool is_tried = tried_ && tried_->nonce == members.id.nonce;
  if (members.ranks.empty() || is_tried) return std::optional<Members>();
  return std::optional(members);
}

/// The next shrink must not find the decision.
void ShrinkProtocol::withdraw_decision() const {
  if (!read_decision(peers_.own().decision).ranks.empty()) publish({});
}

std::string ShrinkProtocol::absent_of(const std::vector<uint32_t>& ranks) const {
  if (ranks[0] != peers_.rank() && held_ == 0)
    return std::to_string(ranks[0]) + " or a rank that it waits for";
  std::string absent;
  for (const uint32_t rank : ranks) {
    const std::optional<ShrinkState>& seen = seen_[rank];
    const bool is_here = rank == peers_.rank() || (seen && seen->phase == ShrinkState::kAgreeing);
    if (!is_here) add_to_list(absent, std::to_string(rank));
  }
  return absent;
}

/// `absent`: the ranks that this rank waits for.
Status ShrinkProtocol::pause(uint64_t deadline_ns, const std::string& absent) const {
  if (is_stopped()) return {Code::kAborted, "the communicator was aborted by another thread"};
  if (now_ns() > deadline_ns) {
    return {Code::kTimeout,
            format("rank %u waits in tutti_comm_shrink for rank %s, which has not called it: exclude ranks "
                   "that cannot come",
                   peers_.rank(), absent.c_str())};
  }
  const timespec pause{0, kLookNs};
  nanosleep(&pause, nullptr);
  return Status::ok();
}

void ShrinkProtocol::refuse(const UniqueId& id) {
  publish({.ranks = {}, .lost = {}, .id = id});
}

/// An error if a live rank has refused the agreement of `id`, or has given up after it. A refusal is why
/// others give up, so it comes first.
Status ShrinkProtocol::find_refusal(const UniqueId& id) const {
  Status given_up;
  for (uint32_t rank = 0; rank < peers_.memory().size(); ++rank) {
    const Members said = read_decision(peers_.header(rank).decision);
    if (!said.ranks.empty() || said.id.nonce != id.nonce || peers_.presence(rank) != StatusPage::kHere)
      continue;
    if (said.lost.empty()) {
      return {Code::kMismatch, format("rank %u and rank %u exclude different ranks from the next "
                                      "communicator: all ranks must exclude the same",
                                      rank, peers_.rank())};
    }
    given_up =
        Status(Code::kSystemError,
               format("rank %u has given up the shrink that it had agreed to; its own error says why", rank));
  }
  return given_up;
}

Result<std::optional<Members>> ShrinkProtocol::decide(const std::vector<uint32_t>& ranks) const {
  auto id = make_id_();
  TUTTI_TRY(id.status());
  Members members{.ranks = ranks, .lost = {}, .id = *id};
  for (uint32_t rank = 0; rank < peers_.rank_count(); ++rank) {
    if (!members.contains(rank) && peers_.presence(rank) != StatusPage::kHere) members.lost.push_back(rank);
  }
  // First, so that a rank that follows the decision does not find this one ready to take what it holds.
  show(ShrinkState::kBootstrap);
  publish(members);
  return std::optional(std::move(members));
}

Status ShrinkProtocol::check_members(const Members& members, const std::vector<bool>& excluded) const {
  if (!members.contains(peers_.rank())) {
    return {Code::kInvalidUsage, format("rank %u is excluded from the next communicator by rank %u",
                                        peers_.rank(), members.ranks[0])};
  }
  for (uint32_t rank = 0; rank < peers_.rank_count(); ++rank) {
    const bool is_in = members.contains(rank);
    // Some ranks notice a loss sooner than others.
    const bool may_be_out =
        excluded[rank] || members.has_lost(rank) || peers_.presence(rank) != StatusPage::kHere;
    if (is_in ? !excluded[rank] : may_be_out) continue;
    const uint32_t leader = members.ranks[0];
    return {Code::kMismatch,
            format("rank %u excludes rank %u from the next communicator, rank %u does not: all ranks "
                   "must exclude the same",
                   is_in ? peers_.rank() : leader, rank, is_in ? leader : peers_.rank())};
  }
  return Status::ok();
}

bool ShrinkProtocol::watch_members(const Members* members, BootstrapStop* stop) {
  const std::scoped_lock lock(members_mutex_);
  members_ = members;
  members_stop_ = stop;
  if (members == nullptr) return true;
  if (is_stopped()) return false;
  return std::all_of(members->ranks.begin(), members->ranks.end(), [this](uint32_t rank) {
    return rank == peers_.rank() || peers_.presence(rank) == StatusPage::kHere;
  });
}

void ShrinkProtocol::member_lost(uint32_t rank) {
  const std::scoped_lock lock(members_mutex_);
  if (members_ != nullptr && members_->contains(rank)) members_stop_->stop();
}

void ShrinkProtocol::stop() {
  stopped_.store(true, std::memory_order_release);
  const std::scoped_lock lock(members_mutex_);
  if (members_stop_ != nullptr) members_stop_->stop();
}

}  // namespace tutti
