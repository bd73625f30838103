#include "health/peers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/clock.h"
#include "engine/wait.h"

namespace tutti {
namespace {

// How long a rank waits for an answer from another host, to name the peer's call in an error.
constexpr uint64_t kAnswerPatienceMs = 2000;
// How long a live peer may take to write the text of an alert.
constexpr uint64_t kAlertPatienceMs = 200;

}  // namespace

std::string describe_snapshot(uint32_t peer, const PeerSnapshot& snapshot) {
  return snapshot.has_answered ? describe_status(peer, snapshot.page)
                               : format("rank %u, on another host, does not answer", peer);
}

void Peers::set_hosts(std::vector<uint32_t> host_of) {
  host_of_ = std::move(host_of);
  host_count_ = *std::max_element(host_of_.begin(), host_of_.end()) + 1;
}

void Peers::set_memory(std::vector<PeerSegment> memory) {
  memory_ = std::move(memory);
  for (uint32_t peer = 0; peer < rank_count_; ++peer) {
    if (peer != rank_ && !memory_[peer].same_process) one_process_ = false;
  }
}

PeerSnapshot Peers::snapshot(uint32_t peer) const {
  if (!is_remote(peer)) return {.page = StatusCopy::of(page(peer))};
  const ControlPlane::View view = plane_->view(peer);
  plane_->ask(peer);
  PeerSnapshot snapshot{.page = view.copy, .has_answered = view.answers > 0, .is_current = false};
  // A peer reports unasked that it leaves, or that another peer is lost. A leaving peer has waited until its
  // messages arrived.
  const uint32_t left = presence(peer);
  if (left != StatusPage::kHere) snapshot.page.presence = left;
  snapshot.is_settled =
      left != StatusPage::kHere || (snapshot.has_answered && snapshot.page.unconfirmed_bytes == 0);
  return snapshot;
}

PeerSnapshot Peers::ask(uint32_t peer) const {
  if (!is_remote(peer)) return snapshot(peer);
  const uint64_t answers = plane_->view(peer).answers;
  PeerSnapshot known = snapshot(peer);
  const uint64_t deadline_ns = deadline_after_ms(kAnswerPatienceMs);
  for (Waiter waiter(WaitMode::kYield); known.page.presence == StatusPage::kHere && now_ns() < deadline_ns;) {
    const ControlPlane::View view = plane_->view(peer);
    if (view.answers > answers) return {.page = view.copy, .is_settled = view.copy.unconfirmed_bytes == 0};
    waiter.pause();
  }
  return known;
}

void Peers::raise(const Status& own_reason) const {
  raise_alert(own_->alert, own_reason.code(), rank_, own_reason.text());
  // A peer may raise an alert at the same time, and may not have reached all ranks.
  has_error() ? pass_on_error() : tell_peers(own_reason.code(), own_reason.text());
}

/// Allocates nothing: memory may be short.
void Peers::pass_on_error() const {
  const Alert& alert = own_->alert;
  tell_peers(static_cast<Code>(alert.code.load(std::memory_order_relaxed)),
             {alert.text, strnlen(alert.text, sizeof(alert.text))});
}

void Peers::tell_peers(Code code, std::string_view text) const {
  for (uint32_t peer = 0; peer < memory_.size(); ++peer) {
    if (peer != rank_) raise_alert(header(peer).alert, code, rank_, text);
  }
  if (plane_ != nullptr) plane_->raise(rank_, code, text);
}

Status Peers::settle_alert(const Status& why) const {
  for (await_alert(); !has_error(); await_alert()) {
    withdraw_claim(own_->alert, own_->alert.state.load());
    raise_alert(own_->alert, why.code(), rank_, why.text());
  }
  return error();
}

void Peers::await_alert() const {
  const uint64_t deadline_ns = deadline_after_ms(kAlertPatienceMs);
  for (Waiter waiter(WaitMode::kYield); !has_error() && now_ns() < deadline_ns;) waiter.pause();
}

bool Peers::lose(uint32_t rank, StatusPage::Presence presence, const Status& why) const {
  // The rank may have died while it wrote this rank's alert. So may one that has left, in another thread.
  withdraw_claim(own_->alert, Alert::claimed_by(rank));
  if (this->presence(rank) == StatusPage::kLeft) return false;
  raise_alert(own_->alert, why.code(), rank_, why.text());
  mark_lost(rank, presence);
  return true;
}

void Peers::mark_lost(uint32_t rank, StatusPage::Presence presence) const {
  uint32_t here = StatusPage::kHere;
  header(rank).status.presence.compare_exchange_strong(here, presence);
}

void Peers::show_left() const {
  // A rank that waits for this one then finds the reason, not only that this rank has left.
  if (has_error()) pass_on_error();
  if (plane_ != nullptr) plane_->leave();
  own_->status.presence.store(StatusPage::kLeft, std::memory_order_release);
}

bool Peers::may_use_buffers() const {
  for (uint32_t peer = 0; peer < memory_.size(); ++peer) {
    if (peer != rank_ && !memory_[peer].is_remote && page(peer).may_read_peers()) return true;
  }
  return false;
}

std::string Peers::report() const {
  std::string text =
      format("  rank %u of %u on %u host%s\n", rank_, rank_count_, host_count_, host_count_ == 1 ? "" : "s");
  if (has_error()) text += "    failed: " + std::string(error().text()) + "\n";
  for (uint32_t peer = 0; peer < memory_.size(); ++peer) {
    if (!is_remote(peer)) {
      text += "    " + describe_status(peer, StatusCopy::of(page(peer))) +
              (peer == rank_ ? " (this rank)\n" : "\n");
      continue;
    }
    ControlPlane::View view = plane_->view(peer);
    plane_->ask(peer);
    view.copy.presence = presence(peer);
    text += "    " +
            (view.answers > 0 || view.copy.presence != StatusPage::kHere
                 ? describe_status(peer, view.copy) + ", when it last answered"
                 : format("rank %u, on another host, has not been asked before", peer)) +
            "\n";
    if (const std::string detour = detour_(peer); !detour.empty())
      text += "      on the way: " + detour + "\n";
  }
  return text;
}

}  // namespace tutti
