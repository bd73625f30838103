#include "bootstrap/set_up.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "core/clock.h"

namespace tutti {
namespace {

// How long a rank tries to get into the queue of the id's name on this host before it goes to the network.
// Who serves the name empties the queue as soon as it is ready.
constexpr uint64_t kQueuePatienceMs = 1000;

}  // namespace

Result<Bootstrap> Bootstrap::join(const BootstrapOptions& options, const Config& config) {
  Bootstrap setup(options, config);
  const auto endpoints = unpack_endpoints(options.id.endpoints);
  const bool has_network = endpoints && !endpoints->empty();
  // A rank that was told to be on another host is met there.
  if (config.host_id.empty() || !has_network) {
    const uint64_t patience_ns = has_network ? deadline_after_ms(kQueuePatienceMs) : UINT64_MAX;
    auto local = BootstrapClient::join(options, std::min(options.deadline_ns, patience_ns));
    if (local) {
      setup.local_.emplace(std::move(*local));
      return setup;
    }
    // Nobody is there, or strangers are, or they keep everybody out.
    const Code code = local.status().code();
    const bool is_elsewhere =
        code == Code::kPeerLost || code == Code::kInvalidUsage || code == Code::kTimeout;
    if (!has_network || !is_elsewhere) return local.status();
  }
  TUTTI_TRY(setup.join_network());
  return setup;
}

void Bootstrap::decline(const BootstrapOptions& options, const Config& config, const Status& why) {
  constexpr uint64_t kJoinMs = 5000;
  BootstrapOptions brief = options;
  brief.deadline_ns = std::min(options.deadline_ns, deadline_after_ms(kJoinMs));
  auto setup = join(brief, config);
  if (setup) setup->fail(why);
}

Status Bootstrap::join_network() {
  auto point = bootstrap_address_of(options_.id);
  TUTTI_TRY(point.status());
  auto port = DataPort::open(options_.rank, point->credentials, listen_);
  TUTTI_TRY(port.status());
  port_ = std::move(*port);
  auto meeting = join_bootstrap(options_.deadline_ns, options_.stop);
  if (!meeting && options_.stop != nullptr && options_.stop->is_stopped()) {
    // Nobody knows of this rank yet: all would wait for it.
    constexpr uint64_t kTellMs = 1000;
    auto brief = join_bootstrap(std::min(options_.deadline_ns, deadline_after_ms(kTellMs)), nullptr);
    if (brief) {
      brief->fail(
          {Code::kAborted, format("rank %u has ended its set-up by abort or destroy", options_.rank)});
    }
  }
  TUTTI_TRY(meeting.status());
  network_.emplace(std::move(*meeting));
  return Status::ok();
}

Result<NetworkBootstrap> Bootstrap::join_bootstrap(uint64_t deadline_ns, BootstrapStop* stop) const {
  auto point = bootstrap_address_of(options_.id);
  TUTTI_TRY(point.status());
  return NetworkBootstrap::join(std::move(*point), {.rank_count = options_.rank_count,
                                                    .rank = options_.rank,
                                                    .deadline_ns = deadline_ns,
                                                    .listen = listen_,
                                                    .stop = stop});
}

Result<Blobs> Bootstrap::introduce(const Announce& announce) {
  if (local_) {
    auto all = local_->all_gather(announce({}), false);
    if (all || !local_->is_elsewhere()) return all;
    local_.reset();
    TUTTI_TRY(join_network());
  }
  return network_->all_gather(announce(port_->endpoints()), false);
}

Result<Blobs> Bootstrap::share(std::span<const std::byte> blob) {
  return local_ ? local_->all_gather(blob, false) : network_->all_gather(blob, false);
}

Result<std::vector<FileDescriptor>> Bootstrap::connect(std::span<const DataRequest> requests) {
  return port_->connect(requests, options_.deadline_ns, &*network_);
}

Status Bootstrap::finish() {
  return local_ ? local_->all_gather({}, true).status() : network_->all_gather({}, true).status();
}

Status Bootstrap::find_cause(const Status& own) {
  constexpr uint64_t kPatienceMs = 1000;
  const bool is_met = local_ || network_;
  if (!is_met || own.code() != Code::kPeerLost) return own;
  const uint64_t late_ns = std::min(options_.deadline_ns, deadline_after_ms(kPatienceMs));
  for (;;) {
    TUTTI_TRY(check());
    const uint64_t now = now_ns();
    if (now >= late_ns) return own;
    pollfd readable{.fd = descriptor(), .events = POLLIN, .revents = 0};
    poll(&readable, 1, static_cast<int>((late_ns - now) / 1'000'000 + 1));
  }
}

void Bootstrap::fail(const Status& why) {
  if (local_) return local_->fail(why);
  if (network_) network_->fail(why);
}

}  // namespace tutti
