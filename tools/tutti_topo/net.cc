#include "tools/tutti_topo/net.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/config.h"
#include "net/endpoint.h"
#include "net/locality.h"
#include "tools/tutti_topo/net_probe.h"
#include "tutti/tutti.h"

namespace tutti::tool {
namespace {

using Json = nlohmann::json;

/// Ranks that wait for others' tries. A rank that is lost is noticed at once.
constexpr uint64_t kPatienceMs = 24ull * 3600 * 1000;

/// A try that the lower rank of a pair orders from the higher one.
struct Order {
  bool is_last = false;
  bool lower_connects = true;
  NetRail lower;  ///< over TCP, without a name if the higher rank connects to it: its route decides
  NetRail higher;
};

class Job {
 public:
  Job(tutti_comm_t* comm, int rank, int rank_count) : comm_(comm), rank_(rank), rank_count_(rank_count) {}

  Result<NetReport> run();

 private:
  Status send_bytes(int peer, const void* data, size_t bytes) {
    return check(tutti_send(data, bytes, TUTTI_UINT8, peer, 0, comm_, TUTTI_BLOCKING));
  }
  Status receive_bytes(int peer, void* data, size_t bytes) {
    return check(tutti_recv(data, bytes, TUTTI_UINT8, peer, 0, comm_, TUTTI_BLOCKING));
  }
  Status send(int peer, const Json& json);
  Result<Json> receive(int peer);
  Result<std::vector<Json>> gather(const Json& own);
  Status find_hosts();
  Status lead(size_t self, size_t other);
  Status follow(size_t self, size_t other);
  Result<NetPair> order(size_t self, size_t other, const Order& order);
  Status lead_tcp(size_t self, size_t other);

  tutti_comm_t* comm_;
  int rank_;
  int rank_count_;
  NetReport report_;
};

Status Job::send(int peer, const Json& json) {
  const std::string text = json.dump();
  const uint64_t bytes = text.size();
  TUTTI_TRY(send_bytes(peer, &bytes, sizeof(bytes)));
  return send_bytes(peer, text.data(), text.size());
}

Result<Json> Job::receive(int peer) {
  uint64_t bytes = 0;
  TUTTI_TRY(receive_bytes(peer, &bytes, sizeof(bytes)));
  std::string text(bytes, '\0');
  TUTTI_TRY(receive_bytes(peer, text.data(), text.size()));
  return Json::parse(text);
}

Result<std::vector<Json>> Job::gather(const Json& own) {
  std::string text = own.dump();
  const auto count = static_cast<size_t>(rank_count_);
  std::vector<uint64_t> sizes(count);
  const uint64_t bytes = text.size();
  TUTTI_TRY(check(tutti_all_gather(&bytes, sizes.data(), 1, TUTTI_UINT64, comm_, TUTTI_BLOCKING)));
  const uint64_t most = *std::ranges::max_element(sizes);
  text.resize(most);
  std::string all(most * count, '\0');
  TUTTI_TRY(check(tutti_all_gather(text.data(), all.data(), most, TUTTI_UINT8, comm_, TUTTI_BLOCKING)));
  std::vector<Json> result;
  for (size_t i = 0; i < count; ++i) result.push_back(Json::parse(all.substr(i * most, sizes[i])));
  return result;
}

/// The lowest rank of each host tries the host's rails.
Status Job::find_hosts() {
  const auto config = read_config(process_environment());
  TUTTI_TRY(config.status());
  auto own = find_rails();
  TUTTI_TRY(own.status());
  own->rank = rank_;
  const auto all = gather({{"place", find_locality(config->host_id).host}, {"host", *own}});
  TUTTI_TRY(all.status());
  std::vector<uint64_t> places;
  for (const Json& one : *all) {
    const uint64_t place = one.at("place");
    if (std::ranges::find(places, place) != places.end()) continue;
    places.push_back(place);
    report_.hosts.push_back(one.at("host").get<NetHost>());
  }
  return Status::ok();
}

/// The other end of a round robin's round; none: this host rests.
std::optional<size_t> opponent(size_t self, size_t round, size_t hosts) {
  const size_t all = hosts + hosts % 2;
  const size_t turning = all - 1;  // all but the last one
  size_t other = 0;
  if (self == turning) {
    while (2 * other % turning != round) ++other;
  } else {
    other = (round + turning - self % turning) % turning;
    if (other == self) other = turning;
  }
  return other < hosts ? std::optional(other) : std::nullopt;
}

Result<NetReport> Job::run() {
  TUTTI_TRY(find_hosts());
  const auto is_self = [this](const NetHost& host) { return host.rank == rank_; };
  const auto found = std::ranges::find_if(report_.hosts, is_self);
  const size_t hosts = report_.hosts.size();
  if (found != report_.hosts.end()) {
    const auto self = static_cast<size_t>(found - report_.hosts.begin());
    const size_t rounds = hosts < 2 ? 0 : hosts + hosts % 2 - 1;
    for (size_t round = 0; round < rounds; ++round) {
      const auto other = opponent(self, round, hosts);
      if (other) TUTTI_TRY(self < *other ? lead(self, *other) : follow(self, *other));
    }
  }
  const auto all = gather(report_.pairs);
  TUTTI_TRY(all.status());
  report_.pairs.clear();
  for (const Json& pairs : *all) {
    for (const Json& pair : pairs) report_.pairs.push_back(pair.get<NetPair>());
  }
  std::ranges::stable_sort(report_.pairs, {},
                           [](const NetPair& pair) { return std::pair(pair.host_a, pair.host_b); });
  judge(report_);
  return report_;
}

/// The interface by which this host sends to an address; without a name: there is no route.
NetRail route_to(const std::string& address, const std::vector<NetRail>& rails) {
  constexpr uint16_t kAnyPort = 9;
  const auto endpoints = resolve({.host = address, .port = kAnyPort});
  const auto own = list_interface_addresses();
  if (!endpoints || endpoints->empty() || !own) return {};
  sockaddr_storage storage{};
  const socklen_t length = endpoints->front().to_sockaddr(storage);
  // Nothing is sent.
  const FileDescriptor probe(::socket(storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  socklen_t bytes = sizeof(storage);
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&storage), length) != 0 ||
      getsockname(probe.get(), reinterpret_cast<sockaddr*>(&storage), &bytes) != 0)
    return {};
  auto source = Endpoint::from_sockaddr(reinterpret_cast<const sockaddr*>(&storage));
  if (!source) return {};
  source->port = 0;
  const auto from = std::ranges::find_if(*own, [&](const auto& one) { return one.endpoint == *source; });
  if (from == own->end()) return {};
  const auto rail = std::ranges::find_if(
      rails, [&](const NetRail& one) { return one.transport == "tcp" && one.name == from->interface; });
  return rail != rails.end() ? *rail : NetRail{.transport = "tcp", .name = from->interface, .address = {}};
}

std::string unbracketed(const std::string& address) {
  return address.starts_with('[') ? address.substr(1, address.size() - 2) : address;
}

/// Orders a try, and takes part in it.
Result<NetPair> Job::order(size_t self, size_t other, const Order& order) {
  const int peer = report_.hosts[other].rank;
  tutti_unique_id_t id;
  TUTTI_TRY(check(tutti_get_unique_id(&id)));
  TUTTI_TRY(send(peer, {{"is_last", false},
                        {"lower_connects", order.lower_connects},
                        {"lower", order.lower},
                        {"higher", order.higher}}));
  TUTTI_TRY(send_bytes(peer, id.bytes, sizeof(id.bytes)));
  NetFigures figures = run_probe({.rank = order.lower_connects ? 0 : 1, .rail = order.lower, .id = id});
  const auto answer = receive(peer);
  TUTTI_TRY(answer.status());
  const auto theirs = answer->at("figures").get<NetFigures>();
  if (figures.failure.empty()) figures.failure = theirs.failure;
  if (!order.lower_connects) std::swap(figures.there_bytes_per_s, figures.back_bytes_per_s);
  return NetPair{.host_a = self,
                 .rail_a = order.lower,
                 .host_b = other,
                 .rail_b = answer->at("higher").get<NetRail>(),
                 .figures = figures,
                 .remarks = {}};
}

/// Which interface a connection leaves by is decided by the system's routes. So each interface of the higher
/// rank is tried, and then each of the lower rank that no route has used.
Status Job::lead_tcp(size_t self, size_t other) {
  std::vector<std::string> used;
  for (const NetRail& theirs : report_.hosts[other].rails) {
    if (theirs.transport != "tcp") continue;
    NetRail own = route_to(unbracketed(theirs.address), report_.hosts[self].rails);
    if (own.name.empty()) {
      NetFigures none{.failure = "this host has no route to " + theirs.address};
      report_.pairs.push_back(
          {self, {.transport = "tcp", .name = "?", .address = {}}, other, theirs, none, {}});
      continue;
    }
    used.push_back(own.name);
    auto pair = order(self, other, {.lower = std::move(own), .higher = theirs});
    TUTTI_TRY(pair.status());
    report_.pairs.push_back(std::move(*pair));
  }
  for (const NetRail& own : report_.hosts[self].rails) {
    if (own.transport != "tcp" || std::ranges::find(used, own.name) != used.end()) continue;
    auto pair = order(self, other, {.lower_connects = false, .lower = own, .higher = {}});
    TUTTI_TRY(pair.status());
    report_.pairs.push_back(std::move(*pair));
  }
  return Status::ok();
}

Status Job::lead(size_t self, size_t other) {
  for (const NetRail& own : report_.hosts[self].rails) {
    for (const NetRail& theirs : report_.hosts[other].rails) {
      if (own.transport != "rdma" || theirs.transport != "rdma") continue;
      auto pair = order(self, other, {.lower = own, .higher = theirs});
      TUTTI_TRY(pair.status());
      report_.pairs.push_back(std::move(*pair));
    }
  }
  TUTTI_TRY(lead_tcp(self, other));
  return send(report_.hosts[other].rank, {{"is_last", true}});
}

/// Takes part in the lower rank's tries.
Status Job::follow(size_t self, size_t other) {
  const int peer = report_.hosts[other].rank;
  for (;;) {
    const auto order = receive(peer);
    TUTTI_TRY(order.status());
    if (order->at("is_last").get<bool>()) return Status::ok();
    tutti_unique_id_t id;
    TUTTI_TRY(receive_bytes(peer, id.bytes, sizeof(id.bytes)));
    const bool is_target = order->at("lower_connects");
    auto rail = order->at("higher").get<NetRail>();
    if (!is_target) {
      const auto lower = order->at("lower").get<NetRail>();
      rail = route_to(unbracketed(lower.address), report_.hosts[self].rails);
    }
    const NetFigures figures = run_probe({.rank = is_target ? 1 : 0, .rail = rail, .id = id});
    TUTTI_TRY(send(peer, {{"figures", figures}, {"higher", rail}}));
  }
}

}  // namespace

Result<NetReport> try_network(int& rank) {
  // Whatever is wrong with RDMA must not keep the ranks from finding each other. No thread runs yet.
  setenv("TUTTI_TRANSPORT", "tcp", 1);
  int rank_count = 1;
  TUTTI_TRY(check(tutti_launcher_context(&rank, &rank_count, nullptr, nullptr)));
  tutti_unique_id_t id;
  if (rank == 0) TUTTI_TRY(check(tutti_get_unique_id(&id)));
  if (rank_count > 1) TUTTI_TRY(check(tutti_share_unique_id(&id, "launcher", rank, rank_count, 0)));
  tutti_config_t config = TUTTI_CONFIG_INIT;
  config.timeout_ms = kPatienceMs;
  tutti_comm_t* comm = nullptr;
  TUTTI_TRY(check(tutti_comm_create(&comm, rank_count, id, rank, &config)));
  auto report = Job(comm, rank, rank_count).run();
  if (!report) {
    (void)tutti_comm_abort(comm);  // the report's error counts
    return report;
  }
  TUTTI_TRY(check(tutti_comm_destroy(comm)));
  return report;
}

}  // namespace tutti::tool
