#include "bootstrap/bootstrap.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "net/local_socket.h"

namespace tutti {
namespace {

// How long a rank waits for room in the Unix socket's queue before it uses the network. A working rendezvous
// empties the queue at once.
constexpr uint64_t kQueuePatienceMs = 1000;

}  // namespace

Result<Bootstrap> Bootstrap::join(const BootstrapOptions& options, const Config& config) {
  Bootstrap bootstrap(options, config);
  const auto endpoints = unpack_endpoints(options.id.endpoints);
  const bool has_network = endpoints && !endpoints->empty();
  // TUTTI_HOSTID emulates other hosts: their ranks use the network.
  if (config.host_id.empty() || !has_network) {
    const uint64_t patience_ns = has_network ? deadline_after_ms(kQueuePatienceMs) : UINT64_MAX;
    const Status joined = bootstrap.join_locally(std::min(options.deadline_ns, patience_ns));
    if (joined) return bootstrap;
    // Nobody listens there, or another user does, or the queue stays full.
    const Code code = joined.code();
    const bool is_elsewhere =
        code == Code::kPeerLost || code == Code::kInvalidUsage || code == Code::kTimeout;
    if (!has_network || !is_elsewhere) return joined;
  }
  TUTTI_TRY(bootstrap.join_network());
  return bootstrap;
}

Status Bootstrap::join_locally(uint64_t connect_deadline_ns) {
  return join_by([&](uint64_t deadline_ns, BootstrapStop* stop) -> Result<BootstrapAddress> {
    const auto check = [stop] {
      return stop != nullptr && stop->is_stopped() ? stopped_status() : Status::ok();
    };
    auto connection = local_connect(local_name_of(options_.id), std::min(connect_deadline_ns, deadline_ns),
                                    check, LocalKind::kStream);
    TUTTI_TRY(connection.status());
    BootstrapAddress address;
    address.credentials = credentials_of(options_.id);
    address.local = std::move(*connection);
    return address;
  });
}

Status Bootstrap::join_network() {
  TUTTI_TRY(open_port());
  return join_by([this](uint64_t, BootstrapStop*) { return bootstrap_address_of(options_.id); });
}

Status Bootstrap::join_by(const FindAddress& find_address) {
  const auto try_to_join = [&](uint64_t deadline_ns, BootstrapStop* stop) -> Result<BootstrapClient> {
    auto address = find_address(deadline_ns, stop);
    TUTTI_TRY(address.status());
    return join_at(std::move(*address), deadline_ns, stop);
  };
  auto client = try_to_join(options_.deadline_ns, options_.stop);
  if (!client && options_.stop != nullptr && options_.stop->is_stopped()) {
    // No other rank knows of this one, so all would wait for it.
    constexpr uint64_t kTellMs = 1000;
    auto brief = try_to_join(std::min(options_.deadline_ns, deadline_after_ms(kTellMs)), nullptr);
    if (brief) {
      brief->fail(
          {Code::kAborted, format("rank %u has ended its set-up by abort or destroy", options_.rank)});
    }
  }
  TUTTI_TRY(client.status());
  client_.emplace(std::move(*client));
  return Status::ok();
}

Status Bootstrap::open_port() {
  auto port = DataPort::open(options_.rank, credentials_of(options_.id), listen_);
  TUTTI_TRY(port.status());
  port_ = std::move(*port);
  return Status::ok();
}

Result<BootstrapClient> Bootstrap::join_at(BootstrapAddress address, uint64_t deadline_ns,
                                           BootstrapStop* stop) const {
  return BootstrapClient::join(std::move(address), {.rank_count = options_.rank_count,
                                                    .rank = options_.rank,
                                                    .deadline_ns = deadline_ns,
                                                    .listen = listen_,
                                                    .stop = stop});
}

Result<Blobs> Bootstrap::introduce(const Announce& announce) {
  if (!is_network()) {
    auto all = client_->all_gather(announce({}), false);
    if (all || !is_network()) return all;
  }
  if (port_ == nullptr) TUTTI_TRY(open_port());
  return client_->all_gather(announce(port_->endpoints()), false);
}

Result<Blobs> Bootstrap::share(std::span<const std::byte> blob) {
  return client_->all_gather(blob, false);
}

Result<std::vector<FileDescriptor>> Bootstrap::connect(std::span<const DataRequest> requests) {
  return port_->connect(requests, options_.deadline_ns, &*client_);
}

Result<Blobs> Bootstrap::finish(std::span<const std::byte> blob) {
  return client_->all_gather(blob, true);
}

Status Bootstrap::find_cause(const Status& own) {
  constexpr uint64_t kPatienceMs = 1000;
  if (own.code() != Code::kPeerLost) return own;
  const uint64_t late_ns = std::min(options_.deadline_ns, deadline_after_ms(kPatienceMs));
  for (;;) {
    TUTTI_TRY(check());
    const uint64_t now = now_ns();
    if (now >= late_ns) return own;
    pollfd readable{.fd = descriptor(), .events = POLLIN, .revents = 0};
    poll(&readable, 1, static_cast<int>((late_ns - now) / 1'000'000 + 1));
  }
}

}  // namespace tutti
