#include "transports/ucx/ucx_transport.h"

#include <dirent.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "core/clock.h"
#include "core/log.h"
#include "core/tcp_socket.h"
#include "transports/set_up_wait.h"
#include "transports/ucx/errors.h"
#include "transports/ucx/ucx_connection.h"
#include "transports/ucx/wire.h"
#include "transports/ucx/worker.h"

namespace tutti::ucx {
namespace {

/// Looking at a socket costs a system call: once in so many vain turns.
constexpr uint32_t kVainTurnsMost = 256;
/// For endpoints that close, and for what they still send or receive.
constexpr uint64_t kClosePatienceNs = 100'000'000;

class UcxTransport final : public Transport {
 public:
  explicit UcxTransport(const TransportOptions& options) : options_(options) {}
  ~UcxTransport() override;
  Status open();

  const TransportTraits& traits() const override { return kUcxTraits; }
  std::vector<std::byte> address() const override;
  uint32_t socket_count() const override { return 1; }
  std::optional<LinkCost> reach(const RankDescription& a, const RankDescription& b) const override;
  Result<Connection*> connect(PeerHandover peer) override;
  Status complete(const SetUpWatch& watch) override;
  bool progress() override;
  bool arm_wait(std::vector<pollfd>& polls) override;

 private:
  static ucs_status_t take(void* self, const void* head, size_t head_bytes, void* data, size_t bytes,
                           const ucp_am_recv_param_t* param) noexcept;
  void tell_of_strangers();
  bool is_forced() const { return options_.config.transport == "ucx"; }
  Result<size_t> greet_all();
  Status late() const;
  bool turn_all();

  TransportOptions options_;
  std::unique_ptr<const Ucp> ucp_;
  std::vector<std::unique_ptr<UcxConnection>> connections_;
  std::unique_ptr<Worker> worker_;  ///< null: UCX is not used. Destroyed before the connections.
  uint32_t vain_turns_ = 0;
  bool has_told_of_strangers_ = false;
};

/// Whether the machine has devices that UCX may serve better than TCP: InfiniBand, RoCE and EFA, Slingshot.
/// Loading UCX to find none costs 20 ms, threads and hooks.
bool has_fabric_devices() {
  for (const char* folder : {"/sys/class/infiniband", "/sys/class/cxi", "/sys/class/gni"}) {
    DIR* const directory = opendir(folder);
    if (directory == nullptr) continue;
    bool has_entry = false;
    while (const dirent* entry = readdir(directory)) has_entry |= entry->d_name[0] != '.';
    closedir(directory);
    if (has_entry) return true;
  }
  return false;
}

UcxTransport::~UcxTransport() {
  if (worker_ == nullptr) return;
  for (const auto& connection : connections_) connection->close();
  const uint64_t limit_ns = now_ns() + kClosePatienceNs;
  // Requests and callbacks that outlive their worker make UCX warn on standard error.
  const auto is_open = [](const auto& connection) {
    return !connection->is_closed() || connection->is_busy();
  };
  while (std::ranges::any_of(connections_, is_open) && now_ns() < limit_ns) worker_->progress();
  worker_->drain();
  for (const auto& connection : connections_) connection->release_close();
}

Status UcxTransport::open() {
  auto ucp = Ucp::find();
  TUTTI_TRY(ucp.status());
  ucp_ = std::move(*ucp);
  auto worker = Worker::open(*ucp_);
  TUTTI_TRY(worker.status());
  TUTTI_TRY((*worker)->receive_with(take, this));
  worker_ = std::move(*worker);
  return Status::ok();
}

std::vector<std::byte> UcxTransport::address() const {
  if (worker_ == nullptr || (worker_->fabrics() == 0 && !is_forced())) return {};
  return encode(Address{.fabrics = worker_->fabrics(), .worker = worker_->address()});
}

std::optional<LinkCost> UcxTransport::reach(const RankDescription& a, const RankDescription& b) const {
  const auto left = decode_address(a.address);
  const auto right = decode_address(b.address);
  if (!left || !right) return std::nullopt;
  if ((left->fabrics & right->fabrics) == 0 && !is_forced()) return std::nullopt;
  // Less than TCP over Ethernet, and more than RDMA without UCX. Not measured: no fabric was at hand.
  return LinkCost{.latency_us = 8, .bytes_per_us = 1250};
}

Result<Connection*> UcxTransport::connect(PeerHandover peer) {
  const auto address = decode_address(peer.address);
  if (!address) {
    return Status(address.status().code(),
                  format("rank %u sent ", peer.rank) + std::string(address.status().text()));
  }
  // Its end tells that the peer's process is gone, if need be by the kernel's probes.
  if (!set_keepalive(peer.sockets[0].get(), options_.config.heartbeat_ms))
    return system_error(format("setting up the socket to rank %u", peer.rank), errno);
  auto connection = UcxConnection::make(*worker_, address->worker, peer.rings, std::move(peer.sockets[0]),
                                        {.rank = options_.rank,
                                         .peer = peer.rank,
                                         .shape = options_.shape,
                                         .epoch = options_.epoch,
                                         .number = static_cast<uint32_t>(connections_.size())});
  TUTTI_TRY(connection.status());
  connections_.push_back(std::move(*connection));
  return static_cast<Connection*>(connections_.back().get());
}

Result<size_t> UcxTransport::greet_all() {
  worker_->progress();
  size_t waiting = 0;
  for (const auto& connection : connections_) {
    TUTTI_TRY(connection->greet());
    if (!connection->is_usable()) ++waiting;
  }
  return waiting;
}

Status UcxTransport::complete(const SetUpWatch& watch) {
  return wait_for_set_up(
      *this, watch, [this] { return greet_all(); }, [this] { return late(); });
}

Status UcxTransport::late() const {
  std::string who;
  for (const auto& connection : connections_) {
    if (!connection->is_usable()) add_to_list(who, std::to_string(connection->peer()));
  }
  return {Code::kTimeout,
          format("rank %u: the connections over UCX to these ranks were not usable before the deadline: %s. "
                 "Look at UCX_TLS and UCX_NET_DEVICES; TUTTI_TRANSPORT=tcp avoids UCX",
                 options_.rank, who.c_str())};
}

ucs_status_t UcxTransport::take(void* self, const void* head, size_t head_bytes, void* data, size_t bytes,
                                const ucp_am_recv_param_t* param) noexcept try {
  auto& transport = *static_cast<UcxTransport*>(self);
  const auto* start = static_cast<const std::byte*>(head);
  const auto message = decode_message({start, head_bytes});
  if (message && message->connection < transport.connections_.size()) {
    UcxConnection& connection = *transport.connections_[message->connection];
    const bool is_rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    if (connection.accepts(message->token)) {
      return connection.receive(*message, start + kMessageHeadBytes - tcp::kHeaderBytes, data, bytes,
                                is_rendezvous);
    }
  }
  transport.tell_of_strangers();
  return UCS_OK;
} catch (...) {
  // No memory to say that a stranger's message is dropped. UCX's functions of C pass no exception on.
  return UCS_OK;
}

void UcxTransport::tell_of_strangers() {
  if (std::exchange(has_told_of_strangers_, true)) return;
  log_line(format("rank %u drops UCX messages that come from no rank of the communicator", options_.rank));
}

bool UcxTransport::turn_all() {
  bool moved = false;
  for (const auto& connection : connections_) moved |= connection->turn();
  return moved;
}

bool UcxTransport::progress() {
  bool moved = worker_->progress();
  moved |= turn_all();
  if (moved) {
    vain_turns_ = 0;
  } else if (++vain_turns_ >= kVainTurnsMost) {
    vain_turns_ = 0;
    for (const auto& connection : connections_) connection->look_at_socket();
  }
  return moved;
}

bool UcxTransport::arm_wait(std::vector<pollfd>& polls) {
  if (!worker_->arm()) return true;
  polls.push_back({.fd = worker_->descriptor(), .events = POLLIN, .revents = 0});
  for (const auto& connection : connections_) {
    if (connection->state() == PeerState::kOpen && connection->watches_socket())
      polls.push_back({.fd = connection->socket(), .events = POLLIN, .revents = 0});
  }
  // The next vain turn looks at the sockets: they may be what ends the wait.
  vain_turns_ = kVainTurnsMost;
  return false;
}

}  // namespace

Result<std::unique_ptr<Transport>> open_ucx_transport(const TransportOptions& options) {
  const bool is_forced = options.config.transport == "ucx";
  auto transport = std::make_unique<UcxTransport>(options);
  // UCX does not encrypt: with TLS the ranks use TCP.
  Status opened(Code::kUnsupported, "TUTTI_TLS is set, and UCX does not encrypt");
  if (!options.config.tls && (is_forced || has_fabric_devices())) opened = transport->open();
  if (!opened && is_forced) {
    return Status(opened.code(),
                  "TUTTI_TRANSPORT is ucx, and UCX cannot be used: " + std::string(opened.text()));
  }
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace tutti::ucx
