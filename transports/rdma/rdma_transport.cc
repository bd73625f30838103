#include "transports/rdma/rdma_transport.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "core/clock.h"
#include "core/log.h"
#include "transports/rdma/device.h"
#include "transports/rdma/errors.h"
#include "transports/rdma/rdma_connection.h"

namespace tutti::rdma {
namespace {

/// Of a rank, for slots. The pieces of a connection are 256 KiB more.
constexpr uint64_t kPinnedBytesMost = 1ull << 30;
/// Looking at a socket costs a system call: once in so many vain turns.
constexpr uint32_t kVainTurnsMost = 256;
constexpr uint64_t kDefaultSilenceMs = 10'000;

class RdmaTransport final : public Transport {
 public:
  RdmaTransport(const TransportOptions& options, std::unique_ptr<const Verbs> verbs, Ports ports)
      : options_(options), verbs_(std::move(verbs)), ports_(std::move(ports)) {
    budget_.left_bytes = kPinnedBytesMost;
    const uint64_t silence_ms =
        options.config.heartbeat_ms > 0 ? options.config.heartbeat_ms : kDefaultSilenceMs;
    queue_pair_.timeout = timeout_for(std::min(silence_ms, options.config.timeout_ms));
    devices_.resize(ports_.contexts.size());
  }

  const TransportTraits& traits() const override { return kRdmaTraits; }
  std::vector<std::byte> address() const override {
    std::vector<PortAddress> ports;
    for (const Port& port : ports_.ports) ports.push_back(port.address);
    return encode_ports(ports);
  }
  uint32_t socket_count() const override { return 1; }
  std::optional<LinkCost> reach(const RankDescription& a, const RankDescription& b) const override;
  Result<Connection*> connect(PeerHandover peer) override;
  Status complete(const SetUpWatch& watch) override;
  bool progress() override;
  bool arm_wait(std::vector<pollfd>& polls) override;

 private:
  Result<Device*> device_of(const Port& port);
  bool poll_devices();
  bool take_completions(Device& device);
  void take_events();
  Status greet_all(size_t& waiting);
  Status late() const;
  void look_at_sockets();

  TransportOptions options_;
  std::unique_ptr<const Verbs> verbs_;
  Ports ports_;
  QueuePairOptions queue_pair_;
  PinBudget budget_;
  std::vector<std::unique_ptr<Device>> devices_;  ///< by context; null: not used
  std::vector<std::unique_ptr<RdmaConnection>> connections_;
  uint32_t vain_turns_ = 0;
};

/// InfiniBand subnets do not reach each other; RoCE v2 is routed.
bool reaches(const PortAddress& a, const PortAddress& b) {
  return a.is_ethernet == b.is_ethernet &&
         (a.is_ethernet || std::equal(a.gid.begin(), a.gid.begin() + 8, b.gid.begin()));
}

std::optional<LinkCost> RdmaTransport::reach(const RankDescription& a, const RankDescription& b) const {
  const auto left = decode_ports(a.address);
  const auto right = decode_ports(b.address);
  if (!left || !right || left->empty() || right->empty()) return std::nullopt;
  if (!reaches(left->front(), right->front())) return std::nullopt;
  // The rate that a software device states is not its own. No RDMA device is slower than 10 Gbit/s Ethernet.
  constexpr uint32_t kLeastMbit = 10'000;
  const uint32_t mbit = std::max(kLeastMbit, std::min(left->front().mbit_per_s, right->front().mbit_per_s));
  return LinkCost{.latency_us = 3, .bytes_per_us = mbit / 8.0};
}

Result<Device*> RdmaTransport::device_of(const Port& port) {
  std::unique_ptr<Device>& device = devices_[port.device];
  if (device == nullptr) {
    const uint32_t each = queue_pair_.sends + queue_pair_.receives;
    auto opened = Device::open(*verbs_, *ports_.contexts[port.device], each * options_.rank_count);
    TUTTI_TRY(opened.status());
    device = std::move(*opened);
  }
  return device.get();
}

Result<Connection*> RdmaTransport::connect(PeerHandover peer) {
  // Pairs of ranks are spread over the ports.
  const Port& port = ports_.ports[(options_.rank + peer.rank) % ports_.ports.size()];
  auto device = device_of(port);
  TUTTI_TRY(device.status());
  auto connection =
      RdmaConnection::make(*verbs_, **device, port, peer.rings, std::move(peer.sockets[0]), budget_,
                           {.rank = options_.rank,
                            .peer = peer.rank,
                            .shape = options_.shape,
                            .epoch = options_.epoch,
                            .number = static_cast<uint32_t>(connections_.size()),
                            .queue_pair = queue_pair_});
  TUTTI_TRY(connection.status());
  (*connection)->set_poll([this] { return poll_devices(); });
  connections_.push_back(std::move(*connection));
  return static_cast<Connection*>(connections_.back().get());
}

Status RdmaTransport::greet_all(size_t& waiting) {
  waiting = 0;
  for (const auto& connection : connections_) {
    TUTTI_TRY(connection->greet());
    if (connection->phase() != RdmaConnection::Phase::kUsable) ++waiting;
  }
  return Status::ok();
}

Status RdmaTransport::complete(const SetUpWatch& watch) {
  for (size_t waiting = 1; true;) {
    poll_devices();
    TUTTI_TRY(greet_all(waiting));
    if (waiting == 0) return Status::ok();
    const uint64_t now = now_ns();
    if (now >= watch.deadline_ns) return late();
    std::vector<pollfd> polls = {{.fd = watch.descriptor, .events = POLLIN, .revents = 0}};
    if (!arm_wait(polls)) {
      const uint64_t left_ms = std::min<uint64_t>((watch.deadline_ns - now) / 1'000'000 + 1, 60'000);
      poll(polls.data(), polls.size(), static_cast<int>(left_ms));  // returning early does no harm
    }
    TUTTI_TRY(watch.check());
  }
}

Status RdmaTransport::late() const {
  std::string who;
  for (const auto& connection : connections_) {
    if (connection->phase() != RdmaConnection::Phase::kUsable)
      add_to_list(who, std::to_string(connection->peer()));
  }
  return {Code::kTimeout,
          format("rank %u: the RDMA connections to these ranks were not usable before the deadline: %s. "
                 "TUTTI_TRANSPORT=tcp avoids RDMA",
                 options_.rank, who.c_str())};
}

bool RdmaTransport::take_completions(Device& device) {
  std::array<ibv_wc, 32> completions;
  bool moved = false;
  for (;;) {
    const int count = ibv_poll_cq(device.queue(), static_cast<int>(completions.size()), completions.data());
    if (count < 0) {
      for (const auto& connection : connections_) connection->fail("its completion queue cannot be read");
      return moved;
    }
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = completions[static_cast<size_t>(i)];
      connections_[WorkId::unpack(completion.wr_id).connection]->complete(completion);
    }
    moved |= count > 0;
    if (count < static_cast<int>(completions.size())) return moved;
  }
}

bool RdmaTransport::poll_devices() {
  bool moved = false;
  for (const auto& device : devices_) {
    if (device != nullptr) moved |= take_completions(*device);
  }
  return moved;
}

bool RdmaTransport::progress() {
  bool moved = poll_devices();
  for (const auto& connection : connections_) moved |= connection->send();
  if (moved) {
    vain_turns_ = 0;
  } else if (++vain_turns_ >= kVainTurnsMost) {
    vain_turns_ = 0;
    look_at_sockets();
  }
  return moved;
}

void RdmaTransport::look_at_sockets() {
  for (const auto& connection : connections_) {
    if (connection->phase() == RdmaConnection::Phase::kUsable) connection->look_at_socket();
  }
  take_events();
}

void RdmaTransport::take_events() {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i] == nullptr) continue;
    ibv_event_type type{};
    uint32_t port = 0;
    while (devices_[i]->next_event(type, port)) {
      const std::string what = describe_event(type);
      if (what.empty()) continue;
      const std::string where =
          format("RDMA device %s%s: %s", verbs_->get_device_name(ports_.contexts[i]->device),
                 port > 0 ? format(", port %u", port).c_str() : "", what.c_str());
      log_line(format("rank %u, ", options_.rank) + where);
      if (!ends_connections(type)) continue;
      for (const auto& connection : connections_) connection->fail(where);
    }
  }
}

bool RdmaTransport::arm_wait(std::vector<pollfd>& polls) {
  for (const auto& device : devices_) {
    if (device == nullptr) continue;
    // A queue that cannot be armed is polled: the owner's poll(2) has a timeout.
    (void)device->arm();
    polls.push_back({.fd = device->completion_descriptor(), .events = POLLIN, .revents = 0});
    polls.push_back({.fd = device->event_descriptor(), .events = POLLIN, .revents = 0});
  }
  for (const auto& connection : connections_) {
    if (connection->state() == PeerState::kOpen)
      polls.push_back({.fd = connection->socket(), .events = POLLIN, .revents = 0});
  }
  // The next vain turn looks at sockets and events: they may be what ends the wait.
  vain_turns_ = kVainTurnsMost;
  // A completion that came before the queue was armed does not wake.
  return poll_devices();
}

}  // namespace

Result<std::unique_ptr<Transport>> open_rdma_transport(const TransportOptions& options) {
  // Nothing encrypts RDMA: with TLS the ranks use TCP.
  std::unique_ptr<const Verbs> verbs;
  Ports ports;
  std::string why_none = "TUTTI_TLS is set, and RDMA does not encrypt";
  if (!options.config.tls) {
    auto found = Verbs::find();
    if (found) {
      verbs = std::move(*found);
      ports = find_ports(*verbs, {}, why_none);
    } else {
      why_none = found.status().text();
    }
  }
  if (ports.ports.empty() && options.config.transport == "rdma")
    return Status(Code::kUnsupported, "TUTTI_TRANSPORT is rdma, and no RDMA port can be used: " + why_none);
  return std::unique_ptr<Transport>(
      std::make_unique<RdmaTransport>(options, std::move(verbs), std::move(ports)));
}

}  // namespace tutti::rdma
