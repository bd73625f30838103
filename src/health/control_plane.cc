#include "health/control_plane.h"

#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "health/loss.h"

namespace tutti {
namespace {

// How long an exiting process waits for its peers' hosts to confirm what it sent.
constexpr uint64_t kFarewellNs = 1'000'000'000;

FrameSocket::Body body_of(std::span<const std::byte> bytes) {
  return std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
}

FrameHeader alert_of(uint32_t from, Code code) {
  return {.kind = FrameKind::kAlert, .first = from, .code = static_cast<uint32_t>(code)};
}

FrameSocket::Body text_of(std::string_view text) {
  return body_of(std::as_bytes(std::span(text)).first(std::min(text.size(), kMaxFrameText)));
}

/// False where memory for what `send` sends is short.
template <class Send>
bool is_sent(const Send& send) noexcept {
  const Status sent = contained([&]() -> Status {
    send();
    return Status::ok();
  });
  return sent.is_ok();
}

}  // namespace

Result<std::shared_ptr<ControlPlane>> ControlPlane::open(ControlThread& control, std::vector<Peer> peers,
                                                         uint64_t heartbeat_ms, Handlers handlers) {
  std::shared_ptr<ControlPlane> plane(new ControlPlane(control, heartbeat_ms, std::move(handlers)));
  auto loop = EventLoop::create();
  TUTTI_TRY(loop.status());
  TUTTI_TRY((*loop)->add_alarm());
  const auto hold = control.hold();
  plane->loop_ = std::move(*loop);
  for (Peer& peer : peers) TUTTI_TRY(plane->connect(std::move(peer)));
  plane->clock_.start(plane->loop_->now());
  if (heartbeat_ms > 0) plane->beat();
  TUTTI_TRY(control.watch(plane->loop_->descriptor(), EPOLLIN,
                          [raw = plane.get()](uint32_t) { raw->loop_->run_ready(); }));
  return plane;
}

Status ControlPlane::connect(Peer peer) {
  const uint32_t rank = peer.rank;
  auto socket = FrameSocket::open(
      *loop_, std::move(peer.socket), 0,
      {.on_frame = [this, rank](const Frame& frame) { handle(rank, frame); },
       .on_closed = [this, rank](const Status& how) { lose(rank, false, hung_up_status(rank, how)); }});
  TUTTI_TRY(socket.status());
  Link& link = links_[rank];
  link.socket = std::move(*socket);
  return Status::ok();
}

void ControlPlane::expect_beats() {
  const auto hold = control_.hold();
  expects_beats_ = true;
  for (auto& [rank, link] : links_) link.heard_ns = loop_->now();
}

ControlPlane::~ControlPlane() {
  close();
}

void ControlPlane::close() {
  const auto hold = control_.hold();
  if (loop_ == nullptr) return;
  control_.forget(loop_->descriptor());
  links_.clear();
  loop_.reset();
}

void ControlPlane::handle(uint32_t peer, const Frame& frame) {
  Link& link = links_.at(peer);
  link.heard_ns = loop_->now();
  switch (frame.header.kind) {
    case FrameKind::kAlert: return handlers_.on_alert(frame.header.first, frame.failure());
    case FrameKind::kLeft: link.has_left = true; return handlers_.on_left(peer);
    case FrameKind::kAsk: return answer(peer, frame.header.number);
    case FrameKind::kReport:
      if (frame.body.size() == kStatusCopyBytes) {
        link.view.copy = decode_status(std::span<const std::byte, kStatusCopyBytes>(frame.body));
        ++link.view.answers;
      }
      return;
    case FrameKind::kBeat: return;
    case FrameKind::kMembers: return handlers_.on_members(peer, frame.body);
    case FrameKind::kRenew: return handlers_.on_renew(peer, frame);
    default:
      return lose(
          peer, false,
          {Code::kPeerLost, format("rank %u sent an unknown message on its control connection", peer)});
  }
}

void ControlPlane::answer(uint32_t peer, uint32_t number) {
  const auto bytes = encode(handlers_.report(peer));
  links_.at(peer).socket->send({.kind = FrameKind::kReport, .number = number}, body_of(bytes));
}

/// Allocates nothing: memory may be short.
void ControlPlane::lose(uint32_t peer, bool is_silent, const Status& why) {
  Link& link = links_.at(peer);
  if (link.socket == nullptr) return;
  link.socket.reset();
  if (!link.has_left) handlers_.on_lost(peer, is_silent, why);
}

void ControlPlane::broadcast(const FrameHeader& header, const FrameSocket::Body& body) {
  const auto hold = control_.hold();
  for (auto& [rank, link] : links_) {
    if (link.socket != nullptr) link.socket->send(header, body);
  }
}

/// Where memory for the message is short, closing the connections tells the peers that this rank is gone.
template <class Send>
void ControlPlane::send_or_close(Send&& send) {
  if (!is_sent(send)) close();
}

void ControlPlane::raise(uint32_t from, Code code, std::string_view text) {
  send_or_close([&] { broadcast(alert_of(from, code), text_of(text)); });
}

void ControlPlane::leave() {
  const auto hold = control_.hold();
  if (std::exchange(left_, true)) return;
  send_or_close([this] { broadcast({.kind = FrameKind::kLeft}, nullptr); });
}

uint64_t ControlPlane::ask(uint32_t peer) {
  const auto hold = control_.hold();
  const auto found = links_.find(peer);
  if (found == links_.end() || found->second.socket == nullptr) return UINT64_MAX;
  found->second.socket->send({.kind = FrameKind::kAsk});
  return ++found->second.questions;
}

void ControlPlane::send(uint32_t peer, const FrameHeader& header, std::span<const std::byte> body) {
  const auto hold = control_.hold();
  const auto found = links_.find(peer);
  if (found == links_.end() || found->second.socket == nullptr) return;
  found->second.socket->send(header, body.empty() ? nullptr : body_of(body));
}

void ControlPlane::send_members(std::span<const std::byte> members) {
  broadcast({.kind = FrameKind::kMembers}, body_of(members));
}

ControlPlane::View ControlPlane::view(uint32_t peer) {
  const auto hold = control_.hold();
  const auto found = links_.find(peer);
  return found == links_.end() ? View() : found->second.view;
}

void ControlPlane::leave_at_exit() {
  const uint64_t deadline_ns = now_ns() + kFarewellNs;
  const auto hold = control_.hold();
  if (loop_ == nullptr || left_) return;
  const auto is_on_the_way = [this](const auto& entry) {
    return entry.second.socket != nullptr && !entry.second.has_left &&
           handlers_.report(entry.first).unconfirmed_bytes > 0;
  };
  while (std::any_of(links_.begin(), links_.end(), is_on_the_way) && now_ns() < deadline_ns) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  leave();
}

void ControlPlane::schedule_beat() {
  beat_ = loop_->call_at(loop_->now() + clock_.period_ns(), [this] { beat(); });
}

/// Sends a heartbeat and finds peers that have been silent for too long. Without memory a beat is left out,
/// and a loss is found all the same. The timer, which then stays due, comes last: nothing else throws.
void ControlPlane::beat() {
  const uint64_t now = loop_->now();
  const bool was_stopped = clock_.beat(now);
  for (auto& [rank, link] : links_) {
    if (link.socket == nullptr) continue;
    if (was_stopped) link.heard_ns = now;
    static_cast<void>(is_sent([&link = link] { link.socket->send({.kind = FrameKind::kBeat}); }));
    const uint64_t silent_ns = now - link.heard_ns;
    if (expects_beats_ && clock_.is_too_long(silent_ns) && !link.has_left) lose_silent(rank, silent_ns);
  }
  schedule_beat();
}

void ControlPlane::lose_silent(uint32_t peer, uint64_t silent_ns) {
  const Status why = silent_status(peer, silent_ns, "its host cannot be reached, or its process is stopped");
  // If the peer wakes up, it reads this before the end of the connection, and does not blame this rank.
  static_cast<void>(
      is_sent([&] { links_.at(peer).socket->send(alert_of(peer, why.code()), text_of(why.text())); }));
  lose(peer, true, why);
}

}  // namespace tutti
