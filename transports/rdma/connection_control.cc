// RdmaConnection: its socket; how rails begin, end and begin again.
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>

#include "core/clock.h"
#include "transports/rdma/rdma_connection.h"

namespace tutti::rdma {
namespace {

/// A rail that fails again and again is tried ever more seldom.
constexpr uint64_t kFirstRetryMs = 500;
constexpr uint64_t kLastRetryMs = 30'000;
constexpr uint64_t kNsPerMs = 1'000'000;
/// A device that keeps requests for so long after their queue pair has stopped has failed.
constexpr uint64_t kDrainMs = 5'000;

}  // namespace

bool RdmaConnection::needs_turns() const {
  if (state_ == PeerState::kTorn) return false;
  if (!is_set_up_ || shared_.socket.has_unsent()) return true;
  const auto is_beginning = [](const auto& rail) {
    return rail->state() != Rail::State::kOff && !rail->is_usable();
  };
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const auto& lane) { return !lane->is_running() || lane->is_on_socket(); }) ||
         std::any_of(shared_.rails.begin(), shared_.rails.end(), is_beginning);
}

bool RdmaConnection::look_at_socket() {
  if (state_ == PeerState::kTorn) return false;
  bool moved = shared_.socket.flush();
  Control control;
  std::span<const std::byte> payload;
  for (;;) {
    auto input = shared_.socket.next(control, payload);
    Status taken = input.status();
    if (input && *input == ControlSocket::Input::kNothing) break;
    if (input && *input == ControlSocket::Input::kEnd) {
      // The peer's last pieces came before the end of its socket.
      poll_();
      const bool was_open = state_ == PeerState::kOpen;
      end(PeerState::kTorn, "its process has ended, or it has closed the connection");
      is_moving_ = false;
      return was_open;
    }
    if (taken) {
      // What came over rails before this message comes first.
      if (control.kind == ControlKind::kResume) poll_();
      taken = take_message(control, payload);
    }
    if (!taken) {
      end(PeerState::kTorn, std::string(taken.text()));
      return true;
    }
    moved = true;
  }
  const Status gone_on = go_on();
  if (!gone_on) end(PeerState::kTorn, std::string(gone_on.text()));
  is_moving_ = needs_turns();
  return moved;
}

/// Lets rails and lanes go on.
Status RdmaConnection::go_on() {
  const uint64_t now = now_ns();
  for (const auto& rail : shared_.rails) {
    const bool is_stuck = rail->state() == Rail::State::kOff && !rail->is_drained() &&
                          now > rail->stopped_ns + kDrainMs * kNsPerMs;
    if (is_stuck) return {Code::kPeerLost, rail->describe() + ": the device does not give back its requests"};
    try_again(*rail, now);
    advance_rail(*rail);
  }
  seek_better_rails();
  for (const auto& lane : lanes_) TUTTI_TRY(lane->advance());
  confirm_socket();
  return Status::ok();
}

Status RdmaConnection::take_message(const Control& control, std::span<const std::byte> payload) {
  const bool is_of_lane = control.kind == ControlKind::kResume || control.kind == ControlKind::kPiece;
  const size_t count = is_of_lane ? lanes_.size() : shared_.rails.size();
  if (control.index >= count) {
    return {Code::kPeerLost,
            format("a message about %s %u of %zu", is_of_lane ? "lane" : "rail", control.index, count)};
  }
  if (is_of_lane) return take_lane_message(*lanes_[control.index], control, payload);
  Rail& rail = *shared_.rails[control.index];
  const bool is_current = control.turn == rail.attempt() && rail.state() != Rail::State::kOff;
  switch (control.kind) {
    case ControlKind::kHello: return take_hello(rail, control, payload);
    case ControlKind::kJoined:
      if (is_current) rail.peer_has_joined = true;
      return Status::ok();
    case ControlKind::kUp:
      if (is_current) rail.set_peer_up();
      return Status::ok();
    case ControlKind::kBroken: take_broken(rail, control.turn); return Status::ok();
    case ControlKind::kResume:
    case ControlKind::kPiece: break;
  }
  return {Code::kPeerLost, "a message of no kind"};
}

Status RdmaConnection::take_lane_message(Lane& lane, const Control& control,
                                         std::span<const std::byte> payload) {
  if (control.kind == ControlKind::kResume) {
    auto resume = decode_resume(payload);
    TUTTI_TRY(resume.status());
    TUTTI_TRY(lane.take_resume(control.turn, *resume));
    return lane.advance();
  }
  if (state_ == PeerState::kOpen) TUTTI_TRY(lane.receive(Lane::kSocketKey, control.word, payload));
  notice_end();
  return Status::ok();
}

Status RdmaConnection::take_hello(Rail& rail, const Control& control, std::span<const std::byte> payload) {
  const bool is_off = rail.state() == Rail::State::kOff;
  if (control.turn < rail.next_attempt() && (is_off || control.turn < rail.attempt())) {
    // The next attempt of either rank must have a greater number.
    if (is_off) tell_rail(ControlKind::kBroken, rail, rail.next_attempt() - 1);
    return Status::ok();
  }
  auto hello = decode_hello(payload.first<kHelloBytes>(), {.rank = options_.peer,
                                                           .epoch = options_.epoch,
                                                           .piece_bytes = kPieceBytes,
                                                           .is_ethernet = rail.port().address.is_ethernet});
  TUTTI_TRY(hello.status());
  if (hello->receive_count != options_.queue_pair.receives)
    return {Code::kPeerLost, format("it posts %u receives", hello->receive_count)};
  if (control.turn > rail.attempt()) {
    if (!is_off) break_rail(rail, "the peer begins it anew");
    rail.wanted_attempt = std::max(rail.wanted_attempt, control.turn);
  }
  if (control.turn == rail.wanted_attempt) rail.peer_hello = *hello;
  return Status::ok();
}

/// The peer has given up an attempt, perhaps one that this rank has not begun.
void RdmaConnection::take_broken(Rail& rail, uint32_t attempt) {
  if (attempt < rail.attempt()) return;
  const std::string why = "the peer has given it up: its log says why";
  if (rail.state() != Rail::State::kOff) break_rail(rail, why, true);
  rail.skip(attempt);
  if (rail.wanted_attempt <= attempt) rail.peer_hello.reset();
}

void RdmaConnection::tell_rail(ControlKind kind, const Rail& rail, uint32_t attempt) {
  shared_.socket.send({.kind = kind, .index = rail.index(), .turn = attempt}, {});
}

void RdmaConnection::break_rail(Rail& rail, const std::string& why, bool is_told) {
  if (rail.state() == Rail::State::kOff) return;
  is_moving_ = true;
  const uint64_t was_up_ns = rail.state() == Rail::State::kUp ? now_ns() - rail.up_ns : 0;
  if (was_up_ns > kLastRetryMs * kNsPerMs) rail.retry_wait_ms = 0;
  const uint32_t key = rail.key();
  rail.stop(why);
  rail.peer_hello.reset();
  if (!is_told) tell_rail(ControlKind::kBroken, rail, rail.attempt());
  rail.retry_wait_ms = std::min(std::max(kFirstRetryMs, rail.retry_wait_ms * 2), kLastRetryMs);
  rail.retry_ns = now_ns() + rail.retry_wait_ms * kNsPerMs;
  for (const auto& lane : lanes_) lane->interrupt(key);
}

/// One of the two ranks tries again after a while. A port that comes up is tried at once (port_changed).
void RdmaConnection::try_again(Rail& rail, uint64_t now) {
  if (!rail.is_idle() || !is_set_up_ || wants_end_ || state_ != PeerState::kOpen || now < rail.retry_ns)
    return;
  if (options_.rank > options_.peer || !rail.port().is_up) return;
  rail.wanted_attempt = rail.next_attempt();
}

void RdmaConnection::start_rail(Rail& rail) {
  const uint32_t attempt = rail.wanted_attempt;
  const bool has_started = rail.port().is_up && rail.start(attempt);
  if (!has_started) {
    rail.skip(attempt);
    rail.peer_hello.reset();
    tell_rail(ControlKind::kBroken, rail, attempt);
    rail.retry_ns = now_ns() + kLastRetryMs * kNsPerMs;
    // Lanes begin on the first attempt, before it has begun.
    for (const auto& lane : lanes_) lane->interrupt(Rail::key_of(rail.index(), attempt));
    is_moving_ = true;
    return;
  }
  const auto hello = encode(rail.hello());
  shared_.socket.send({.kind = ControlKind::kHello, .index = rail.index(), .turn = attempt}, hello);
}

void RdmaConnection::advance_rail(Rail& rail) {
  if (rail.state() == Rail::State::kOff && rail.is_drained()) {
    rail.release();
    if (!rail.is_idle() && state_ == PeerState::kOpen) start_rail(rail);
  }
  if (rail.state() == Rail::State::kGreeting && rail.peer_hello) {
    const Status joined = rail.join(*rail.peer_hello);
    if (!joined) return break_rail(rail, std::string(joined.text()));
    tell_rail(ControlKind::kJoined, rail, rail.attempt());
  }
  if (rail.state() == Rail::State::kJoining && rail.peer_has_joined) {
    const Status sent = rail.prove();
    if (!sent) return break_rail(rail, std::string(sent.text()));
  }
  if (rail.rise()) tell_rail(ControlKind::kUp, rail, rail.attempt());
}

/// Moves lanes back home, or to a rail from the socket. One rank decides when; both know where.
void RdmaConnection::seek_better_rails() {
  if (options_.rank > options_.peer || !is_set_up_ || wants_end_ || state_ != PeerState::kOpen) return;
  uint32_t usable = 0;
  for (const auto& rail : shared_.rails) usable |= (rail->is_usable() ? 1u : 0u) << rail->index();
  for (const auto& lane : lanes_) {
    const auto best = Lane::best_rail(lane->home(), usable, static_cast<uint32_t>(shared_.rails.size()));
    if (lane->is_running() && best != Lane::kSocket && best != lane->rail()) lane->plan();
  }
}

void RdmaConnection::port_changed(const Port& port, const std::string& what) {
  for (const auto& rail : shared_.rails) {
    if (&rail->port() != &port) continue;
    if (!port.is_up) {
      break_rail(*rail, what);
      rail->explain(what);  // a failed request may have come before the event
      note_move();
    } else if (rail->is_idle() && is_set_up_ && state_ == PeerState::kOpen) {
      rail->wanted_attempt = rail->next_attempt();
      is_moving_ = true;
    }
  }
}

void RdmaConnection::device_failed(const Device& device, const std::string& what) {
  for (const auto& rail : shared_.rails) {
    if (&rail->device() == &device) break_rail(*rail, what);
  }
}

/// What the socket has taken counts as confirmed once the peer's host has it.
void RdmaConnection::confirm_socket() {
  if (shared_.socket_bytes == 0 || shared_.socket.has_unsent()) return;
  int queued = 0;
  if (ioctl(shared_.socket.descriptor(), SIOCOUTQ, &queued) == 0 && queued > 0) return;
  shared_.unconfirmed_bytes -= shared_.socket_bytes;
  shared_.socket_bytes = 0;
}

}  // namespace tutti::rdma
