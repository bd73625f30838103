#include "health/stall_diagnosis.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "engine/call.h"
#include "health/loss.h"

namespace tutti {
namespace {

// Checks of a broken connection before the diagnosis names it. The control connection often tells more a
// little later.
constexpr uint32_t kTornLooks = 5;
// After this many checks while waiting, a peer has seen all that this rank sent.
constexpr uint32_t kCrossedBeats = 3;
// The same while the peer's own bytes are not confirmed: the peer may only wait for its network, which sends
// a lost packet again after half a second (3 s of checks).
constexpr uint32_t kUnconfirmedBeats = 150;
// A circle may be, once its ranks have waited for so long.
constexpr uint32_t kCircleMs = 60;
// Looking around a circle costs one page a rank. Longer circles end at the deadline.
constexpr size_t kLongestCircle = 64;

unsigned long long as_ull(uint64_t value) {
  return value;
}

}  // namespace

bool StallDiagnosis::is_due(uint64_t waited_ns) {
  if (waited_ns < kCheckEveryNs) {
    last_look_ns_ = 0;
    crossed_beat_.reset();
    circle_.clear();
    return false;
  }
  if (waited_ns < last_look_ns_ + kCheckEveryNs) return false;
  last_look_ns_ = waited_ns;
  return true;
}

Status StallDiagnosis::look(uint64_t waited_ns, uint64_t timeout_ms) {
  const Obstacle obstacle = call_.obstacle();
  show_wait(obstacle, waited_ns);
  TUTTI_TRY(check_peer(obstacle.peer));
  TUTTI_TRY(check_circle(obstacle.peer));
  return waited_ns / 1'000'000 >= timeout_ms ? deadline_passed(waited_ns) : Status::ok();
}

void StallDiagnosis::show_wait(const Obstacle& obstacle, uint64_t waited_ns) {
  StatusPage& mine = peers_.own().status;
  mine.waits_for.store(obstacle.peer + 1, std::memory_order_relaxed);
  mine.step.store(obstacle.step, std::memory_order_relaxed);
  mine.waited_ms.store(static_cast<uint32_t>(waited_ns / 1'000'000), std::memory_order_relaxed);
  mine.beat.store(mine.beat.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

std::string StallDiagnosis::own_call() const {
  const CallRunCopy call = StatusCopy::of(peers_.own().status).call();
  return describe_call(call.call, call.count);
}

Status StallDiagnosis::check_way() {
  const Status way = call_.torn_way();
  if (way) {
    torn_looks_ = 0;
    return way;
  }
  return ++torn_looks_ < kTornLooks ? Status::ok() : way;
}

/// Whether the peer that this rank waits for can still come.
Status StallDiagnosis::check_peer(uint32_t peer) {
  TUTTI_TRY(check_way());
  const PeerSnapshot snapshot = peers_.snapshot(peer);
  const StatusCopy& theirs = snapshot.page;
  const bool has_left = theirs.presence != StatusPage::kHere;
  const bool passed = call_.in_collective() && theirs.completed >= call_.sequence();
  if ((has_left || passed) && !call_.is_draining()) {
    if (!snapshot.is_settled || !call_.still_waits_for(peer)) return Status::ok();
    // All bytes are sent, but the network still reads this rank's buffers.
    if (!has_left && call_.lends_to_network(peer)) return Status::ok();
    return passed ? mismatch_with(peer) : left(peer, theirs.presence);
  }
  call_.peer_may_come();
  if (call_.in_collective() && snapshot.has_answered && theirs.sequence == call_.sequence() &&
      !theirs.call().is_same_call(StatusCopy::of(peers_.own().status).call())) {
    return mismatch_with(peer);
  }
  return waits_crossed(peer, snapshot) ? crossed_with(peer) : Status::ok();
}

Status StallDiagnosis::left(uint32_t peer, uint32_t presence) const {
  if (presence == StatusPage::kDied) return ended_status(peer);
  if (presence == StatusPage::kSilent) return silent_status(peer);
  return {Code::kPeerLost,
          format("rank %u waits in %s for rank %u, which has left: it has finalized or destroyed "
                 "the communicator, or its process has exited",
                 peers_.rank(), call_.in_collective() ? own_call().c_str() : "send/recv", peer)};
}

/// Whether this rank waits in a collective for a rank that waits for it in a send or receive before that
/// collective. Neither can go on.
bool StallDiagnosis::waits_crossed(uint32_t peer, const PeerSnapshot& snapshot) {
  const StatusCopy& theirs = snapshot.page;
  if (!call_.in_collective() || !snapshot.has_answered || theirs.sequence >= call_.sequence() ||
      theirs.in_messages == 0 || theirs.waits_for != peers_.rank() + 1 || call_.unconfirmed_bytes(peer) > 0) {
    crossed_beat_.reset();
    return false;
  }
  if (!crossed_beat_) crossed_beat_ = theirs.beat;
  return theirs.beat - *crossed_beat_ >= (theirs.unconfirmed_bytes > 0 ? kUnconfirmedBeats : kCrossedBeats);
}

Status StallDiagnosis::crossed_with(uint32_t peer) const {
  return {
      Code::kMismatch,
      format("rank %u waits for rank %u in collective %llu, %s; rank %u waits for rank %u in a send or recv: "
             "the two ranks make these calls in different orders",
             peers_.rank(), peer, as_ull(call_.sequence()), own_call().c_str(), peer, peers_.rank())};
}

Status StallDiagnosis::mismatch_with(uint32_t peer) const {
  const StatusCopy mine = StatusCopy::of(peers_.own().status);
  const StatusCopy theirs = peers_.ask(peer).page;
  const bool same_call = theirs.call().call == mine.call().call && theirs.sequence == mine.sequence;
  // The calls under way are named below, unless the peer has left this number behind.
  const uint64_t end = call_.sequence() + (theirs.sequence > call_.sequence() ? 1 : 0);
  if (const std::string earlier = first_difference(peer, theirs, end); !earlier.empty())
    return {Code::kMismatch, earlier};
  // An all_to_all_v that the peer has finished may have brought this rank a block of another size.
  const CallRunCopy* const theirs_then = theirs.call_at(call_.sequence());
  const bool were_together = theirs_then != nullptr && theirs_then->is_same_call(mine.call());
  if (call_.in_messages() && (!call_.in_collective() || were_together)) {
    return {
        Code::kMismatch,
        format("a message from rank %u to rank %u does not match: %s; both ranks must name the same count, "
               "type and tag, in the same order",
               peer, peers_.rank(), message_difference(peer).c_str())};
  }
  if (same_call && theirs.call().count == mine.call().count) {
    const bool is_table = theirs.call().counts != mine.call().counts;
    return {
        Code::kMismatch,
        format("rank %u and rank %u are both in collective %llu, %s, but %s; all ranks must make the same "
               "calls with the same arguments in the same order",
               peers_.rank(), peer, as_ull(call_.sequence()), own_call().c_str(),
               is_table ? "an array of counts differs"
                        : "an earlier call of the two differed, for instance in its root")};
  }
  return {
      Code::kMismatch,
      format(
          "rank %u is in collective %llu, %s; rank %u is in or past collective %llu, %s: all ranks must make "
          "the same calls with the same arguments in the same order",
          peers_.rank(), as_ull(call_.sequence()), own_call().c_str(), peer, as_ull(theirs.sequence),
          describe_call(theirs.call().call, theirs.call().count).c_str())};
}

Status StallDiagnosis::differs(uint32_t peer) const {
  const StatusCopy mine = StatusCopy::of(peers_.own().status);
  const StatusCopy theirs = peers_.ask(peer).page;
  const std::string earlier = first_difference(peer, theirs, mine.sequence + 1);
  if (!earlier.empty()) return {Code::kMismatch, earlier};
  if (mine.sequence != theirs.sequence) {
    return {Code::kMismatch, format("rank %u leaves after %llu collectives, rank %u has left after %llu: all "
                                    "ranks must make the same "
                                    "calls in the same order",
                                    peers_.rank(), as_ull(mine.sequence), peer, as_ull(theirs.sequence))};
  }
  return {Code::kMismatch, format("one of the %llu collectives of rank %u differed from that of rank %u, for "
                                  "instance in its root or count",
                                  as_ull(mine.sequence), peers_.rank(), peer)};
}

Status StallDiagnosis::unread(uint32_t from, uint32_t to) const {
  const uint32_t peer = from == peers_.rank() ? to : from;
  const std::string earlier = first_difference(peer, peers_.ask(peer).page, call_.sequence() + 1);
  if (!earlier.empty()) return {Code::kMismatch, earlier};
  return {Code::kMismatch,
          format("rank %u has sent rank %u a message that no call of rank %u has received: each send "
                 "needs a recv, and the roots of collectives must be equal",
                 from, to, to)};
}

/// The first collective before number `end` in which the two ranks made different calls; empty: the pages
/// show none.
std::string StallDiagnosis::first_difference(uint32_t peer, const StatusCopy& theirs, uint64_t end) const {
  const StatusCopy mine = StatusCopy::of(peers_.own().status);
  std::vector<uint64_t> numbers;
  for (const StatusCopy* page : {&mine, &theirs}) {
    for (const CallRunCopy& run : page->runs) numbers.push_back(run.first);
  }
  std::sort(numbers.begin(), numbers.end());
  for (const uint64_t number : numbers) {
    const CallRunCopy* own = mine.call_at(number);
    const CallRunCopy* other = theirs.call_at(number);
    if (number >= end || own == nullptr || other == nullptr || own->is_same_call(*other)) continue;
    const bool is_table = own->call == other->call && own->count == other->count;
    return format(
        "in collective %llu rank %u made %s and rank %u %s: all ranks must make the same calls with "
        "the same arguments in the same order",
        as_ull(number), peers_.rank(), describe_call(own->call, own->count).c_str(), peer,
        is_table ? "did so with another array of counts"
                 : ("made " + describe_call(other->call, other->count)).c_str());
  }
  return "";
}

/// The ranks that wait for each other, from this rank on, if nothing is under way between them and one of
/// them waits in a send or receive. Empty: there is no such circle. Ranks that all wait in a collective only
/// wait for data.
std::vector<StallDiagnosis::Member> StallDiagnosis::circle_from(uint32_t first) const {
  std::vector<Member> members = {{.rank = peers_.rank()}};
  bool has_message = !call_.in_collective();
  bool has_collective = call_.in_collective();
  for (uint32_t peer = first; peer != peers_.rank();) {
    if (members.size() >= kLongestCircle) return {};
    const PeerSnapshot snapshot = peers_.snapshot(peer);
    const StatusCopy& page = snapshot.page;
    const uint32_t next = page.waits_for - 1;
    // No rank: it waits for none, or for any.
    if (!snapshot.has_answered || next >= peers_.rank_count() || page.waited_ms < kCircleMs ||
        page.unconfirmed_bytes > 0 || page.presence != StatusPage::kHere)
      return {};
    const bool in_collective = page.completed < page.sequence;
    has_message = has_message || (page.in_messages != 0 && !in_collective);
    has_collective = has_collective || in_collective;
    members.push_back({.rank = peer, .beat = page.beat});
    peer = next;
    if (std::ranges::find(members, peer, &Member::rank) != members.end() && peer != peers_.rank()) return {};
  }
  // Two ranks of which one is in a collective: waits_crossed.
  const bool is_crossed = members.size() == 2 && has_collective;
  if (!has_message || is_crossed || call_.unconfirmed_bytes(members.back().rank) > 0) return {};
  return members;
}

/// Every rank must have looked again and again since the circle was first seen. A rank without a processor
/// still shows a wait that has ended: what it waits for lies in its host's memory.
Status StallDiagnosis::check_circle(uint32_t first) {
  std::vector<Member> now = circle_from(first);
  if (now.empty() || !std::ranges::equal(now, circle_, {}, &Member::rank, &Member::rank)) {
    circle_ = std::move(now);
    return Status::ok();
  }
  for (size_t i = 1; i < now.size(); ++i) {
    if (now[i].beat - circle_[i].beat < kCrossedBeats) return Status::ok();
  }
  return circle_of(circle_);
}

Status StallDiagnosis::circle_of(const std::vector<Member>& members) const {
  std::string text = "ranks wait for each other in a circle: ";
  for (const auto& [rank, beat] : members) {
    const StatusCopy page =
        rank == peers_.rank() ? StatusCopy::of(peers_.own().status) : peers_.ask(rank).page;
    text += describe_status(rank, page) + "; ";
  }
  return {Code::kMismatch,
          text +
              "the ranks make these calls in different orders, or sends and receives that cross are not "
              "between tutti_group_start and tutti_group_end"};
}

/// How the message from the peer differs from the expected one. The flag word shows only the bytes of the
/// first part.
std::string StallDiagnosis::message_difference(uint32_t peer) const {
  const uint64_t came = call_.obstacle().word;
  const uint64_t wanted = call_.obstacle().expected;
  const std::vector<Message>& messages = call_.messages();
  const auto expected = std::find_if(messages.begin(), messages.end(), [&](const Message& message) {
    return !message.sending && message.peer == peer && message_signature(message) == flag::signature(wanted);
  });
  const bool is_known = !call_.in_collective() && expected != messages.end();
  const std::string whole = is_known ? " (" + describe_message(*expected) + ")" : "";
  if (flag::bytes(came) != flag::bytes(wanted)) {
    return format("its first part has %llu bytes, %llu were expected%s", as_ull(flag::bytes(came)),
                  as_ull(flag::bytes(wanted)), whole.c_str());
  }
  if (!is_known) return "its count is not the expected one";
  const std::string other = describe_other_message(*expected, flag::signature(came));
  if (!other.empty()) return other;
  // A first part shorter than any slice is the whole message.
  const SliceLimits limits = call_.message_limits();
  const bool is_all = flag::bytes(came) < std::min(limits.least, limits.most);
  return is_all ? "an earlier message of the two ranks did not match" + whole
                : "its count is not the expected one" + whole;
}

Status StallDiagnosis::deadline_passed(uint64_t waited_ns) const {
  const Obstacle obstacle = call_.obstacle();
  std::string text = format("no progress for %.1f s: rank %u waits at step %u of %s to %s rank %u; ",
                            static_cast<double>(waited_ns) / 1e9, peers_.rank(), obstacle.step,
                            call_.in_collective() ? own_call().c_str() : "send/recv",
                            obstacle.sending ? "send to" : "receive from", obstacle.peer);
  // Follows the waits from rank to rank, up to a rank that waits for none.
  std::vector<bool> told(peers_.rank_count(), false);
  told[peers_.rank()] = true;
  // Each answer that does not come costs 2 s, and the alert waits. So the first one is the last.
  bool all_answer = true;
  for (uint32_t peer = obstacle.peer; peer < peers_.rank_count() && !told[peer];) {
    told[peer] = true;
    const PeerSnapshot snapshot = all_answer ? peers_.ask(peer) : peers_.snapshot(peer);
    const bool is_unknown = !all_answer && !snapshot.has_answered;
    text += (text.ends_with("; ") ? "" : "; ") +
            (is_unknown ? format("rank %u, on another host, has not been asked before", peer)
                        : describe_snapshot(peer, snapshot));
    all_answer = all_answer && snapshot.is_current;
    peer = snapshot.page.waits_for != 0 ? snapshot.page.waits_for - 1 : peers_.rank_count();
    const bool is_circle = peer < peers_.rank_count() && told[peer];
    if (is_circle && !call_.in_collective()) {
      text +=
          "; they wait for each other: sends and receives that cross belong between tutti_group_start and "
          "tutti_group_end";
    }
  }
  return {Code::kTimeout, text};
}

}  // namespace tutti
