#include "transports/rdma/rdma_transport.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "core/clock.h"
#include "core/log.h"
#include "core/tcp_socket.h"
#include "transports/rdma/device.h"
#include "transports/rdma/errors.h"
#include "transports/rdma/rdma_connection.h"
#include "transports/set_up_wait.h"

namespace tutti::rdma {
namespace {

/// Looking at sockets and events costs system calls: once in so many vain turns, or in so many turns. Traffic
/// on one rail must not hide what happens to another.
constexpr uint32_t kVainTurnsMost = 256;
constexpr uint32_t kTurnsMost = 4096;
/// At the completion queues, which takes a fraction of what the rest of a vain turn takes.
constexpr uint32_t kLooksPerTurn = 4;
constexpr uint64_t kDefaultSilenceMs = 10'000;
/// No device holds completions for more: the product must not overflow.
constexpr uint32_t kMostCompletionRanks = 4096;

DeviceChoice choice_of(const Config& config, const OrderCards& order_cards) {
  return {.filter = config.infiniband.devices,
          .gid_index = config.infiniband.gid_index,
          .order_cards = order_cards};
}

class RdmaTransport final : public Transport {
 public:
  RdmaTransport(const TransportOptions& options, std::unique_ptr<const Verbs> verbs, Ports ports)
      : options_(options),
        verbs_(std::move(verbs)),
        choice_(choice_of(options.config, options.order_cards)),
        ports_(std::move(ports)),
        budget_{.left_bytes = options.config.infiniband.pinned_bytes} {
    const InfinibandConfig& config = options.config.infiniband;
    const uint64_t silence_ms =
        options.config.heartbeat_ms > 0 ? options.config.heartbeat_ms : kDefaultSilenceMs;
    queue_pair_.timeout = config.timeout > 0 ? static_cast<uint8_t>(config.timeout)
                                             : timeout_for(std::min(silence_ms, options.config.timeout_ms));
    queue_pair_.service_level = static_cast<uint8_t>(config.service_level);
    queue_pair_.traffic_class = static_cast<uint8_t>(config.traffic_class);
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
  Result<MemoryHandle> register_memory(std::byte* address, size_t bytes, MemoryUse use) override;
  void deregister_memory(MemoryHandle handle) override { user_memory_.remove(handle.value); }
  Result<MemoryHandle> register_device_memory(const DeviceSpan& span) override;
  void deregister_device_memory(MemoryHandle handle) override { device_regions_.remove(handle.value); }
  void use_device_memory(DeviceCopier& copier) override { device_regions_.copier = &copier; }
  Result<Connection*> connect(PeerHandover peer) override;
  Status complete(const SetUpWatch& watch) override;
  bool progress() override;
  bool arm_wait(std::vector<pollfd>& polls) override;

 private:
  Result<Device*> device_of(const Port& port);
  std::vector<const Device*> used_devices() const;
  bool poll_devices();
  bool take_completions(Device& device);
  void take_events();
  void take_event(size_t device, ibv_event_type type, uint32_t number);
  Result<size_t> greet_all();
  Status late() const;
  void look_at_sockets();

  TransportOptions options_;
  std::unique_ptr<const Verbs> verbs_;
  DeviceChoice choice_;
  Ports ports_;
  QueuePairOptions queue_pair_;
  PinBudget budget_;
  std::vector<std::unique_ptr<Device>> devices_;  ///< by context; null: not used
  UserMemory user_memory_;
  HeapMemory heap_memory_{options_.heap, budget_};
  DeviceRegions device_regions_;
  std::vector<std::unique_ptr<RdmaConnection>> connections_;
  uint32_t vain_turns_ = 0;
  uint32_t turns_ = 0;
};

std::optional<LinkCost> RdmaTransport::reach(const RankDescription& a, const RankDescription& b) const {
  const auto left = decode_ports(a.address);
  const auto right = decode_ports(b.address);
  if (!left || !right || left->empty() || right->empty()) return std::nullopt;
  if (choose_rails(*left, *right, a.rank, b.rank).ports.empty()) return std::nullopt;
  // The rate that a software device states is not its own. No RDMA device is slower than 10 Gbit/s Ethernet.
  constexpr uint32_t kLeastMbit = 10'000;
  const uint32_t mbit = std::max(kLeastMbit, std::min(left->front().mbit_per_s, right->front().mbit_per_s));
  return LinkCost{.latency_us = 3, .bytes_per_us = mbit / 8.0};
}

Result<Device*> RdmaTransport::device_of(const Port& port) {
  std::unique_ptr<Device>& device = devices_[port.device];
  if (device == nullptr) {
    const uint32_t each = queue_pair_.sends + queue_pair_.receives;
    // All rails to a peer may be on one device.
    auto opened = Device::open(*verbs_, *ports_.contexts[port.device],
                               each * kMostRails * std::min(options_.rank_count, kMostCompletionRanks));
    TUTTI_TRY(opened.status());
    device = std::move(*opened);
  }
  return device.get();
}

std::vector<const Device*> RdmaTransport::used_devices() const {
  std::vector<const Device*> devices;
  for (const auto& device : devices_) {
    if (device != nullptr) devices.push_back(device.get());
  }
  return devices;
}

Result<MemoryHandle> RdmaTransport::register_device_memory(const DeviceSpan& span) {
  const auto number = device_regions_.add(*verbs_, span, used_devices());
  TUTTI_TRY(number.status());
  return MemoryHandle{*number};
}

/// Slots are registered when a channel needs them.
Result<MemoryHandle> RdmaTransport::register_memory(std::byte* address, size_t bytes, MemoryUse use) {
  if (use == MemoryUse::kRings) return MemoryHandle();
  const auto number = user_memory_.add(*verbs_, {address, bytes}, used_devices());
  TUTTI_TRY(number.status());
  return MemoryHandle{*number};
}

Result<Connection*> RdmaTransport::connect(PeerHandover peer) {
  const auto theirs = decode_ports(peer.address);
  TUTTI_TRY(theirs.status());
  std::vector<PortAddress> ours;
  for (const Port& port : ports_.ports) ours.push_back(port.address);
  std::vector<RdmaConnection::Path> paths;
  const Rails rails = choose_rails(ours, *theirs, options_.rank, peer.rank);
  for (const RailPorts& rail : rails.ports) {
    const Port& port = ports_.ports[rail.here];
    auto device = device_of(port);
    TUTTI_TRY(device.status());
    paths.push_back({.device = **device, .port = port, .peer = (*theirs)[rail.there]});
  }
  if (paths.empty())
    return Status(Code::kInvalidArgument, format("no RDMA port reaches one of rank %u", peer.rank));
  // Its end tells that the peer's process is gone, if need be by the kernel's probes.
  if (!set_keepalive(peer.sockets[0].get(), options_.config.heartbeat_ms))
    return system_error(format("setting up the socket to rank %u", peer.rank), errno);
  auto connection = RdmaConnection::make(*verbs_, paths, peer.rings, std::move(peer.sockets[0]), budget_,
                                         [this] { return poll_devices(); },
                                         {.user_memory = user_memory_,
                                          .heap_memory = heap_memory_,
                                          .device_regions = device_regions_,
                                          .rank = options_.rank,
                                          .peer = peer.rank,
                                          .shape = options_.shape,
                                          .epoch = options_.epoch,
                                          .number = static_cast<uint32_t>(connections_.size()),
                                          .lane_count = rails.lane_count,
                                          .queue_pair = queue_pair_,
                                          .needs_rail = options_.config.transport == "rdma"});
  TUTTI_TRY(connection.status());
  connections_.push_back(std::move(*connection));
  return static_cast<Connection*>(connections_.back().get());
}

Result<size_t> RdmaTransport::greet_all() {
  poll_devices();
  size_t waiting = 0;
  for (const auto& connection : connections_) {
    TUTTI_TRY(connection->greet());
    if (!connection->is_set_up()) ++waiting;
  }
  return waiting;
}

Status RdmaTransport::complete(const SetUpWatch& watch) {
  return wait_for_set_up(
      *this, watch, [this] { return greet_all(); }, [this] { return late(); });
}

Status RdmaTransport::late() const {
  std::string who;
  for (const auto& connection : connections_) {
    if (!connection->is_set_up()) add_to_list(who, std::to_string(connection->peer()));
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
      for (const auto& connection : connections_)
        connection->device_failed(device, "its completion queue cannot be read");
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
  heap_memory_.drop_freed();
  bool moved = false;
  for (const auto& connection : connections_) {
    if (connection->is_moving()) moved |= connection->look_at_socket();
    moved |= connection->send();
  }
  // Last, so that the caller gets at once what has come.
  for (uint32_t look = 0; look < kLooksPerTurn; ++look) {
    if (!poll_devices()) continue;
    moved = true;
    break;
  }
  vain_turns_ = moved ? 0 : vain_turns_ + 1;
  if (vain_turns_ >= kVainTurnsMost || ++turns_ >= kTurnsMost) {
    vain_turns_ = turns_ = 0;
    look_at_sockets();
  }
  return moved;
}

void RdmaTransport::look_at_sockets() {
  take_events();
  for (const auto& connection : connections_) connection->look_at_socket();
}

void RdmaTransport::take_events() {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i] == nullptr) continue;
    ibv_event_type type{};
    uint32_t port = 0;
    while (devices_[i]->next_event(type, port)) take_event(i, type, port);
  }
}

void RdmaTransport::take_event(size_t device, ibv_event_type type, uint32_t number) {
  const std::string what = describe_event(type);
  if (what.empty()) return;
  const std::string where =
      format("RDMA device %s%s: %s", verbs_->get_device_name(ports_.contexts[device]->device),
             number > 0 ? format(", port %u", number).c_str() : "", what.c_str());
  log_line(format("rank %u, ", options_.rank) + where);
  for (const auto& connection : connections_) {
    if (ends_connections(type)) connection->device_failed(*devices_[device], where);
  }
  for (Port& port : ports_.ports) {
    if (port.device != device || port.address.port != number) continue;
    if (type == IBV_EVENT_PORT_ERR) {
      port.is_up = false;
    } else {
      refresh(*verbs_, ports_.contexts[device].get(), choice_, port);
    }
    for (const auto& connection : connections_) connection->port_changed(port, where);
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
    if (connection->state() != PeerState::kOpen) continue;
    const auto events = static_cast<short>(POLLIN | (connection->has_unsent() ? POLLOUT : 0));
    polls.push_back({.fd = connection->socket(), .events = events, .revents = 0});
  }
  // The next vain turn looks at sockets and events: they may be what ends the wait.
  vain_turns_ = kVainTurnsMost;
  // A completion that came before the queue was armed does not wake.
  return poll_devices();
}

}  // namespace

namespace {

/// The ports that this rank may use; none, with the reason in words.
Ports usable_ports(const Config& config, const OrderCards& order_cards, std::unique_ptr<const Verbs>& verbs,
                   std::string& why_none) {
  if (config.infiniband.is_disabled) {
    why_none = "TUTTI_IB_DISABLE or NCCL_IB_DISABLE is 1";
    return {};
  }
  auto found = Verbs::find();
  if (!found) {
    why_none = found.status().text();
    return {};
  }
  verbs = std::move(*found);
  Ports ports = find_ports(*verbs, choice_of(config, order_cards), why_none);
  if (config.tls && ports.has_device) {
    ports.ports.clear();
    why_none = "TUTTI_TLS is set, and nothing encrypts RDMA";
  }
  return ports;
}

}  // namespace

Result<std::unique_ptr<Transport>> open_rdma_transport(const TransportOptions& options) {
  std::unique_ptr<const Verbs> verbs;
  std::string why_none;
  Ports ports = usable_ports(options.config, options.order_cards, verbs, why_none);
  if (ports.ports.empty() && options.config.transport == "rdma")
    return Status(Code::kUnsupported, "TUTTI_TRANSPORT is rdma, and no RDMA port can be used: " + why_none);
  // Most machines without RDMA have no device at all. They need no line.
  if (ports.ports.empty() && ports.has_device) {
    log_line(format("rank %u does not use RDMA, so TCP joins it to other hosts: %s", options.rank,
                    why_none.c_str()));
  }
  return std::unique_ptr<Transport>(
      std::make_unique<RdmaTransport>(options, std::move(verbs), std::move(ports)));
}

Result<std::vector<PortAddress>> list_ports(const Config& config) {
  std::unique_ptr<const Verbs> verbs;
  std::string why_none;
  const Ports ports = usable_ports(config, nullptr, verbs, why_none);
  if (ports.ports.empty()) return Status(Code::kUnsupported, why_none);
  std::vector<PortAddress> addresses;
  for (const Port& port : ports.ports) addresses.push_back(port.address);
  return addresses;
}

}  // namespace tutti::rdma
