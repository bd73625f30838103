#include "net/acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/random.h"
#include "core/tcp_socket.h"

namespace tutti {
namespace {

// Connections accepted in one turn, so that a flood leaves time for existing ones.
constexpr int kAcceptsPerTurn = 64;
constexpr uint64_t kPauseNs = 10'000'000;
// How long a lack of descriptors may last, since the application may close some.
constexpr uint64_t kStarvedNs = 1'000'000'000;

// The share of descriptors for unproved connections, and the minimum for ranks that come together.
constexpr rlim_t kStrangersShare = 8;
constexpr rlim_t kLeastPending = 8;

/// The index is a Stranger.
constexpr std::array<const char*, kStrangerKinds> kStrangerTexts = {
    "closed the connection without a word", "closed the connection before it proved anything",
    "does not know the key of this bootstrap", "did not prove itself in time",
    "had to make room for others before it proved anything"};

uint32_t most_pending(uint32_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  const rlim_t share = std::max(limit.rlim_cur / kStrangersShare, kLeastPending);
  return static_cast<uint32_t>(std::min<rlim_t>(wanted, share));
}

/// Where memory is short the connection ends: what has been read of a proof does not come again, and the peer
/// tries again.
template <class Step, class End>
Status step_or_end(const Step& step, const End& end) {
  try {
    return step();
  } catch (...) {
    end();
    throw;
  }
}

Endpoint endpoint_of(const sockaddr_storage& address) {
  const auto endpoint = Endpoint::from_sockaddr(reinterpret_cast<const sockaddr*>(&address));
  return endpoint ? *endpoint : Endpoint();
}

}  // namespace

Result<std::unique_ptr<Acceptor>> Acceptor::open(EventLoop& loop, FileDescriptor listener,
                                                 AcceptorOptions options) {
  options.pending_max = most_pending(options.pending_max);
  std::unique_ptr<Acceptor> acceptor(new Acceptor(loop, std::move(listener), std::move(options)));
  TUTTI_TRY(
      loop.watch(acceptor->listener_.get(), EPOLLIN, [raw = acceptor.get()](uint32_t) { raw->accept(); }));
  return acceptor;
}

Acceptor::~Acceptor() {
  while (!pending_.empty()) end(pending_.begin());
  loop_.cancel(resume_);
  loop_.forget(listener_.get());
}

void Acceptor::accept() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    sockaddr_storage peer{};
    socklen_t length = sizeof(peer);
    FileDescriptor socket(
        accept4(listener_.get(), reinterpret_cast<sockaddr*>(&peer), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.is_open()) {
      starved_ns_ = 0;
      if (pending_.size() >= options_.pending_max) displace();
      admit(std::move(socket), endpoint_of(peer));
      continue;
    }
    const int error_number = errno;
    if (error_number == EINTR || error_number == ECONNABORTED) continue;
    if ((error_number == EMFILE || error_number == ENFILE) && !displace()) pause(error_number);
    return;
  }
}

bool Acceptor::displace() {
  if (pending_.empty()) return false;
  refuse_stranger(pending_.begin(), counts_.displaced, Stranger::kDisplaced);
  return true;
}

/// Without descriptors the listener would stay ready forever.
void Acceptor::pause(int error_number) {
  const uint64_t now = loop_.now();
  if (starved_ns_ == 0) starved_ns_ = now;
  resume_ = loop_.call_at(now + kPauseNs, [this] { loop_.change(listener_.get(), EPOLLIN); });
  loop_.change(listener_.get(), 0);
  if (now - starved_ns_ < kStarvedNs || !options_.on_starved) return;
  const auto on_starved = std::exchange(options_.on_starved, nullptr);
  on_starved(system_error("accepting connections of other ranks", error_number));
}

void Acceptor::admit(FileDescriptor socket, const Endpoint& peer) {
  Nonce nonce;
  if (!fill_random(nonce)) return;
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const int fd = socket.get();
  const PendingEntry entry = pending_.insert(
      pending_.end(), {std::move(socket), peer, false,
                       AcceptorHandshake(options_.credentials, nonce, options_.judge), EventLoop::Timer{}});
  const auto watch = [&]() -> Status {
    TUTTI_TRY(loop_.watch(fd, EPOLLIN, [this, entry](uint32_t) { ready(entry); }));
    entry->deadline = loop_.call_at(loop_.now() + options_.proof_timeout_ms * 1'000'000, [this, entry] {
      refuse_stranger(entry, counts_.timed_out, Stranger::kStalled);
    });
    return Status::ok();
  };
  const Status watched = step_or_end(watch, [&] { end(entry); });
  if (!watched || !write(*entry)) end(entry);
}

/// Every message fits into a new socket's empty buffer: a partial write means a broken peer.
bool Acceptor::write(Pending& pending) {
  const auto output = pending.handshake.output();
  if (output.empty()) return true;
  const ssize_t sent = send(pending.socket.get(), output.data(), output.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(output.size())) return false;
  pending.handshake.sent(output.size());
  return true;
}

void Acceptor::ready(PendingEntry entry) {
  std::array<std::byte, kResponseBytes> buffer;
  const ssize_t got = recv(entry->socket.get(), buffer.data(), entry->handshake.wanted(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    if (entry->handshake.is_given_up()) return refuse(entry, counts_.refused);
    return refuse_stranger(entry, counts_.refused, entry->spoke ? Stranger::kBroke : Stranger::kSilent);
  }
  entry->spoke = true;
  const auto feed = [&] { return entry->handshake.feed(std::span(buffer).first(static_cast<size_t>(got))); };
  const Status fed = step_or_end(feed, [&] { end(entry); });
  const bool written = write(*entry);
  if (!fed && fed.code() == Code::kInvalidArgument) {
    return refuse_stranger(entry, counts_.refused, Stranger::kNoProof);
  }
  if (!fed) return refuse(entry, counts_.refused);
  if (!entry->handshake.is_done()) return;
  if (!written) return refuse(entry, counts_.refused);
  ++counts_.accepted;
  const Claim claim = entry->handshake.claim();
  loop_.forget(entry->socket.get());
  FileDescriptor socket = std::move(entry->socket);
  choose_congestion_control(socket.get());
  loop_.cancel(entry->deadline);
  pending_.erase(entry);
  // Copied, because the handler may destroy this acceptor.
  const auto on_peer = options_.on_peer;
  on_peer(claim, std::move(socket));
}

void Acceptor::end(PendingEntry entry) {
  loop_.cancel(entry->deadline);
  loop_.forget(entry->socket.get());
  pending_.erase(entry);
}

void Acceptor::refuse(PendingEntry entry, uint64_t& count) {
  ++count;
  end(entry);
}

void Acceptor::refuse_stranger(PendingEntry entry, uint64_t& count, Stranger kind) {
  const auto index = static_cast<size_t>(kind);
  if (kind == Stranger::kNoProof) last_without_key_ = entry->peer.text();
  if (!std::exchange(told_[index], true) && options_.on_stranger) {
    options_.on_stranger("refused a connection from " + entry->peer.text() + ": it " + kStrangerTexts[index] +
                         "; further connections of this kind are refused silently");
  }
  refuse(entry, count);
}

}  // namespace tutti
