// Verdicts: what a rank that waits too long finds out from its peers' status pages, and how it tells them.
#include <algorithm>
#include <utility>

#include "comm/communicator.h"
#include "core/clock.h"

namespace tutti {
namespace {

// How often a waiting rank looks at its peers' status pages; also how long a wait must last before it does.
constexpr uint64_t kCheckEveryNs = 20'000'000;
// How long a failed rank waits for peers that may still read its buffers. Peers notice an alert within a
// sleep of the waiter (2 ms) or one slice; a peer that computes holds no reference.
constexpr uint64_t kReferencePatienceMs = 10'000;
// How long a rank waits for a peer on another host to say what it is doing, to name it in an error.
constexpr uint64_t kAnswerPatienceMs = 2000;
// How long the text of an alert may take to be written by a live peer.
constexpr uint64_t kAlertPatienceMs = 200;

unsigned long long as_ull(uint64_t value) {
  return value;
}

Status ended(uint32_t rank) {
  return {Code::kPeerLost,
          format("the process of rank %u has ended: shrink the communicator to go on without it, or abort it",
                 rank)};
}

Status silent(uint32_t rank) {
  return {Code::kPeerLost,
          format("rank %u has given no sign of life: its process is stopped, or its host cannot be reached",
                 rank)};
}

std::string describe_snapshot(uint32_t peer, const PeerSnapshot& look) {
  return look.has_answered ? describe_status(peer, look.page)
                           : format("rank %u, on another host, does not answer", peer);
}

}  // namespace

Status Communicator::check_progress(uint64_t waited_ns) {
  if (waited_ns < kCheckEveryNs) {
    last_check_ns_ = 0;
    crossed_beat_.reset();
    return Status::ok();
  }
  if (waited_ns < last_check_ns_ + kCheckEveryNs) return Status::ok();
  last_check_ns_ = waited_ns;
  return striped_ ? check_stripes(waited_ns) : check_obstacle(waited_ns);
}

/// The stripes come back to this thread while it looks at what they wait for.
Status Communicator::check_stripes(uint64_t waited_ns) {
  if (workers_->recall()) {
    waiter_.moved();
  } else {
    Operation* own = std::exchange(current_, workers_->stuck());
    TUTTI_TRY(check_obstacle(waited_ns));
    current_ = own;
  }
  workers_->resume();
  return Status::ok();
}

Status Communicator::check_obstacle(uint64_t waited_ns) {
  const Obstacle obstacle = this->obstacle();
  StatusPage& mine = header_->status;
  shows_wait_ = device_ == nullptr;  // of one on a device show_on_page() does it
  mine.waits_for.store(obstacle.peer + 1, std::memory_order_relaxed);
  mine.step.store(obstacle.step, std::memory_order_relaxed);
  mine.beat.store(mine.beat.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  TUTTI_TRY(check_peer(obstacle.peer));
  if (waited_ns / 1'000'000 >= timeout_ms_) return fail(diagnose_deadline(waited_ns));
  return Status::ok();
}

/// The operation has ended: who follows from rank to rank, to the one that nobody keeps waiting, ends here.
void Communicator::clear_wait() {
  shows_wait_ = false;
  header_->status.waits_for.store(0, std::memory_order_relaxed);
}

/// What the operation waits for: a message, room for one, or the network to take the last of it.
Obstacle Communicator::obstacle() const {
  if (device_ != nullptr) return device_snapshot_.obstacle;
  if (!draining_) return current_->obstacle();
  const auto peer = remote_->undrained_peer();
  return {
      .peer = peer.value_or(current_->obstacle().peer), .step = current_->obstacle().step, .sending = true};
}

/// What is known of a peer now. Of one on another host: what it last answered; each look asks anew.
PeerSnapshot Communicator::snapshot_of(uint32_t peer) {
  if (!is_remote(peer)) return {.page = StatusCopy::of(links_.peers()[peer].segment->header().status)};
  const ControlPlane::View view = plane_->view(peer);
  plane_->ask(peer);
  PeerSnapshot look{.page = view.copy, .has_answered = view.answers > 0};
  // Left and lost are told without being asked for; who leaves has waited for its messages to arrive.
  const uint32_t left =
      links_.peers()[peer].segment->header().status.has_left.load(std::memory_order_acquire);
  if (left != StatusPage::kHere) look.page.has_left = left;
  look.is_settled = left != StatusPage::kHere || (look.has_answered && look.page.unsent_bytes == 0);
  return look;
}

/// What a peer is doing now: of one on another host, what it answers to a question of now.
PeerSnapshot Communicator::ask(uint32_t peer) {
  if (!is_remote(peer)) return snapshot_of(peer);
  const uint64_t answers = plane_->view(peer).answers;
  PeerSnapshot look = snapshot_of(peer);
  const uint64_t deadline_ns = deadline_after_ms(kAnswerPatienceMs);
  for (Waiter waiter(WaitMode::kYield); look.page.has_left == StatusPage::kHere && now_ns() < deadline_ns;) {
    const ControlPlane::View view = plane_->view(peer);
    if (view.answers > answers) return {.page = view.copy, .is_settled = view.copy.unsent_bytes == 0};
    waiter.pause();
  }
  return look;
}

/// Whether the way to a peer on another host is torn, though the peer may live. Its rank's control connection
/// often says more about why, a little later.
Status Communicator::check_way(uint32_t peer) {
  constexpr uint32_t kLooks = 5;
  if (!is_remote(peer) || remote_->state(peer) != PeerState::kTorn) {
    torn_looks_ = 0;
    return Status::ok();
  }
  return ++torn_looks_ < kLooks ? Status::ok() : fail(remote_->status(peer));
}

/// Whether the peer that this rank waits for can still come.
Status Communicator::check_peer(uint32_t peer) {
  TUTTI_TRY(check_way(peer));
  const StatusPage& mine = header_->status;
  const PeerSnapshot look = snapshot_of(peer);
  const StatusCopy& theirs = look.page;
  const bool left = theirs.has_left != StatusPage::kHere;
  const bool passed = in_collective() && theirs.completed >= sequence_;
  if ((left || passed) && !draining_) {
    if (!look.is_settled) return Status::ok();
    if (device_ != nullptr && !waits_in_vain(peer)) return Status::ok();
    // Everything the peer sent is on this host by now: look once more before believing it.
    if (is_remote(peer)) remote_->advance_fully(peer);
    if (device_ == nullptr) {
      const Progress again = current_->advance(1);
      if (again != Progress::kBlocked || current_->obstacle().peer != peer) return Status::ok();
    }
    // All is sent, but the network still reads what this rank has referred it to.
    const bool lends = is_remote(peer) && !remote_->undrained_peer() && current_->holds_references();
    if (lends && !left) return Status::ok();
    if (passed) return fail(mismatch_with(peer));
    if (theirs.has_left == StatusPage::kDied) return fail(ended(peer));
    if (theirs.has_left == StatusPage::kSilent) return fail(silent(peer));
    return fail(
        {Code::kPeerLost,
         format("rank %u waits in %s for rank %u, which has left: it has finalized or destroyed "
                "the communicator, or its process has exited",
                rank_, in_collective() ? describe_call(mine.call, mine.count).c_str() : "send/recv", peer)});
  }
  suspect_.reset();
  if (in_collective() && look.has_answered && theirs.sequence == sequence_ &&
      (theirs.call != mine.call.load() || theirs.count != mine.count.load())) {
    return fail(mismatch_with(peer));
  }
  if (waits_crossed(peer, look)) return fail(crossed_with(peer));
  return Status::ok();
}

/// Whether this rank waits in a collective for a rank that has not entered it and waits for this one in a
/// send or receive: neither can ever come. Three looks of the peer after this rank saw it prove that it
/// has seen everything that this rank has sent, once that is on its host.
bool Communicator::waits_crossed(uint32_t peer, const PeerSnapshot& look) {
  const StatusCopy& theirs = look.page;
  if (!in_collective() || !look.has_answered || theirs.sequence >= sequence_ || theirs.in_messages == 0 ||
      theirs.waits_for != rank_ + 1 || (is_remote(peer) && remote_->unsent_bytes(peer) > 0)) {
    crossed_beat_.reset();
    return false;
  }
  if (!crossed_beat_) crossed_beat_ = theirs.beat;
  return theirs.beat - *crossed_beat_ >= 3;
}

Status Communicator::crossed_with(uint32_t peer) const {
  const StatusPage& mine = header_->status;
  return {
      Code::kMismatch,
      format("rank %u waits for rank %u in collective %llu, %s; rank %u waits for rank %u in a send or recv: "
             "the two ranks make these calls in different orders",
             rank_, peer, as_ull(sequence_), describe_call(mine.call, mine.count).c_str(), peer, rank_)};
}

Status Communicator::mismatch_with(uint32_t peer) {
  const StatusPage& mine = header_->status;
  const StatusCopy theirs = ask(peer).page;
  const bool same_call = theirs.call == mine.call.load() && theirs.sequence == mine.sequence.load();
  if (in_messages() && (!in_collective() || same_call)) {
    return {
        Code::kMismatch,
        format(
            "a message from rank %u to rank %u does not match: %s; what one rank of a pair sends the other "
            "must receive, with the same count, type and tag, in the same order",
            peer, rank_, message_difference(peer).c_str())};
  }
  if (same_call && theirs.count == mine.count.load()) {
    return {
        Code::kMismatch,
        format("rank %u and rank %u are both in collective %llu, %s, but differ in what this does not show: "
               "an array of counts, or an earlier call whose arguments differed, such as another root; all "
               "ranks must make the same calls with the same arguments in the same order",
               rank_, peer, as_ull(sequence_), describe_call(mine.call, mine.count).c_str())};
  }
  return {
      Code::kMismatch,
      format(
          "rank %u is in collective %llu, %s; rank %u is in or past collective %llu, %s: all ranks must make "
          "the same calls with the same arguments in the same order",
          rank_, as_ull(sequence_), describe_call(mine.call, mine.count).c_str(), peer,
          as_ull(theirs.sequence), describe_call(theirs.call, theirs.count).c_str())};
}

/// In what the message that came from the peer differs from the one that was expected: the flag word shows
/// the bytes of its first part only.
std::string Communicator::message_difference(uint32_t peer) const {
  const uint64_t came = obstacle().word;
  const uint64_t wanted = obstacle().expected;
  const std::vector<Message>& messages = messages_under_way();
  const auto expected = std::find_if(messages.begin(), messages.end(), [&](const Message& message) {
    return !message.sending && message.peer == peer && message.signature == flag::signature(wanted);
  });
  const bool is_known = !in_collective() && expected != messages.end();
  const std::string whole = is_known ? " (" + describe_message(*expected) + ")" : "";
  if (flag::bytes(came) != flag::bytes(wanted)) {
    return format("its first part has %llu bytes, %llu were expected%s", as_ull(flag::bytes(came)),
                  as_ull(flag::bytes(wanted)), whole.c_str());
  }
  if (!is_known) return "its count is not the expected one";
  const uint16_t signature = flag::signature(came);
  // A first part that is shorter than any slice is all of its message.
  const SliceLimits limits = bind_options().slices();
  const bool is_all = flag::bytes(came) < std::min(limits.least, limits.most);
  if (is_all) return describe_other_message(*expected, signature);
  if (!may_be_as_long(*expected, signature)) return "its count or tag is not the expected one" + whole;
  return "its count is not the expected one" + whole + ", or " + describe_other_message(*expected, signature);
}

Status Communicator::diagnose_deadline(uint64_t waited_ns) {
  const Obstacle obstacle = this->obstacle();
  const StatusPage& mine = header_->status;
  std::string text = format("no progress for %.1f s: rank %u waits at step %u of %s to %s rank %u; ",
                            static_cast<double>(waited_ns) / 1e9, rank_, obstacle.step,
                            in_collective() ? describe_call(mine.call, mine.count).c_str() : "send/recv",
                            obstacle.sending ? "send to" : "receive from", obstacle.peer);
  // From rank to rank, to the one that nobody keeps waiting.
  std::vector<bool> told(rank_count_, false);
  told[rank_] = true;
  for (uint32_t peer = obstacle.peer; peer < rank_count_ && !told[peer];) {
    told[peer] = true;
    const PeerSnapshot look = ask(peer);
    text += (text.ends_with("; ") ? "" : "; ") + describe_snapshot(peer, look);
    peer = look.page.waits_for != 0 ? look.page.waits_for - 1 : rank_count_;
    const bool is_circle = peer < rank_count_ && told[peer];
    if (is_circle && !in_collective()) {
      text +=
          "; they wait for each other: sends and receives that cross belong between tutti_group_start and "
          "tutti_group_end";
    }
  }
  return {Code::kTimeout, text};
}

bool Communicator::in_messages() const {
  if (device_ == nullptr) return current_ == messages_;
  return device_snapshot_.program != nullptr && !device_snapshot_.program->mark.messages.empty();
}

bool Communicator::in_collective() const {
  if (device_ == nullptr) return current_ != messages_ || messages_are_collective_;
  return device_snapshot_.program == nullptr || device_snapshot_.program->mark.is_collective;
}

const std::vector<Message>& Communicator::messages_under_way() const {
  return device_ == nullptr ? message_list_ : device_snapshot_.program->mark.messages;
}

void Communicator::raise(const Status& why) {
  raise_alert(header_->alert, why.code(), rank_, why.text());
  for (uint32_t peer = 0; peer < links_.peers().size(); ++peer) {
    if (peer != rank_)
      raise_alert(links_.peers()[peer].segment->header().alert, why.code(), rank_, why.text());
  }
  if (plane_ != nullptr) plane_->raise(rank_, why.code(), why.text());
}

/// Ends the current operation with an error that every rank of the communicator gets. Its buffers may still
/// be in use: buffers_are_free.
Status Communicator::fail(const Status& why) {
  raise(why);
  // Peers that read the page must not believe that workers have left their buffers.
  if (striped_) workers_->recall();
  draining_ = false;
  if (shows_wait_) clear_wait();
  if (device_ == nullptr) {
    header_->status.in_messages.store(0, std::memory_order_release);
    header_->status.completed.store(sequence_, std::memory_order_release);
    buffers_deadline_ns_ = deadline_after_ms(kReferencePatienceMs);
  }
  // What may throw comes behind: the call has ended, whatever becomes of that.
  if (remote_ != nullptr) remote_->withdraw();
  // The first failure that reached this rank is the one that all its calls report. A peer that died while it
  // wrote the alert's text never raises it: then this failure takes its place.
  await_alert();
  if (!has_error()) {
    header_->alert.state.store(Alert::kQuiet, std::memory_order_release);
    raise_alert(header_->alert, why.code(), rank_, why.text());
  }
  return error();
}

/// In the handler of an exception that a piece of a call has thrown.
Status Communicator::end_thrown(bool is_one_of_many) noexcept {
  const Status thrown = caught();
  const StatusPage& mine = header_->status;
  const bool has_begun =
      device_ == nullptr && (mine.in_messages.load() != 0 || mine.completed.load() != sequence_);
  if (!has_begun && !is_one_of_many) return thrown;
  Status why = thrown;
  // Where memory is short there may be none for a better text.
  static_cast<void>(contained([&]() -> Status {
    why = Status(thrown.code(),
                 format("a call of rank %u has failed: %s", rank_, std::string(thrown.text()).c_str()));
    return Status::ok();
  }));
  return contained([&] {
    if (has_begun) return fail(why);
    fail_all(why);
    return why;
  });
}

/// Until the text of an alert that a peer has begun to raise is there.
void Communicator::await_alert() {
  const uint64_t deadline_ns = deadline_after_ms(kAlertPatienceMs);
  for (Waiter waiter(WaitMode::kYield); !has_error() && now_ns() < deadline_ns;) waiter.pause();
}

bool Communicator::buffers_are_free() const {
  if (now_ns() >= buffers_deadline_ns_) return true;
  const bool offers = current_->places() && header_->window.call.load(std::memory_order_relaxed) == sequence_;
  if (!offers && !holds_references()) return true;
  return std::none_of(links_.peers().begin(), links_.peers().end(), [this](const auto& peer) {
    return peer.segment != segment_ && !peer.is_remote && peer.segment->header().status.may_read_peers();
  });
}

bool Communicator::holds_references() const {
  return striped_ ? workers_->holds_references() : current_->holds_references();
}

void Communicator::fail_all(const Status& why) {
  raise(why);
  if (device_ != nullptr) process_.relaunch_thread().wake();
}

void Communicator::abort() {
  fail_all({Code::kAborted, format("rank %u called tutti_comm_abort", rank_)});
}

void Communicator::peer_lost(uint32_t rank) {
  lose(rank, StatusPage::kDied, ended(rank));
}

/// A rank is lost, and why; called on the control thread. Every surviving process of its host comes here; the
/// first one marks the page. The alert is raised before: who sees the mark must not have to guess the reason.
void Communicator::lose(uint32_t rank, StatusPage::Presence presence, const Status& why) {
  StatusPage& page = links_.peers()[rank].segment->header().status;
  if (page.has_left.load(std::memory_order_acquire) == StatusPage::kLeft) return;
  raise_alert(header_->alert, why.code(), rank, why.text());
  mark_lost(rank, presence);
  member_lost(rank);
}

void Communicator::mark_lost(uint32_t rank, StatusPage::Presence presence) {
  uint32_t here = StatusPage::kHere;
  links_.peers()[rank].segment->header().status.has_left.compare_exchange_strong(here, presence);
}

void Communicator::leave() {
  if (device_ != nullptr) wait_until_device_is_idle();
  workers_.reset();
  if (remote_ != nullptr && !has_error()) {
    remote_->finish(deadline_after_ms(options_.timeout_ms), [this] { return has_error(); });
  }
  show_left();
}

/// Ranks that shrink the communicator do not wait for this one any more.
void Communicator::show_left() {
  if (plane_ != nullptr) plane_->leave();
  header_->status.has_left.store(StatusPage::kLeft, std::memory_order_release);
}

}  // namespace tutti
