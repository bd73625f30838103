// TcpConnection: sockets that are replaced.
#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "core/clock.h"
#include "core/log.h"
#include "transports/tcp/tcp_connection.h"

namespace tutti::tcp {
namespace {

std::string milliseconds(uint64_t ns) {
  return format("%.1f ms", static_cast<double>(ns) / 1e6);
}

/// A network that tears sockets all the time must not fill the log.
bool is_told_of(uint32_t time) {
  return time <= 8 || std::has_single_bit(time);
}

}  // namespace

std::string TcpConnection::name_of(size_t index) const {
  const Stream& stream = streams_[index]->stream();
  return format("connection %zu of %zu between rank %u (%s) and rank %u (%s)", index + 1, streams_.size(),
                options_.rank, stream.own_address().c_str(), options_.peer, stream.address().c_str());
}

/// True if anything moved.
bool TcpConnection::renew() {
  take_sockets();
  bool moved = false;
  uint64_t now = 0;
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (streams_[i]->way() == WayState::kOpen && !renewed_[i].next.is_open() && !renewed_[i].is_told)
      continue;
    if (streams_[i]->state() != PeerState::kOpen) continue;
    if (now == 0) now = now_ns();
    moved |= renew_stream(i, now);
  }
  return moved;
}

void TcpConnection::take_sockets() {
  const uint32_t sockets = options_.renewal.sockets->arrivals();
  if (sockets == seen_sockets_) return;
  seen_sockets_ = sockets;
  for (size_t i = 0; i < streams_.size(); ++i) {
    FileDescriptor socket = options_.renewal.sockets->take(options_.peer, static_cast<uint32_t>(i));
    if (!socket.is_open()) continue;
    // A stream that has ended for good closes it, which tells the peer.
    if (streams_[i]->state() != PeerState::kOpen) continue;
    renewed_[i].next = std::move(socket);
    // The peer knows more than this rank.
    if (streams_[i]->way() != WayState::kTorn) streams_[i]->abandon();
  }
}

bool TcpConnection::renew_stream(size_t index, uint64_t now) {
  FrameStream& stream = *streams_[index];
  Renewed& renewed = renewed_[index];
  if (stream.way() != WayState::kOpen && !renewed.is_told) note_torn(index);
  // A peer that computes answers a greeting later: that time does not count. But a socket that the peer only
  // closes does not begin the wait anew.
  const uint64_t last_turn_ns = std::exchange(renewed.turn_ns, now);
  const bool has_waited = stream.way() == WayState::kTorn && !renewed.next.is_open();
  if (renewed.waiting_ns != 0 && !has_waited) renewed.waiting_ns += now - last_turn_ns;
  bool moved = false;
  if (renewed.next.is_open() && stream.is_waiting()) {
    auto next = options_.renewal.open(static_cast<uint32_t>(index), std::move(renewed.next));
    renewed.next.reset();
    if (next) stream.renew(std::move(*next));
    moved = true;
  }
  moved |= stream.greet();
  if (stream.state() != PeerState::kOpen) return true;
  if (stream.way() == WayState::kOpen) {
    note_resumed(index);
    return true;
  }
  const bool is_in_vain = options_.renewal.sockets->is_in_vain(options_.peer);
  if (stream.way() == WayState::kGreeting) {
    if (!is_in_vain) return moved;
    stream.tear("the peer is gone");
  }
  if (renewed.waiting_ns == 0) renewed.waiting_ns = now;
  if (is_in_vain) {
    stream.give_up("");
  } else if (now - renewed.waiting_ns >= options_.renewal.patience_ms * 1'000'000) {
    stream.give_up("no new connection came within " + milliseconds(now - renewed.waiting_ns));
  } else if (now - renewed.asked_ns >= options_.renewal.ask_every_ms * 1'000'000) {
    renewed.asked_ns = now;
    options_.renewal.sockets->request(options_.peer, static_cast<uint32_t>(index));
  }
  return moved || stream.state() != PeerState::kOpen;
}

void TcpConnection::note_torn(size_t index) {
  Renewed& renewed = renewed_[index];
  renewed.is_told = true;
  renewed.last = streams_[index]->reason();
  for (const OutFrame& frame : streams_[index]->take_unsent()) {
    FrameStream* other = choose(frame.message_bytes >= kLargeBytes);
    (other != nullptr ? other : streams_[index].get())->queue(frame);
  }
  note_detour();
}

void TcpConnection::note_resumed(size_t index) {
  Renewed& renewed = renewed_[index];
  const uint64_t took_ns = now_ns() - streams_[index]->torn_ns();
  renewed.is_told = false;
  renewed.waiting_ns = renewed.asked_ns = 0;
  ++renewed.times;
  const std::string why = renewed.last;
  renewed.last += ", for " + milliseconds(took_ns);
  if (is_told_of(renewed.times)) {
    log_line(format("%s was torn (%s) and is replaced after %s; %llu bytes are sent again",
                    name_of(index).c_str(), why.c_str(), milliseconds(took_ns).c_str(),
                    static_cast<unsigned long long>(streams_[index]->repeated_bytes())));
  }
  note_detour();
}

void TcpConnection::note_detour() {
  std::string text;
  for (size_t i = 0; i < renewed_.size(); ++i) {
    const Renewed& renewed = renewed_[i];
    if (!renewed.is_told && renewed.times == 0) continue;
    const std::string state = renewed.is_told ? "is torn" : format("was replaced (times: %u)", renewed.times);
    add_to_list(text, format("connection %zu of %zu %s: %s", i + 1, renewed_.size(), state.c_str(),
                             renewed.last.c_str()));
  }
  const std::lock_guard lock(detour_mutex_);
  detour_ = std::move(text);
}

std::string TcpConnection::detour() const {
  const std::lock_guard lock(detour_mutex_);
  return detour_;
}

}  // namespace tutti::tcp
