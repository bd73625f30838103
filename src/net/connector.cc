#include "net/connector.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/random.h"
#include "core/tcp_socket.h"
#include "core/thread.h"

namespace tutti {
namespace {

// How long an address may be silent before the next one is tried (RFC 8305, section 5).
constexpr uint64_t kStaggerNs = 250'000'000;
// The time for one address, from SYN to result.
constexpr uint64_t kAttemptNs = 10'000'000'000;
constexpr uint64_t kFirstRetryNs = 10'000'000;
constexpr uint64_t kLongestRetryNs = 1'000'000'000;
// A flooded listener may drop a rank. A wrong key stays wrong.
constexpr int kKeyRefusalsMax = 3;

/// Whether the kernel has joined a socket to itself. It does if nobody listens at a port of this machine and
/// it picks the same port for the connecting end.
bool is_joined_to_itself(int fd) {
  sockaddr_storage own{}, peer{};
  socklen_t own_length = sizeof(own), peer_length = sizeof(peer);
  return getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
         getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0 &&
         own_length == peer_length && std::memcmp(&own, &peer, own_length) == 0;
}

/// The next close() frees the port at once.
void close_by_reset(int fd) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

}  // namespace

/// Shared with the resolving thread, which may outlive the connector: name services cannot be interrupted.
struct Connector::Resolution {
  FileDescriptor done;
  Result<std::vector<Endpoint>> result = Status(Code::kInternal, "not resolved yet");
};

std::unique_ptr<Connector> Connector::start(EventLoop& loop, ConnectorOptions options, OnDone on_done) {
  std::unique_ptr<Connector> connector(new Connector(loop, std::move(options), std::move(on_done)));
  Connector* raw = connector.get();
  connector->deadline_ = loop.call_at(connector->options_.deadline_ns, [raw] {
    for (const Attempt& attempt : raw->attempts_) {
      raw->reasons_.push_back(attempt.endpoint.text() +
                              (attempt.connected ? " (connected, but no greeting came)" : " (no answer)"));
    }
    raw->finish(raw->unreachable(Code::kTimeout, "was not reached before the deadline"));
  });
  // Begin in the loop, so that `on_done` never runs before start() returns.
  connector->retry_ = loop.call_at(0, [raw] { raw->begin_round(); });
  return connector;
}

Connector::~Connector() {
  while (!attempts_.empty()) drop(attempts_.begin());
  if (resolution_ != nullptr) loop_.forget(resolution_->done.get());
  for (EventLoop::Timer* timer : {&stagger_, &retry_, &deadline_}) loop_.cancel(*timer);
}

void Connector::begin_round() {
  ++rounds_;
  reasons_.clear();
  last_ = final_ = Status::ok();
  transient_ = silent_ = false;
  next_ = 0;
  if (options_.endpoints.empty() && options_.name.host.empty()) {
    return finish(
        Status(Code::kPeerLost, format("%s has only link-local addresses, and no interface of this host "
                                       "has one; see TUTTI_SOCKET_IFNAME there",
                                       options_.who.c_str())));
  }
  if (options_.endpoints.empty()) return begin_resolving();
  targets_ = options_.endpoints;
  try_next();
}

void Connector::begin_resolving() {
  const auto resolution = std::make_shared<Resolution>();
  resolution->done = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!resolution->done.is_open()) return finish(system_error("eventfd", errno));
  const Status watched = loop_.watch(resolution->done.get(), EPOLLIN, [this](uint32_t) { end_resolving(); });
  if (!watched) return finish(watched);
  resolution_ = resolution;
  // Detached: the name service has no deadline. The thread touches only what it owns.
  std::thread thread;
  const Status started = start_thread(thread, "the look-up of a name",
                                      [resolution, resolve = options_.resolve, name = options_.name] {
                                        resolution->result = resolve(name);
                                        const uint64_t one = 1;
                                        // Cannot fail: the counter of a new descriptor has room.
                                        (void)!write(resolution->done.get(), &one, sizeof(one));
                                      });
  if (!started) return finish(started);
  thread.detach();
}

void Connector::end_resolving() {
  loop_.forget(resolution_->done.get());
  const auto resolution = std::move(resolution_);
  uint64_t one = 0;
  // Orders the read of the result after its write, for the thread sanitizer.
  (void)!read(resolution->done.get(), &one, sizeof(one));
  if (!resolution->result) {
    last_ = resolution->result.status();
    reasons_.emplace_back(last_.text());
    transient_ = true;
    return end_round();
  }
  targets_ = std::move(*resolution->result);
  try_next();
}

void Connector::try_next() {
  loop_.cancel(stagger_);
  if (next_ == targets_.size()) {
    if (attempts_.empty()) end_round();
    return;
  }
  const AttemptEntry attempt = attempts_.emplace(attempts_.end());
  attempt->endpoint = targets_[next_++];
  if (next_ < targets_.size()) stagger_ = loop_.call_at(loop_.now() + kStaggerNs, [this] { try_next(); });
  Nonce nonce;
  if (const Status random = fill_random(nonce); !random) return fail(attempt, random);
  attempt->handshake = std::make_unique<ConnectorHandshake>(options_.credentials, options_.claim, nonce);
  sockaddr_storage storage;
  const socklen_t length = attempt->endpoint.to_sockaddr(storage);
  attempt->socket = FileDescriptor(socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!attempt->socket.is_open()) return fail(attempt, system_error("opening a TCP socket", errno));
  const int on = 1;
  setsockopt(attempt->socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  begin_unpaced(attempt->socket.get());
  if (connect(attempt->socket.get(), reinterpret_cast<const sockaddr*>(&storage), length) != 0 &&
      errno != EINPROGRESS) {
    const int error = errno;
    attempt->socket.reset();
    transient_ = transient_ || options_.patient;
    return fail(attempt, {Code::kPeerLost, std::strerror(error)});
  }
  const Status watched = loop_.watch(attempt->socket.get(), EPOLLIN | EPOLLOUT,
                                     [this, attempt](uint32_t events) { ready(attempt, events); });
  if (!watched) {
    attempt->socket.reset();
    return fail(attempt, watched);
  }
  attempt->deadline = loop_.call_at(loop_.now() + kAttemptNs, [this, attempt] {
    silent_ = true;
    fail(attempt,
         {Code::kPeerLost, attempt->connected ? "connected, but tutti does not answer there" : "no answer"});
  });
}

Status Connector::advance(Attempt& attempt, uint32_t events) {
  const int fd = attempt.socket.get();
  if (!attempt.connected) {
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error == 0 && is_joined_to_itself(fd)) {
      close_by_reset(fd);  // else the listener would find its port taken
      error = ECONNREFUSED;
    }
    if (error != 0) {
      // Perhaps nobody listens there yet. The caller knows (`patient`).
      transient_ = transient_ || options_.patient;
      return {Code::kPeerLost, std::strerror(error)};
    }
    attempt.connected = true;
    choose_congestion_control(fd);
    loop_.change(fd, EPOLLIN);
  }
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) == 0) return Status::ok();
  std::array<std::byte, kResponseBytes> buffer;
  const ssize_t got = recv(fd, buffer.data(), attempt.handshake->wanted(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Status::ok();
  if (got <= 0) {
    // A flooded listener drops peers that it does not know yet.
    transient_ = true;
    return {Code::kPeerLost,
            got == 0 ? "it closed the connection during the handshake" : std::strerror(errno)};
  }
  TUTTI_TRY(attempt.handshake->feed(std::span(buffer).first(static_cast<size_t>(got))));
  const auto output = attempt.handshake->output();
  if (output.empty()) return Status::ok();
  // Fits into the empty buffer of a new socket.
  if (send(fd, output.data(), output.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(output.size())) {
    transient_ = true;
    return {Code::kPeerLost, "it closed the connection during the handshake"};
  }
  attempt.handshake->sent(output.size());
  return Status::ok();
}

void Connector::ready(AttemptEntry attempt, uint32_t events) {
  const Status status = advance(*attempt, events);
  if (!status) {
    // Another attempt may already be connected here, and an untried address may lead elsewhere.
    if (attempt->handshake->refusal_is_final()) {
      final_ =
          Status(status.code(), format("%s at %s: %s", options_.who.c_str(), attempt->endpoint.text().c_str(),
                                       std::string(status.text()).c_str()));
    }
    return fail(attempt, status);
  }
  if (!attempt->handshake->is_done()) return;
  loop_.forget(attempt->socket.get());
  FileDescriptor socket = std::move(attempt->socket);
  finish(std::move(socket));
}

void Connector::fail(AttemptEntry attempt, const Status& why) {
  reasons_.push_back(attempt->endpoint.text() + " (" + std::string(why.text()) + ")");
  if (last_.is_ok() || why.code() != Code::kPeerLost) last_ = why;
  drop(attempt);
  try_next();
}

void Connector::drop(AttemptEntry attempt) {
  loop_.cancel(attempt->deadline);
  if (attempt->socket.is_open()) {
    loop_.forget(attempt->socket.get());
    if (!attempt->handshake->has_responded()) say_farewell(attempt->socket.get());
  }
  attempts_.erase(attempt);
}

/// Fails for an attempt that is not connected, or broken: then nobody takes it for a stranger's.
void Connector::say_farewell(int socket) const {
  // Unread bytes would turn the end of the connection into a reset, which may overtake the farewell.
  std::array<std::byte, kChallengeBytes> challenge;
  static_cast<void>(recv(socket, challenge.data(), challenge.size(), MSG_DONTWAIT));
  const auto farewell = farewell_of(options_.credentials);
  static_cast<void>(send(socket, farewell.data(), farewell.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

/// Tries again if that may help. Where one address refuses for good, a silent one leads nowhere.
void Connector::end_round() {
  if (!final_ && !transient_) return finish(final_);
  if (last_.code() == Code::kInvalidArgument) ++key_refusals_;
  const bool again =
      last_.code() == Code::kInvalidArgument ? key_refusals_ < kKeyRefusalsMax : transient_ || silent_;
  if (!again) return finish(unreachable(last_.code(), "cannot be reached"));
  const uint64_t pause_ns = std::min(kFirstRetryNs << std::min(rounds_ - 1, 10), kLongestRetryNs);
  retry_ = loop_.call_at(loop_.now() + pause_ns, [this] { begin_round(); });
}

Status Connector::unreachable(Code code, const char* what) const {
  std::string text = options_.who + " " + what;
  std::string separator = ": tried ";
  for (const std::string& reason : reasons_) {
    text += separator + reason;
    separator = ", ";
  }
  if (reasons_.empty() && !options_.name.host.empty())
    text += ": the name " + options_.name.host + " is not known yet";
  return {code, text};
}

void Connector::finish(Result<FileDescriptor> result) {
  while (!attempts_.empty()) drop(attempts_.begin());
  loop_.cancel(stagger_);
  loop_.cancel(retry_);
  loop_.cancel(deadline_);
  // Moved out, because the callback may destroy this connector.
  const auto on_done = std::exchange(on_done_, nullptr);
  on_done(std::move(result));
}

}  // namespace tutti
