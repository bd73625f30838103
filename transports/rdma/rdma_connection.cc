#include "transports/rdma/rdma_connection.h"

#include <arpa/inet.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/clock.h"
#include "transports/rdma/errors.h"

namespace tutti::rdma {
namespace {

/// InfiniBand subnets do not reach each other; RoCE v2 is routed.
bool reaches(const PortAddress& a, const PortAddress& b) {
  return a.is_ethernet == b.is_ethernet &&
         (a.is_ethernet || std::equal(a.gid.begin(), a.gid.begin() + 8, b.gid.begin()));
}

/// The ports of two ranks, as the lower one sees them.
class RailChooser {
 public:
  RailChooser(std::span<const PortAddress> low, std::span<const PortAddress> high, uint32_t turn)
      : low_(low), high_(high), turn_(turn) {}

  /// Pairs of near ports, or of any. `turn` lets pairs of ranks begin with different ports.
  void add_lanes(bool only_near) {
    const std::vector<size_t> low = ports_of(low_, only_near);
    const std::vector<size_t> high = ports_of(high_, only_near);
    const size_t count = std::min<size_t>(kMostRails, std::max(low.size(), high.size()));
    for (size_t i = 0; i < count && !low.empty() && !high.empty(); ++i) {
      const size_t first = low[(i + turn_) % low.size()];
      for (size_t j = 0; j < high.size(); ++j) {
        const size_t second = high[(i + turn_ + j) % high.size()];
        if (!reaches(low_[first], high_[second])) continue;
        rails_.push_back({first, second});
        break;
      }
    }
  }

  /// For the only rail: one over other ports, if possible on both ranks.
  void add_reserve() {
    const RailPorts only = rails_[0];
    std::optional<RailPorts> best;
    size_t best_changes = 0;
    for (size_t first = 0; first < low_.size(); ++first) {
      for (size_t second = 0; second < high_.size(); ++second) {
        const size_t changes = (first != only.here ? 1u : 0u) + (second != only.there ? 1u : 0u);
        if (changes <= best_changes || !reaches(low_[first], high_[second])) continue;
        best = {first, second};
        best_changes = changes;
      }
    }
    if (best) rails_.push_back(*best);
  }

  std::vector<RailPorts>& rails() { return rails_; }

 private:
  static std::vector<size_t> ports_of(std::span<const PortAddress> ports, bool only_near) {
    std::vector<size_t> indices;
    for (size_t i = 0; i < ports.size(); ++i) {
      if (ports[i].is_near || !only_near) indices.push_back(i);
    }
    return indices;
  }

  std::span<const PortAddress> low_;
  std::span<const PortAddress> high_;
  size_t turn_;
  std::vector<RailPorts> rails_;
};

}  // namespace

Rails choose_rails(std::span<const PortAddress> here, std::span<const PortAddress> there, uint32_t rank,
                   uint32_t peer) {
  const bool is_lower = rank < peer;
  RailChooser chooser(is_lower ? here : there, is_lower ? there : here, is_lower ? peer - rank : rank - peer);
  chooser.add_lanes(true);
  if (chooser.rails().empty()) chooser.add_lanes(false);
  Rails rails{.ports = {}, .lane_count = static_cast<uint32_t>(chooser.rails().size())};
  if (rails.lane_count == 1) chooser.add_reserve();
  rails.ports = std::move(chooser.rails());
  if (is_lower) return rails;
  for (RailPorts& rail : rails.ports) std::swap(rail.here, rail.there);
  return rails;
}

Result<std::unique_ptr<RdmaConnection>> RdmaConnection::make(const Verbs& verbs, std::span<const Path> paths,
                                                             std::span<const ChannelRings> channels,
                                                             FileDescriptor socket, PinBudget& budget,
                                                             std::function<bool()> poll,
                                                             const RdmaOptions& options) {
  std::unique_ptr<RdmaConnection> connection(
      new RdmaConnection(verbs, channels, std::move(socket), budget, std::move(poll), options));
  TUTTI_TRY(connection->prepare(paths));
  return connection;
}

RdmaConnection::RdmaConnection(const Verbs& verbs, std::span<const ChannelRings> channels,
                               FileDescriptor socket, PinBudget& budget, std::function<bool()> poll,
                               const RdmaOptions& options)
    : verbs_(verbs),
      options_(options),
      poll_(std::move(poll)),
      shared_{.verbs = verbs,
              .budget = budget,
              .user_memory = options.user_memory,
              .heap_memory = options.heap_memory,
              .device_regions = options.device_regions,
              .rank = options.rank,
              .peer = options.peer,
              .shape = options.shape,
              .limits = {.channels = static_cast<uint32_t>(channels.size()),
                         .slots = options.shape.slots,
                         .slot_bytes = options.shape.slot_bytes,
                         .epoch = options.epoch},
              .outbox = tcp::Outbox(channels, options.shape, options.epoch),
              .inbox = tcp::Inbox(channels, options.shape),
              .channels = {},
              .socket = ControlSocket(std::move(socket)),
              .send_memory = {},
              .free_buffers = {},
              .rails = {},
              .break_rail = [this](Rail& rail, const std::string& why) { break_rail(rail, why); },
              .note_move = [this] { note_move(); }} {
  const uint64_t bytes = uint64_t{options.shape.slots} * options.shape.slot_bytes;
  for (const ChannelRings& one : channels) {
    shared_.channels.push_back({.outgoing = {one.outgoing + options.shape.header_bytes(), bytes, 0},
                                .incoming = {one.incoming + options.shape.header_bytes(), bytes,
                                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE},
                                .offer = one.offer});
  }
}

RdmaConnection::~RdmaConnection() = default;

Status RdmaConnection::prepare(std::span<const Path> paths) {
  auto memory = map_plain(size_t{kSendBuffers + 1} * kPieceBytes);
  TUTTI_TRY(memory.status());
  shared_.send_memory = std::move(*memory);
  for (uint32_t i = 0; i < kSendBuffers; ++i) shared_.free_buffers.push_back(static_cast<int32_t>(i));
  const auto count = static_cast<uint32_t>(paths.size());
  shared_.lane_count = options_.lane_count;
  // All lanes may come to lie on one rail. Of the others, one takes the rail's first piece, and the rest may
  // be waiting to be posted again.
  shared_.window = (options_.queue_pair.receives - kRepostBatch) / shared_.lane_count;
  for (uint32_t i = 0; i < count; ++i) {
    shared_.rails.push_back(
        std::make_unique<Rail>(verbs_, paths[i].device, paths[i].port, paths[i].peer,
                               std::span(shared_.send_memory.base(), shared_.send_memory.bytes()),
                               RailOptions{.rank = options_.rank,
                                           .peer = options_.peer,
                                           .epoch = options_.epoch,
                                           .connection = options_.number,
                                           .index = i,
                                           .queue_pair = options_.queue_pair}));
  }
  for (uint32_t i = 0; i < shared_.lane_count; ++i) lanes_.push_back(std::make_unique<Lane>(shared_, i));
  for (const auto& rail : shared_.rails) advance_rail(*rail);
  return Status::ok();
}

Status RdmaConnection::greet() {
  look_at_socket();
  if (state_ != PeerState::kOpen) return failure_;
  const auto is_settled = [](const auto& rail) {
    return rail->is_usable() || (rail->is_idle() && rail->is_drained());
  };
  if (is_set_up_ || !std::all_of(shared_.rails.begin(), shared_.rails.end(), is_settled)) return Status::ok();
  const auto is_usable = [](const auto& rail) { return rail->is_usable(); };
  if (options_.needs_rail && std::none_of(shared_.rails.begin(), shared_.rails.end(), is_usable)) {
    return {Code::kPeerLost,
            format("rank %u: no RDMA path to rank %u: %s: %s. TUTTI_TRANSPORT=tcp avoids RDMA", options_.rank,
                   options_.peer, shared_.rails[0]->describe().c_str(), shared_.rails[0]->why_off().c_str())};
  }
  is_set_up_ = true;
  return Status::ok();
}

bool RdmaConnection::advance() {
  bool moved = poll_();
  // Looking costs a system call: once in so many vain turns.
  constexpr uint32_t kVainTurnsMost = 256;
  if (is_moving_ || vain_turns_ >= kVainTurnsMost) {
    vain_turns_ = 0;
    moved |= look_at_socket();
  }
  moved |= send();
  vain_turns_ = moved ? 0 : vain_turns_ + 1;
  return moved;
}

void RdmaConnection::advance_fully() {
  look_at_socket();
  while (advance()) {
  }
}

bool RdmaConnection::drained() const {
  if (state_ != PeerState::kOpen) return true;
  return !shared_.outbox.has_waiting() &&
         std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->drained(); });
}

bool RdmaConnection::send() {
  if (state_ != PeerState::kOpen || !is_set_up_) return false;
  bool moved = false;
  for (const auto& lane : lanes_) moved |= lane->send();
  if (shared_.lacks_bytes) end(PeerState::kTorn, "a message in this rank's GPU could not be copied");
  return moved;
}

/// A peer that may write to a posted receive cannot be asked to stop. So its queue pairs end here.
void RdmaConnection::withdraw() {
  constexpr uint64_t kPatienceNs = 1'000'000'000;
  for (const auto& lane : lanes_) lane->withdraw();
  bool may_write = false;
  for (uint32_t channel = 0; channel < shared_.channels.size(); ++channel)
    may_write |= shared_.is_written(channel);
  if (!may_write) return;
  end(PeerState::kTorn, "a receive was withdrawn that it may write to");
  const uint64_t limit_ns = now_ns() + kPatienceNs;
  const auto is_drained = [](const auto& rail) { return rail->is_drained(); };
  while (!std::all_of(shared_.rails.begin(), shared_.rails.end(), is_drained) && now_ns() < limit_ns) poll_();
  for (const auto& rail : shared_.rails) rail->release();
  for (LaneShared::Channel& channel : shared_.channels) channel.told = {};
}

void RdmaConnection::finish() {
  if (state_ != PeerState::kOpen || wants_end_) return;
  wants_end_ = true;
  for (const auto& lane : lanes_) lane->finish();
  shared_.unconfirmed_bytes += lanes_.size();
  send();
}

std::string RdmaConnection::route_of(const Lane& lane) const {
  const Rail& home = *shared_.rails[lane.home()];
  const std::string text = lane.is_on_socket() ? "TCP" : shared_.rails[lane.rail()]->describe();
  if (lane.rail() == lane.home()) return text;
  return text + format(" instead of %s (%s)", home.describe().c_str(),
                       home.is_usable() ? "about to go back" : home.why_off().c_str());
}

std::string RdmaConnection::route() const {
  std::string text;
  for (const auto& lane : lanes_) text += (text.empty() ? "" : "; ") + route_of(*lane);
  return text;
}

/// Keeps what other threads may ask for.
void RdmaConnection::note_move() {
  std::string text;
  for (const auto& lane : lanes_) {
    if (lane->rail() != lane->home()) text += (text.empty() ? "" : "; ") + route_of(*lane);
  }
  const std::scoped_lock lock(detour_mutex_);
  detour_ = std::move(text);
}

std::string RdmaConnection::detour() const {
  const std::scoped_lock lock(detour_mutex_);
  return detour_;
}

void RdmaConnection::complete(const ibv_wc& completion) {
  const WorkId id = WorkId::unpack(completion.wr_id);
  Rail& rail = *shared_.rails[id.rail];
  if ((rail.attempt() & 0xff) != id.attempt) return;
  const bool is_good = completion.status == IBV_WC_SUCCESS;
  if (!is_good && rail.state() != Rail::State::kOff) break_rail(rail, describe_completion(completion.status));
  if (id.request == WorkId::kPiece) {
    const uint32_t lane = rail.take_sent();
    if (is_good && lane != Rail::kNoLane && state_ != PeerState::kTorn) lanes_[lane]->complete_one();
  } else if (id.request != WorkId::kWrite) {
    rail.take_receive();
    if (is_good) receive(rail, completion);
  }
}

void RdmaConnection::receive(Rail& rail, const ibv_wc& completion) {
  const WorkId id = WorkId::unpack(completion.wr_id);
  const uint32_t packed = ntohl(completion.imm_data);
  const PieceWord word = PieceWord::unpack(packed);
  Status taken;
  if ((completion.wc_flags & IBV_WC_WITH_IMM) == 0 || completion.byte_len > kPieceBytes) {
    taken = Status(Code::kPeerLost, format("a send of %u bytes that is no piece", completion.byte_len));
  } else if (word.kind == static_cast<uint32_t>(Piece::kReady)) {
    rail.take_ready();
  } else if (word.lane >= lanes_.size()) {
    taken = Status(Code::kPeerLost, format("a piece of lane %u of %zu", word.lane, lanes_.size()));
  } else if (state_ == PeerState::kOpen) {
    taken = lanes_[word.lane]->receive(rail.key(), packed, rail.received(id.request, completion.byte_len));
  }
  if (!taken) return end(PeerState::kTorn, std::string(taken.text()));
  if (rail.state() != Rail::State::kOff) {
    const Status posted = rail.repost(id.request);
    if (!posted) break_rail(rail, std::string(posted.text()));
  }
  notice_end();
}

void RdmaConnection::notice_end() {
  const auto has_ended = [](const auto& lane) { return lane->has_ended(); };
  if (std::all_of(lanes_.begin(), lanes_.end(), has_ended))
    end(PeerState::kEnded, "it has closed its connection");
}

void RdmaConnection::end(PeerState state, const std::string& what) {
  if (state_ != PeerState::kOpen) return;
  state_ = state;
  failure_ =
      Status(Code::kPeerLost, format("rank %u (%s) %s: %s", options_.peer, route().c_str(),
                                     state == PeerState::kEnded ? "has ended" : "is lost", what.c_str()));
  if (state != PeerState::kTorn) return;
  for (const auto& rail : shared_.rails) {
    if (rail->state() != Rail::State::kOff) rail->stop("the connection is torn");
  }
  shared_.unconfirmed_bytes = 0;
}

}  // namespace tutti::rdma
