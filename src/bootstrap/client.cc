#include "bootstrap/client.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace tutti {
namespace {

constexpr uint64_t kFlushNs = 1'000'000'000;
constexpr std::string_view kScheme = "tutti://";

}  // namespace

/// Destroyed from last to first: later members use the loop.
struct BootstrapClient::Parts {
  uint32_t rank_count = 0;
  uint32_t rank = 0;
  uint64_t deadline_ns = 0;
  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<StopWatch> stop;
  bool is_over = false;  ///< no rank needs service any more
  std::unique_ptr<Rendezvous> rendezvous;
  std::unique_ptr<BootstrapNode> node;
};

Result<BootstrapAddress> bootstrap_address_of(const UniqueId& id) {
  TUTTI_TRY(check_unique_id(id));
  auto endpoints = unpack_endpoints(id.endpoints);
  TUTTI_TRY(endpoints.status());
  if (endpoints->empty()) {
    return Status(Code::kInvalidArgument, "argument id has no network address: it is for one host only");
  }
  const auto own = list_interface_addresses();
  BootstrapAddress address;
  address.credentials = credentials_of(id);
  address.endpoints = own ? with_scopes(std::move(*endpoints), *own) : std::move(*endpoints);
  return address;
}

Result<BootstrapAddress> bootstrap_address_of_url(std::string_view url, std::string_view secret, bool serve) {
  if (!url.starts_with(kScheme)) {
    return Status(Code::kInvalidArgument,
                  format("\"%.*s\" is not the address of a rendezvous: it must be tutti://HOST:PORT",
                         static_cast<int>(url.size()), url.data()));
  }
  auto name = parse_host_port(url.substr(kScheme.size()));
  TUTTI_TRY(name.status());
  if (secret.empty()) {
    return Status(
        Code::kInvalidArgument,
        format("the rendezvous %.*s needs a key: set TUTTI_KEY or TUTTI_KEY_FILE to the same on all "
               "ranks",
               static_cast<int>(url.size()), url.data()));
  }
  BootstrapAddress address;
  // Ranks may have other names for the same host.
  address.credentials = credentials_from_text(secret, format("port %d", int{name->port}));
  address.patient = true;
  if (serve) {
    auto listener = listen_at({.interfaces = "",
                               .port_first = name->port,
                               .port_last = name->port,
                               .ports_from = "the rendezvous " + std::string(url)});
    TUTTI_TRY(listener.status());
    // The server needs no name service.
    address.endpoints = listener->endpoints;
    address.serve = std::move(*listener);
  } else {
    address.name = std::move(*name);
  }
  return address;
}

BootstrapClient::~BootstrapClient() = default;
BootstrapClient::BootstrapClient(BootstrapClient&&) noexcept = default;

Result<BootstrapClient> BootstrapClient::join(BootstrapAddress address,
                                              const BootstrapClientOptions& options) {
  BootstrapClient client;
  client.parts_ = std::make_unique<Parts>();
  Parts& parts = *client.parts_;
  parts.rank_count = options.rank_count;
  parts.rank = options.rank;
  parts.deadline_ns = options.deadline_ns;
  auto loop = EventLoop::create();
  TUTTI_TRY(loop.status());
  parts.loop = std::move(*loop);
  auto stop = StopWatch::start(*parts.loop, options.stop);
  TUTTI_TRY(stop.status());
  parts.stop = std::move(*stop);
  if (address.serve) {
    RendezvousOptions serve;
    serve.credentials = address.credentials;
    serve.listener = std::move(*address.serve);
    serve.on_end = [&parts] { parts.is_over = true; };
    auto served = Rendezvous::open(*parts.loop, std::move(serve));
    TUTTI_TRY(served.status());
    parts.rendezvous = std::move(*served);
  }
  NodeOptions node_options;
  node_options.credentials = address.credentials;
  node_options.rendezvous = std::move(address.endpoints);
  node_options.rendezvous_name = std::move(address.name);
  node_options.patient = address.patient;
  node_options.rank_count = options.rank_count;
  node_options.rank = options.rank;
  node_options.deadline_ns = options.deadline_ns;
  node_options.listen = options.listen;
  auto node = BootstrapNode::start(*parts.loop, std::move(node_options), std::move(address.local));
  TUTTI_TRY(node.status());
  parts.node = std::move(*node);
  client.run_until([&] { return parts.node->is_known() || !parts.node->failure().is_ok(); });
  if (parts.stop->is_stopped()) return stopped_status();
  if (const Status& failure = parts.node->failure(); !failure) return client.end(failure);
  return client;
}

Status BootstrapClient::end(const Status& why) {
  stay(why);
  return why;
}

void BootstrapClient::stay(const Status& why) {
  Parts& parts = *parts_;
  if (parts.rendezvous == nullptr) return;
  parts.rendezvous->fail(why.code(), std::string(why.text()));
  run_until_late(parts.loop->now() + kFlushNs, [&parts] { return parts.node->is_drained(); });
  parts.node->close();
  run_until_late(std::min(parts.deadline_ns, deadline_after_ms(kStayMs)),
                 [&parts] { return parts.is_over || parts.stop->is_stopped(); });
}

void BootstrapClient::run_until(const std::function<bool()>& done) {
  parts_->loop->run_until([&] { return parts_->stop->is_stopped() || done(); });
}

Result<Blobs> BootstrapClient::all_gather(std::span<const std::byte> blob, bool last) {
  // Shared, because a stopped bootstrap may answer after this call has returned.
  const auto result = std::make_shared<std::optional<Result<BootstrapNode::Table>>>();
  parts_->node->all_gather(blob, last,
                           [result](Result<BootstrapNode::Table> table) { *result = std::move(table); });
  run_until([&] { return result->has_value(); });
  if (parts_->stop->is_stopped()) {
    // Other ranks should not wait for the deadline.
    fail({Code::kAborted, format("rank %u has ended its set-up by abort or destroy", parts_->rank)});
    return stopped_status();
  }
  if (!**result) {
    // Without a failure, the shape has changed.
    return parts_->node->failure() ? (*result)->status() : end((*result)->status());
  }
  // Other ranks wait for data that goes through this rank.
  run_until_late(std::max(parts_->deadline_ns, parts_->loop->now() + kFlushNs),
                 [this] { return parts_->stop->is_stopped() || parts_->node->is_drained(); });
  return unpack_blobs(****result, parts_->rank_count);
}

void BootstrapClient::fail(const Status& why) {
  parts_->node->fail(why);
  run_until_late(parts_->loop->now() + kFlushNs,
                 [this] { return !parts_->node->failure().is_ok() && parts_->node->is_drained(); });
  if (!parts_->stop->is_stopped()) stay(why);
}

bool BootstrapClient::is_network() const {
  return parts_->node->shape() == BootstrapShape::kTree;
}

int BootstrapClient::descriptor() const {
  return parts_->loop->descriptor();
}

Status BootstrapClient::add_alarm() {
  return parts_->loop->add_alarm();
}

Status BootstrapClient::check() {
  while (parts_->loop->run_ready()) {
  }
  return parts_->stop->is_stopped() ? stopped_status() : parts_->node->failure();
}

void BootstrapClient::run_until_late(uint64_t late_ns, const std::function<bool()>& done) {
  bool late = false;
  EventLoop& loop = *parts_->loop;
  EventLoop::Timer timer = loop.call_at(late_ns, [&late] { late = true; });
  loop.run_until([&] { return late || done(); });
  loop.cancel(timer);
}

}  // namespace tutti
