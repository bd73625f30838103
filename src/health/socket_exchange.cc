#include "health/socket_exchange.h"

#include "core/log.h"

namespace tutti {
namespace {

/// How long a rank listens after the last request, and how long the other one tries. Requests are repeated.
constexpr uint64_t kPatienceNs = 5'000'000'000;
/// The channels of DataRequest of set-up are smaller.
constexpr uint32_t kRenewedChannel = 1u << 16;

}  // namespace

void SocketExchange::open(Options options) {
  const auto hold = control_.hold();
  options_ = std::move(options);
  is_open_ = true;
}

void SocketExchange::close() {
  const auto hold = control_.hold();
  is_open_ = false;
  connectors_.clear();
  stop_listening();
}

void SocketExchange::request(uint32_t peer, uint32_t index) {
  const auto hold = control_.hold();
  if (!is_open_ || is_in_vain(peer)) return;
  if (peer < options_.rank) return listen_for({peer, index});
  // An attempt under way may end well.
  if (!connectors_.contains({peer, index}))
    options_.send(peer, {.kind = FrameKind::kRenew, .first = index}, {});
}

void SocketExchange::handle(uint32_t peer, const Frame& frame) {
  const uint32_t index = frame.header.first;
  if (!is_open_ || index >= options_.sockets) return;
  if (peer < options_.rank) return listen_for({peer, index});
  dial({peer, index}, frame.body);
}

/// Tells the peer, each time, where this rank listens.
void SocketExchange::listen_for(const Name& name) {
  EventLoop& loop = control_.loop();
  if (acceptor_ == nullptr) {
    auto listener = listen_at(options_.listen);
    if (!listener) {
      log_line(format("rank %u cannot replace a torn connection: %s", options_.rank,
                      std::string(listener.status().text()).c_str()));
      return;
    }
    endpoints_ = pack_endpoints(listener->endpoints);
    AcceptorOptions acceptor;
    acceptor.credentials = options_.credentials;
    acceptor.judge = [this](const Claim& claim) {
      if (claim.to != options_.rank) return HandshakeResult::kWrongRank;
      const bool fits = claim.purpose == Purpose::kData && claim.channel >= kRenewedChannel &&
                        awaited_.contains({claim.from, claim.channel - kRenewedChannel});
      return fits ? HandshakeResult::kAccepted : HandshakeResult::kUnexpected;
    };
    acceptor.on_peer = [this](const Claim& claim, FileDescriptor socket) {
      const Name accepted(claim.from, claim.channel - kRenewedChannel);
      awaited_.erase(accepted);
      arrive(accepted, std::move(socket));
    };
    auto opened = Acceptor::open(loop, std::move(listener->socket), std::move(acceptor));
    if (!opened) return;
    acceptor_ = std::move(*opened);
  }
  awaited_.insert(name);
  loop.cancel(patience_);
  patience_ = loop.call_at(loop.now() + kPatienceNs, [this] { stop_listening(); });
  options_.send(name.first, {.kind = FrameKind::kRenew, .first = name.second}, endpoints_);
}

void SocketExchange::stop_listening() {
  control_.loop().cancel(patience_);
  acceptor_.reset();
  awaited_.clear();
}

void SocketExchange::dial(const Name& name, std::span<const std::byte> packed) {
  // One attempt at a time: a socket of an older one must not follow a newer one.
  if (packed.size() != kPackedEndpointsBytes || connectors_.contains(name)) return;
  auto endpoints = unpack_endpoints(packed.first<kPackedEndpointsBytes>());
  if (!endpoints) return;
  const auto own = list_interface_addresses();
  ConnectorOptions options;
  options.who = format("rank %u", name.first);
  options.endpoints = own ? with_scopes(std::move(*endpoints), *own) : std::move(*endpoints);
  options.claim = {.purpose = Purpose::kData,
                   .from = options_.rank,
                   .to = name.first,
                   .channel = kRenewedChannel + name.second};
  options.credentials = options_.credentials;
  options.deadline_ns = control_.loop().now() + kPatienceNs;
  connectors_[name] =
      Connector::start(control_.loop(), std::move(options), [this, name](Result<FileDescriptor> socket) {
        // Off the list first: where memory is short, this attempt must not keep out the next one.
        const auto ended = connectors_.extract(name);
        if (socket) arrive(name, std::move(*socket));
      });
}

void SocketExchange::arrive(const Name& name, FileDescriptor socket) {
  const std::lock_guard lock(mutex_);
  arrived_[name] = std::move(socket);
  arrivals_.fetch_add(1, std::memory_order_release);
}

FileDescriptor SocketExchange::take(uint32_t peer, uint32_t index) {
  const std::lock_guard lock(mutex_);
  const auto found = arrived_.find({peer, index});
  if (found == arrived_.end()) return {};
  FileDescriptor socket = std::move(found->second);
  arrived_.erase(found);
  return socket;
}

void SocketExchange::give_up(uint32_t peer) noexcept {
  const std::lock_guard lock(mutex_);
  gone_[peer] = true;
}

bool SocketExchange::is_in_vain(uint32_t peer) const {
  const std::lock_guard lock(mutex_);
  return gone_[peer];
}

}  // namespace tutti
