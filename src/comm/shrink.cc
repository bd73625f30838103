// Going on without the lost: how the ranks that are left agree on the next communicator.
//
// Each says on its status page that it has come. The lowest rank that lives decides, once all that live and
// are not excluded have come, and publishes who they are and a new unique id; the others follow it, or, when
// it dies, the next one. A member that is lost while they meet ends that meeting, and they agree anew. Who
// has the new communicator ready agrees as well, until all that live turn out to have it (shrink_state.h).
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

Status Communicator::begin_shrink(uint64_t deadline_ns) {
  const auto own = ShrinkState::unpack(header_->status.shrink.load(std::memory_order_relaxed));
  forget_looks();
  for (bool is_awaited = own.phase == ShrinkState::kThrough; is_awaited;) {
    std::string late;
    for (uint32_t rank = 0; rank < rank_count_; ++rank) {
      if (rank == rank_ || presence(rank) != StatusPage::kHere) continue;
      const auto theirs = see_shrink(rank);
      const bool is_through = theirs && (theirs->held != own.held || theirs->phase == ShrinkState::kThrough);
      if (!is_through) add_to_list(late, std::to_string(rank));
    }
    is_awaited = !late.empty();
    if (is_awaited) TUTTI_TRY(pause_shrink(deadline_ns, late));
  }
  shrink_.follows = false;
  shrink_.held = 0;
  return Status::ok();
}

Result<std::optional<Members>> Communicator::agree_on_members(const std::vector<bool>& excluded,
                                                              uint64_t deadline_ns) {
  forget_looks();
  show_shrink(ShrinkState::kAgreeing);
  for (;;) {
    // Those that are lost to this rank may well live, and be about to go on without it.
    if (is_given_up()) {
      return Status(
          Code::kPeerLost,
          format("rank %u was stopped or cut off for longer than the heartbeat (TUTTI_HEARTBEAT_MS), "
                 "so that others have given it up, and go on without it: it cannot come back; destroy "
                 "the communicator",
                 rank_));
    }
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < rank_count_; ++rank) {
      if (rank == rank_ || (!excluded[rank] && presence(rank) == StatusPage::kHere)) ranks.push_back(rank);
    }
    const ShrinkStep step = next_shrink_step(ranks);
    if (step == ShrinkStep::kTake) {
      withdraw_decision();
      show_shrink(ShrinkState::kThrough);
      return std::optional<Members>();
    }
    auto members = step == ShrinkStep::kDecide ? decide(ranks) : find_decision(ranks[0]);
    TUTTI_TRY(members.status());
    if (*members) {
      shrink_.tried = (*members)->id;
      shrink_.follows = (*members)->contains(rank_);
      show_shrink(ShrinkState::kMeeting);
      return members;
    }
    if (shrink_.follows) TUTTI_TRY(find_refusal(*shrink_.tried));
    TUTTI_TRY(pause_shrink(deadline_ns, absent_of(ranks)));
  }
}

void Communicator::hold_next(const UniqueId& id) {
  shrink_.held = shrink_tag(id);
  show_shrink(ShrinkState::kMeeting);
}

void Communicator::give_up_shrink(const Status& why) {
  shrink_.held = 0;
  show_shrink(ShrinkState::kAway);
  // Of a mismatch all know by the refusal of the rank that has found it, and that this one goes by its
  // leaving.
  const bool is_known = why.code() == Code::kMismatch || shrink_is_stopped();
  if (!shrink_.follows || is_known) return withdraw_decision();
  publish({.ranks = {}, .lost = {rank_}, .id = *shrink_.tried});
}

/// Tells all ranks of a decision, or of what has become of one.
void Communicator::publish(const Members& members) {
  write_decision(header_->decision, members);
  if (plane_ != nullptr) plane_->send_members(members.pack());
}

void Communicator::show_shrink(ShrinkState::Phase phase) {
  const ShrinkState state{phase, shrink_.held};
  header_->status.shrink.store(state.pack());
}

/// What was seen before says nothing about now.
void Communicator::forget_looks() {
  shrink_.seen.assign(rank_count_, std::nullopt);
  shrink_.awaited.assign(rank_count_, 0);
}

/// What a peer shows, at some moment since forget_looks(); nothing where it has not answered yet.
std::optional<ShrinkState> Communicator::see_shrink(uint32_t rank) {
  std::optional<ShrinkState>& seen = shrink_.seen[rank];
  if (!is_remote(rank)) {
    seen = ShrinkState::unpack(links_.peers()[rank].segment->header().status.shrink.load());
    return seen;
  }
  // One question at a time; an answer to one that was asked before does not count.
  uint64_t& awaited = shrink_.awaited[rank];
  const ControlPlane::View view = plane_->view(rank);
  const bool has_answered = awaited != 0 && view.answers >= awaited;
  if (has_answered) seen = ShrinkState::unpack(view.copy.shrink);
  if (awaited == 0 || has_answered) awaited = plane_->ask(rank);
  return seen;
}

/// Who neither leads nor holds anything has nothing to look for but the decision.
ShrinkStep Communicator::next_shrink_step(const std::vector<uint32_t>& ranks) {
  const bool leads = ranks[0] == rank_;
  if (!leads && shrink_.held == 0) return ShrinkStep::kWait;
  std::vector<std::optional<ShrinkState>> others;
  for (const uint32_t rank : ranks) {
    if (rank != rank_) others.push_back(see_shrink(rank));
  }
  return shrink_step(shrink_.held, leads, others);
}

/// What the rank that leads has decided, unless that has been tried.
Result<std::optional<Members>> Communicator::find_decision(uint32_t leader) const {
  if (leader == rank_) return std::optional<Members>();
  const Members members = read_decision(links_.peers()[leader].segment->header().decision);
  const bool is_tried = shrink_.tried && shrink_.tried->nonce == members.id.nonce;
  if (members.ranks.empty() || is_tried) return std::optional<Members>();
  return std::optional(members);
}

/// The next shrink must not find it.
void Communicator::withdraw_decision() {
  if (!read_decision(header_->decision).ranks.empty()) publish({});
}

/// For whom this rank waits.
std::string Communicator::absent_of(const std::vector<uint32_t>& ranks) const {
  if (ranks[0] != rank_ && shrink_.held == 0)
    return std::to_string(ranks[0]) + " or a rank that it waits for";
  std::string absent;
  for (const uint32_t rank : ranks) {
    const std::optional<ShrinkState>& seen = shrink_.seen[rank];
    const bool is_here = rank == rank_ || (seen && seen->phase == ShrinkState::kAgreeing);
    if (!is_here) add_to_list(absent, std::to_string(rank));
  }
  return absent;
}

/// Between two looks. `absent`: whom this rank waits for.
Status Communicator::pause_shrink(uint64_t deadline_ns, const std::string& absent) const {
  if (shrink_is_stopped()) return {Code::kAborted, "the communicator was aborted by another thread"};
  if (now_ns() > deadline_ns) {
    return {Code::kTimeout,
            format("rank %u waits in tutti_comm_shrink for rank %s, which has not called it: exclude ranks "
                   "that cannot come",
                   rank_, absent.c_str())};
  }
  const timespec pause{0, kLookNs};
  nanosleep(&pause, nullptr);
  return Status::ok();
}

void Communicator::refuse(const UniqueId& id) {
  publish({.ranks = {}, .lost = {}, .id = id});
}

/// Whether a rank that lives has refused the agreement of that id, or has given up after it. A refusal is
/// what others give up for.
Status Communicator::find_refusal(const UniqueId& id) const {
  Status given_up;
  for (uint32_t rank = 0; rank < links_.peers().size(); ++rank) {
    const Members said = read_decision(links_.peers()[rank].segment->header().decision);
    if (!said.ranks.empty() || said.id.nonce != id.nonce || presence(rank) != StatusPage::kHere) continue;
    if (said.lost.empty()) {
      return {Code::kMismatch,
              format("rank %u excludes other ranks from the next communicator than rank %u: all ranks "
                     "must exclude the same",
                     rank, rank_)};
    }
    given_up =
        Status(Code::kSystemError,
               format("rank %u has given up the shrink that it had agreed to; its own error says why", rank));
  }
  return given_up;
}

bool Communicator::is_given_up() const {
  return presence(rank_) != StatusPage::kHere;
}

const StatusPage& Communicator::status_of(uint32_t rank) const {
  return rank == rank_ ? header_->status : links_.peers()[rank].segment->header().status;
}

uint32_t Communicator::presence(uint32_t rank) const {
  return status_of(rank).has_left.load(std::memory_order_acquire);
}

Result<std::optional<Members>> Communicator::decide(const std::vector<uint32_t>& ranks) {
  auto id = process_.make_id(host_count_ > 1);
  TUTTI_TRY(id.status());
  Members members{.ranks = ranks, .lost = {}, .id = *id};
  for (uint32_t rank = 0; rank < rank_count_; ++rank) {
    if (!members.contains(rank) && presence(rank) != StatusPage::kHere) members.lost.push_back(rank);
  }
  // First: nobody may follow it and find this rank ready to take what it holds.
  show_shrink(ShrinkState::kMeeting);
  publish(members);
  return std::optional(std::move(members));
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

bool Communicator::watch_members(const Members* members, BootstrapStop* stop) {
  const std::scoped_lock lock(members_mutex_);
  members_ = members;
  members_stop_ = stop;
  if (members == nullptr) return true;
  if (shrink_is_stopped()) return false;
  return std::all_of(members->ranks.begin(), members->ranks.end(),
                     [this](uint32_t rank) { return rank == rank_ || presence(rank) == StatusPage::kHere; });
}

/// Called on the control thread.
void Communicator::member_lost(uint32_t rank) {
  const std::scoped_lock lock(members_mutex_);
  if (members_ != nullptr && members_->contains(rank)) members_stop_->stop();
}

void Communicator::stop_shrink() {
  shrink_stopped_.store(true, std::memory_order_release);
  const std::scoped_lock lock(members_mutex_);
  if (members_stop_ != nullptr) members_stop_->stop();
}

}  // namespace tutti
