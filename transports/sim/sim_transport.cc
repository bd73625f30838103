#include "transports/sim/sim_transport.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "transports/sim/sim.h"

namespace tutti {
namespace {

/// What two ranks know of each other besides messages.
struct Direction {
  std::atomic<uint64_t> sent_messages = 0;
  std::atomic<uint64_t> sent_bytes = 0;
  std::atomic<uint64_t> received_messages = 0;
  std::atomic<uint64_t> received_bytes = 0;
  bool finished = false;  ///< nothing more will be sent
  bool gone = false;      ///< the sender's transport has been destroyed
};

bool arrived(const RecvLink& link) {
  return (link.word() & flag::kNumberMask) == ((link.next + 1) & flag::kNumberMask);
}

/// Returns the payload bytes and messages copied.
std::pair<uint64_t, uint64_t> copy_messages(RecvLink& from, SendLink& to) {
  uint64_t bytes = 0;
  uint64_t messages = 0;
  while (arrived(from) && to.can_write()) {
    const uint64_t word = from.word();
    const uint64_t size = flag::bytes(word);
    if (size > 0) std::memcpy(to.span(size), from.span(word), size);
    to.commit(flag::signature(word), size);
    from.release(word);
    bytes += size;
    ++messages;
  }
  return {bytes, messages};
}

}  // namespace

struct SimTransport::World {
  explicit World(const SimOptions& options) : network(options) {}
  Direction& way(uint32_t from, uint32_t to) { return ways[{from, to}]; }

  std::recursive_mutex mutex;  ///< ranks of one network may run in several threads
  SimNetwork network;
  std::map<std::pair<uint32_t, uint32_t>, Direction> ways;  ///< by sender and receiver; entries never move
};

class SimTransport::Joined final : public Connection {
 public:
  Joined(World& world, const TransportOptions& options, const PeerHandover& peer)
      : world_(world),
        rank_(options.rank),
        peer_(peer.rank),
        out_(world.way(rank_, peer_)),
        in_(world.way(peer_, rank_)) {
    for (const ChannelRings& rings : peer.rings) {
      outgoing_.push_back(RecvLink::at(rings.outgoing, options.shape, 0));
      outgoing_.back().credit_mask = 0;  // return a slot as soon as its message is copied
      incoming_.push_back(SendLink::at(rings.incoming, options.shape));
    }
    in_.gone = false;
  }

  bool advance() override {
    const std::lock_guard lock(world_.mutex);
    const bool sent = send();
    world_.network.progress(rank_);
    const bool carried = world_.network.next_turn().has_value();
    const bool received = receive();
    settle();
    return sent || carried || received;
  }
  void advance_fully() override {
    while (advance()) {
    }
  }
  bool drained() const override { return std::none_of(outgoing_.begin(), outgoing_.end(), arrived); }
  uint64_t unconfirmed_bytes() const override { return out_.sent_bytes - out_.received_bytes; }
  PeerState state() const override { return state_; }
  const Status& status() const override { return status_; }
  void withdraw() override {}
  void finish() override {
    const std::lock_guard lock(world_.mutex);
    out_.finished = true;
  }
  void leave() { out_.gone = true; }

  bool send() {
    if (state_ != PeerState::kOpen) return false;
    bool moved = false;
    for (uint32_t i = 0; i < outgoing_.size(); ++i) {
      const auto [bytes, messages] = copy_messages(outgoing_[i], *world_.network.send_link(rank_, peer_, i));
      out_.sent_bytes += bytes;
      out_.sent_messages += messages;
      moved |= messages > 0;
    }
    return moved;
  }
  bool receive() {
    bool moved = false;
    for (uint32_t i = 0; i < incoming_.size(); ++i) {
      const auto [bytes, messages] = copy_messages(*world_.network.recv_link(peer_, rank_, i), incoming_[i]);
      in_.received_bytes += bytes;
      in_.received_messages += messages;
      moved |= messages > 0;
    }
    return moved;
  }
  void settle() {
    if (state_ != PeerState::kOpen || (!in_.finished && !in_.gone)) return;
    if (in_.finished && in_.received_messages < in_.sent_messages) return;
    state_ = in_.finished ? PeerState::kEnded : PeerState::kTorn;
    status_ = Status(Code::kPeerLost, format("rank %u (simulated) %s", peer_,
                                             in_.finished ? "has closed its connection" : "is gone"));
  }

 private:
  World& world_;
  uint32_t rank_;
  uint32_t peer_;
  Direction& out_;
  Direction& in_;
  std::vector<RecvLink> outgoing_;  ///< reads what the owner's engine writes
  std::vector<SendLink> incoming_;
  PeerState state_ = PeerState::kOpen;
  Status status_;
};

Result<std::unique_ptr<Transport>> open_sim_transport(const TransportOptions& options) {
  static std::mutex mutex;
  static std::map<uint16_t, std::weak_ptr<SimTransport::World>> worlds;
  const std::lock_guard lock(mutex);
  std::weak_ptr<SimTransport::World>& known = worlds[options.epoch];
  std::shared_ptr<SimTransport::World> world = known.lock();
  if (world == nullptr) {
    world = std::make_shared<SimTransport::World>(SimOptions{.rank_count = options.rank_count,
                                                             .seed = uint64_t{options.epoch} + 1,
                                                             .slots = options.shape.slots,
                                                             .slot_bytes = options.shape.slot_bytes});
    known = world;
  }
  return std::unique_ptr<Transport>(std::make_unique<SimTransport>(options, std::move(world)));
}

SimTransport::SimTransport(const TransportOptions& options, std::shared_ptr<World> world)
    : options_(options), world_(std::move(world)) {}

SimTransport::~SimTransport() {
  const std::lock_guard lock(world_->mutex);
  for (const auto& connection : connections_) connection->leave();
}

std::optional<LinkCost> SimTransport::reach(const RankDescription& a, const RankDescription& b) const {
  if (a.process != b.process) return std::nullopt;
  return LinkCost{.latency_us = 1, .bytes_per_us = 1000};  // virtual time; the values do not matter
}

Result<Connection*> SimTransport::connect(PeerHandover peer) {
  const std::lock_guard lock(world_->mutex);
  connections_.push_back(std::make_unique<Joined>(*world_, options_, peer));
  return static_cast<Connection*>(connections_.back().get());
}

bool SimTransport::progress() {
  bool moved = false;
  for (const auto& connection : connections_) moved |= connection->advance();
  return moved;
}

bool SimTransport::arm_wait(std::vector<pollfd>& /*polls*/) {
  return true;
}

}  // namespace tutti
