#include "meet/gate.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace tutti {
namespace {

// Connections taken in one turn, so that a flood leaves time for those that are here.
constexpr int kAcceptsPerTurn = 64;
// How long to leave new connections in the kernel's queue when descriptors have run out.
constexpr uint64_t kPauseNs = 10'000'000;

std::string peer_text(const sockaddr_storage& address) {
  const auto endpoint = Endpoint::from_sockaddr(reinterpret_cast<const sockaddr*>(&address));
  return endpoint ? endpoint->text() : "an unknown address";
}

}  // namespace

Result<std::unique_ptr<Gate>> Gate::open(EventLoop& loop, FileDescriptor listener, GateOptions options) {
  std::unique_ptr<Gate> gate(new Gate(loop, std::move(listener), std::move(options)));
  TUTTI_TRY(loop.watch(gate->listener_.get(), EPOLLIN, [raw = gate.get()](uint32_t) { raw->accept(); }));
  return gate;
}

Gate::~Gate() {
  while (!pending_.empty()) end(pending_.begin());
  loop_.cancel(resume_);
  loop_.forget(listener_.get());
}

void Gate::accept() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    sockaddr_storage peer{};
    socklen_t length = sizeof(peer);
    FileDescriptor socket(
        accept4(listener_.get(), reinterpret_cast<sockaddr*>(&peer), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.is_open()) {
      if (pending_.size() >= options_.pending_max) displace();
      admit(std::move(socket), peer_text(peer));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if ((errno == EMFILE || errno == ENFILE) && !displace()) pause();
    return;
  }
}

bool Gate::displace() {
  if (pending_.empty()) return false;
  refuse(pending_.begin(), counts_.displaced, "had to make room for others before it proved anything");
  return true;
}

/// Out of descriptors: the listener would be ready for ever.
void Gate::pause() {
  loop_.change(listener_.get(), 0);
  resume_ = loop_.call_at(loop_.now() + kPauseNs, [this] { loop_.change(listener_.get(), EPOLLIN); });
}

void Gate::admit(FileDescriptor socket, std::string peer) {
  Nonce nonce;
  if (!fill_random(nonce)) return;
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const int fd = socket.get();
  const Place place = pending_.insert(
      pending_.end(), {std::move(socket), std::move(peer),
                       AcceptorHandshake(options_.credentials, nonce, options_.judge), EventLoop::Timer{}});
  if (!loop_.watch(fd, EPOLLIN, [this, place](uint32_t) { ready(place); })) {
    pending_.erase(place);
    return;
  }
  place->deadline = loop_.call_at(loop_.now() + options_.proof_timeout_ms * 1'000'000, [this, place] {
    refuse(place, counts_.timed_out, "did not prove itself in time");
  });
  if (!write(*place)) end(place);
}

/// All messages fit into the empty buffer of a new socket: a partial write is a broken peer.
bool Gate::write(Pending& pending) {
  const auto output = pending.handshake.output();
  if (output.empty()) return true;
  const ssize_t sent = send(pending.socket.get(), output.data(), output.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(output.size())) return false;
  pending.handshake.sent(output.size());
  return true;
}

void Gate::ready(Place place) {
  std::array<std::byte, kResponseBytes> buffer;
  const ssize_t got = recv(place->socket.get(), buffer.data(), place->handshake.wanted(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return refuse(place, counts_.refused, "closed the connection before it proved anything");
  const Status fed = place->handshake.feed(std::span(buffer).first(static_cast<size_t>(got)));
  const bool written = write(*place);
  if (!fed) return refuse(place, counts_.refused, std::string(fed.text()));
  if (!place->handshake.is_done()) return;
  if (!written) return refuse(place, counts_.refused, "closed the connection during the handshake");
  ++counts_.accepted;
  const Claim claim = place->handshake.claim();
  loop_.forget(place->socket.get());
  FileDescriptor socket = std::move(place->socket);
  loop_.cancel(place->deadline);
  pending_.erase(place);
  // The owner may close this gate now: a copy of the handler outlives it.
  const auto on_peer = options_.on_peer;
  on_peer(claim, std::move(socket));
}

void Gate::end(Place place) {
  loop_.cancel(place->deadline);
  loop_.forget(place->socket.get());
  pending_.erase(place);
}

void Gate::refuse(Place place, uint64_t& count, const std::string& why) {
  ++count;
  if (options_.on_refused) {
    const auto say = std::exchange(options_.on_refused, nullptr);
    say("refused a connection from " + place->peer + ": it " + why +
        "; further ones are refused without a word");
  }
  end(place);
}

}  // namespace tutti
