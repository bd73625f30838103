// Bootstrap::decline: a rank that cannot take part tells the other ranks why.
//
// The rank may lack what a bootstrap needs: descriptors, an event loop, threads. So it uses one socket and
// calls that block, and says two frames: it joins, and it fails.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "core/clock.h"
#include "core/random.h"
#include "core/version.h"
#include "net/frame.h"
#include "net/handshake.h"
#include "net/local_socket.h"

namespace tutti {
namespace {

constexpr uint64_t kPatienceMs = 5000;
/// Of this process; -1: none.
std::atomic<int> reserved_descriptor{-1};
/// For one address, so that a silent address leaves time for the next one.
constexpr uint64_t kAttemptMs = 1000;

void append(std::vector<std::byte>& bytes, FrameHeader header, std::span<const std::byte> body) {
  header.body_bytes = static_cast<uint32_t>(body.size());
  const auto encoded = encode(header);
  bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  bytes.insert(bytes.end(), body.begin(), body.end());
}

/// Says that the rank joins and fails. Waits for the answer: closing a socket with unread bytes could destroy
/// what is on its way.
void say(const FileDescriptor& socket, const BootstrapOptions& options,
         std::span<const std::byte> credentials, const Status& why, uint64_t deadline_ns) {
  std::vector<std::byte> frames;
  append(
      frames,
      {.kind = FrameKind::kJoin, .first = options.rank, .count = options.rank_count, .number = kVersionCode},
      credentials);
  append(frames, {.kind = FrameKind::kFail, .code = static_cast<uint32_t>(why.code())},
         std::as_bytes(std::span(why.text().substr(0, kMaxFrameText))));
  if (!local_send(socket.get(), frames, {}, deadline_ns)) return;
  FrameReader reader(0);
  std::array<std::byte, 4096> buffer;
  std::vector<Frame> answers;
  const auto is_told = [](const Frame& frame) { return frame.header.kind == FrameKind::kFail; };
  while (std::none_of(answers.begin(), answers.end(), is_told) &&
         wait_ready(socket.get(), POLLIN, deadline_ns)) {
    const ssize_t got = recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got <= 0 || !reader.feed(std::span(buffer).first(static_cast<size_t>(got)), answers)) return;
  }
}

/// Proves to the rendezvous that this rank knows the key.
Status prove(const FileDescriptor& socket, const BootstrapOptions& options, uint64_t deadline_ns) {
  Nonce nonce;
  TUTTI_TRY(fill_random(nonce));
  ConnectorHandshake handshake(
      credentials_of(options.id),
      {.purpose = Purpose::kRendezvous, .from = options.rank, .to = kBootstrapServer}, nonce);
  std::array<std::byte, kResponseBytes> buffer;
  while (!handshake.is_done()) {
    if (!wait_ready(socket.get(), POLLIN, deadline_ns)) return {Code::kTimeout, "no answer"};
    const ssize_t got = recv(socket.get(), buffer.data(), handshake.wanted(), MSG_DONTWAIT);
    if (got <= 0) return {Code::kPeerLost, "it closed the connection"};
    TUTTI_TRY(handshake.feed(std::span(buffer).first(static_cast<size_t>(got))));
    const auto output = handshake.output();
    if (output.empty()) continue;
    TUTTI_TRY(local_send(socket.get(), output, {}, deadline_ns));
    handshake.sent(output.size());
  }
  return Status::ok();
}

/// A connection to the rendezvous at one of its addresses, proved; closed if there is none.
FileDescriptor connect_proved(const BootstrapOptions& options, const Endpoint& endpoint,
                              uint64_t deadline_ns) {
  sockaddr_storage storage;
  const socklen_t length = endpoint.to_sockaddr(storage);
  FileDescriptor socket(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return {};
  const bool begun = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&storage), length) == 0 ||
                     errno == EINPROGRESS;
  if (!begun || !prove(socket, options, deadline_ns)) return {};
  return socket;
}

void say_that_it_cannot_join(const BootstrapOptions& options, const Config& config, const Status& why) {
  const uint64_t deadline_ns = std::min(options.deadline_ns, deadline_after_ms(kPatienceMs));
  auto address = bootstrap_address_of(options.id);
  if (config.host_id.empty() || !address) {
    const auto local = local_connect(local_name_of(options.id), deadline_ns, {}, LocalKind::kStream);
    if (local) return say(*local, options, options.id.key, why, deadline_ns);
  }
  if (!address) return;
  for (const Endpoint& endpoint : address->endpoints) {
    const uint64_t attempt_ns = std::min(deadline_ns, deadline_after_ms(kAttemptMs));
    const FileDescriptor socket = connect_proved(options, endpoint, attempt_ns);
    // Nobody will connect to this rank, so it listens nowhere.
    if (socket.is_open()) return say(socket, options, PackedEndpoints{}, why, deadline_ns);
  }
}

}  // namespace

void Bootstrap::reserve_descriptor() {
  if (reserved_descriptor.load() >= 0) return;
  FileDescriptor fresh(eventfd(0, EFD_CLOEXEC));
  int none = -1;
  if (fresh.is_open() && reserved_descriptor.compare_exchange_strong(none, fresh.get())) fresh.release();
}

void Bootstrap::decline(const BootstrapOptions& options, const Config& config, const Status& why) {
  FileDescriptor(reserved_descriptor.exchange(-1)).reset();
  say_that_it_cannot_join(options, config, why);
  reserve_descriptor();
}

}  // namespace tutti
