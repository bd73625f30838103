#include "bootstrap/servers.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "net/local_socket.h"

namespace tutti {
namespace {

// Limits the descriptors of a program that keeps trying.
constexpr size_t kFailuresKept = 16;

/// No endpoints if this host has no network.
Result<Listener> listen_to(const std::optional<ListenOptions>& network) {
  if (!network) return Listener();
  auto listener = listen_at(*network);
  const bool is_wish = network->port_first != 0;
  if (!listener && listener.status().code() == Code::kSystemError && !is_wish) return Listener();
  return listener;
}

/// Waits as stay() does.
Status await_end(const BootstrapOptions& rank, BootstrapStop& ended) {
  const auto loop = EventLoop::create();
  TUTTI_TRY(loop.status());
  const auto end = StopWatch::start(**loop, &ended);
  TUTTI_TRY(end.status());
  const auto stop = StopWatch::start(**loop, rank.stop);
  TUTTI_TRY(stop.status());
  bool is_late = false;
  (*loop)->call_at(std::min(rank.deadline_ns, deadline_after_ms(kStayMs)), [&is_late] { is_late = true; });
  (*loop)->run_until([&] { return is_late || (*end)->is_stopped() || (*stop)->is_stopped(); });
  return Status::ok();
}

}  // namespace

BootstrapServers::~BootstrapServers() {
  const auto hold = control_.hold();
  served_.clear();
}

Result<UniqueId> BootstrapServers::open(const BootstrapServerOptions& options) {
  RendezvousOptions rendezvous;
  rendezvous.remember_ms = options.remember_ms;
  auto listener = listen_to(options.network);
  TUTTI_TRY(listener.status());
  rendezvous.listener = std::move(*listener);
  auto id = make_unique_id(rendezvous.listener.endpoints);
  TUTTI_TRY(id.status());
  auto local = local_listen(local_name_of(*id), LocalKind::kStream);
  TUTTI_TRY(local.status());
  rendezvous.local = std::move(*local);
  TUTTI_TRY(serve(*id, std::move(rendezvous)));
  return id;
}

Status BootstrapServers::serve(const UniqueId& id, RendezvousOptions options) {
  const BootstrapTag name = id.nonce;
  options.credentials = credentials_of(id);
  options.on_fail = [this, name](const Status&) { remember(name); };
  options.on_end = [this, name] { end(name); };
  const auto hold = control_.hold();
  auto rendezvous = Rendezvous::open(control_.loop(), std::move(options));
  TUTTI_TRY(rendezvous.status());
  served_[name] = {id, std::move(*rendezvous), {}};
  return Status::ok();
}

void BootstrapServers::stay(const BootstrapOptions& rank, const Status& why) {
  BootstrapStop ended;
  const BootstrapTag name = rank.id.nonce;
  {
    const auto hold = control_.hold();
    const auto found = served_.find(name);
    // A damaged id says nothing about this bootstrap.
    if (found == served_.end() || !equal_secrets(rank.id.key, found->second.id.key)) return;
    found->second.waiters.push_back(&ended);
    found->second.rendezvous->give_up(rank.rank_count, rank.rank, why);
  }
  // Whatever fails here, `ended` must leave the list.
  static_cast<void>(contained([&] { return await_end(rank, ended); }));
  const auto hold = control_.hold();
  if (const auto found = served_.find(name); found != served_.end()) {
    std::erase(found->second.waiters, &ended);
  }
}

void BootstrapServers::remember(const BootstrapTag& name) {
  failed_.push_back(name);
  if (failed_.size() <= kFailuresKept) return;
  // Ending it removes it from the list.
  served_.at(failed_.front()).rendezvous->end();
}

void BootstrapServers::end(const BootstrapTag& name) {
  std::erase(failed_, name);
  auto served = served_.extract(name);
  if (!served) return;
  for (BootstrapStop* waiter : served.mapped().waiters) waiter->stop();
}

}  // namespace tutti
