#include "health/stall_diagnosis.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "engine/call.h"

namespace tutti {
namespace {

// Checks of a broken connection before the diagnosis names it. The control connection often tells more a
// little later.
constexpr uint32_t kTornLooks = 5;
// After this many checks while waiting, a peer has seen all that this rank sent.
constexpr uint32_t kCrossedBeats = 3;

unsigned long long as_ull(uint64_t value) {
  return value;
}

}  // namespace

bool StallDiagnosis::is_due(uint64_t waited_ns) {
  if (waited_ns < kCheckEveryNs) {
    last_look_ns_ = 0;
    crossed_beat_.reset();
    return false;
  }
  if (waited_ns < last_look_ns_ + kCheckEveryNs) return false;
  last_look_ns_ = waited_ns;
  return true;
}

Status StallDiagnosis::look(uint64_t waited_ns, uint64_t timeout_ms) {
  const Obstacle obstacle = call_.obstacle();
  StatusPage& mine = peers_.own().status;
  mine.waits_for.store(obstacle.peer + 1, std::memory_order_relaxed);
  mine.step.store(obstacle.step, std::memory_order_relaxed);
  mine.beat.store(mine.beat.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  TUTTI_TRY(check_peer(obstacle.peer));
  return waited_ns / 1'000'000 >= timeout_ms ? deadline_passed(waited_ns) : Status::ok();
}

std::string StallDiagnosis::own_call() const {
  const StatusPage& mine = peers_.own().status;
  return describe_call(mine.call, mine.count);
}

/// Whether the connection to a peer on another host is broken; the peer may live.
Status StallDiagnosis::check_way(uint32_t peer) {
  const Status way = call_.way_to(peer);
  if (way) {
    torn_looks_ = 0;
    return way;
  }
  return ++torn_looks_ < kTornLooks ? Status::ok() : way;
}

/// Whether the peer that this rank waits for can still come.
Status StallDiagnosis::check_peer(uint32_t peer) {
  TUTTI_TRY(check_way(peer));
  const StatusPage& mine = peers_.own().status;
  const PeerSnapshot snapshot = peers_.snapshot(peer);
  const StatusCopy& theirs = snapshot.page;
  const bool has_left = theirs.has_left != StatusPage::kHere;
  const bool passed = call_.in_collective() && theirs.completed >= call_.sequence();
  if ((has_left || passed) && !call_.is_draining()) {
    if (!snapshot.is_settled || !call_.still_waits_for(peer)) return Status::ok();
    // All bytes are sent, but the network still reads this rank's buffers.
    if (!has_left && call_.lends_to_network(peer)) return Status::ok();
    return passed ? mismatch_with(peer) : left(peer, theirs.has_left);
  }
  call_.peer_may_come();
  if (call_.in_collective() && snapshot.has_answered && theirs.sequence == call_.sequence() &&
      (theirs.call != mine.call.load() || theirs.count != mine.count.load())) {
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
  return theirs.beat - *crossed_beat_ >= kCrossedBeats;
}

Status StallDiagnosis::crossed_with(uint32_t peer) const {
  return {
      Code::kMismatch,
      format("rank %u waits for rank %u in collective %llu, %s; rank %u waits for rank %u in a send or recv: "
             "the two ranks make these calls in different orders",
             peers_.rank(), peer, as_ull(call_.sequence()), own_call().c_str(), peer, peers_.rank())};
}

Status StallDiagnosis::mismatch_with(uint32_t peer) const {
  const StatusPage& mine = peers_.own().status;
  const StatusCopy theirs = peers_.ask(peer).page;
  const bool same_call = theirs.call == mine.call.load() && theirs.sequence == mine.sequence.load();
  if (call_.in_messages() && (!call_.in_collective() || same_call)) {
    return {
        Code::kMismatch,
        format("a message from rank %u to rank %u does not match: %s; both ranks must name the same count, "
               "type and tag, in the same order",
               peer, peers_.rank(), message_difference(peer).c_str())};
  }
  if (same_call && theirs.count == mine.count.load()) {
    return {
        Code::kMismatch,
        format(
            "rank %u and rank %u are both in collective %llu, %s, but differ in an argument not shown here: "
            "an array of counts, or the arguments of an earlier call, such as the root; all "
            "ranks must make the same calls with the same arguments in the same order",
            peers_.rank(), peer, as_ull(call_.sequence()), own_call().c_str())};
  }
  return {
      Code::kMismatch,
      format(
          "rank %u is in collective %llu, %s; rank %u is in or past collective %llu, %s: all ranks must make "
          "the same calls with the same arguments in the same order",
          peers_.rank(), as_ull(call_.sequence()), own_call().c_str(), peer, as_ull(theirs.sequence),
          describe_call(theirs.call, theirs.count).c_str())};
}

/// How the message from the peer differs from the expected one. The flag word shows only the bytes of the
/// first part.
std::string StallDiagnosis::message_difference(uint32_t peer) const {
  const uint64_t came = call_.obstacle().word;
  const uint64_t wanted = call_.obstacle().expected;
  const std::vector<Message>& messages = call_.messages();
  const auto expected = std::find_if(messages.begin(), messages.end(), [&](const Message& message) {
    return !message.sending && message.peer == peer && message.signature == flag::signature(wanted);
  });
  const bool is_known = !call_.in_collective() && expected != messages.end();
  const std::string whole = is_known ? " (" + describe_message(*expected) + ")" : "";
  if (flag::bytes(came) != flag::bytes(wanted)) {
    return format("its first part has %llu bytes, %llu were expected%s", as_ull(flag::bytes(came)),
                  as_ull(flag::bytes(wanted)), whole.c_str());
  }
  if (!is_known) return "its count is not the expected one";
  const uint16_t signature = flag::signature(came);
  // A first part shorter than any slice is the whole message.
  const SliceLimits limits = call_.message_limits();
  const bool is_all = flag::bytes(came) < std::min(limits.least, limits.most);
  if (is_all) return describe_other_message(*expected, signature);
  if (!may_be_as_long(*expected, signature)) return "its count or tag is not the expected one" + whole;
  return "its count is not the expected one" + whole + ", or " + describe_other_message(*expected, signature);
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
  for (uint32_t peer = obstacle.peer; peer < peers_.rank_count() && !told[peer];) {
    told[peer] = true;
    const PeerSnapshot snapshot = peers_.ask(peer);
    text += (text.ends_with("; ") ? "" : "; ") + describe_snapshot(peer, snapshot);
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
