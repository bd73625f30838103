// Lane: what comes from the peer, and moves between rails.
#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "core/log.h"
#include "transports/rdma/lane.h"

namespace tutti::rdma {
namespace {

constexpr uint32_t kCountMask = PieceWord::kCountMask;

}  // namespace

Status Lane::receive(uint32_t key, uint32_t word, std::span<const std::byte> bytes) {
  if (key == bound_key_) return take(word, bytes);
  // The peer has moved already. What it has sent before may still wait in another queue.
  if (deferred_.size() > shared_.window) return {Code::kPeerLost, "pieces on a rail that the lane is not on"};
  deferred_.push_back({key, word, {bytes.begin(), bytes.end()}});
  return Status::ok();
}

Status Lane::take(uint32_t packed, std::span<const std::byte> bytes) {
  const PieceWord word = PieceWord::unpack(packed);
  const uint32_t under_way = (pieces_sent_ - pieces_confirmed_) & kCountMask;
  const uint32_t confirmed = (word.received - pieces_confirmed_) & kCountMask;
  if (word.kind >= kPieceKinds || bytes.size() > kPieceBytes)
    return {Code::kPeerLost, format("a piece of kind %u with %zu bytes", word.kind, bytes.size())};
  if (confirmed > under_way) {
    return {Code::kPeerLost,
            format("a receipt for %u pieces, where %u were under way", confirmed, under_way)};
  }
  pieces_confirmed_ = word.received;
  ++pieces_received_;
  return take_piece(static_cast<Piece>(word.kind), bytes);
}

Status Lane::take_piece(Piece kind, std::span<const std::byte> bytes) {
  switch (kind) {
    case Piece::kBytes: return receiver_.take_from(bytes);
    case Piece::kWritten: return take_written(bytes, false);
    case Piece::kPlaced: return take_written(bytes, true);
    case Piece::kReceive: return take_receive(bytes);
    case Piece::kAsk: return take_ask(bytes);
    case Piece::kGrant: return take_grant(bytes);
    case Piece::kWindow: return Status::ok();
    case Piece::kEnd:
      if (receiver_.inside()) return {Code::kPeerLost, "an end within a frame"};
      has_ended_ = true;
      return Status::ok();
    case Piece::kReady: break;
  }
  return {Code::kPeerLost, "a rail's first piece within a lane"};
}

/// Whether the peer was allowed to write these messages to where it has.
Status Lane::check_written(const tcp::Frame& frame, uint64_t first, bool is_placed) {
  const LaneShared::Channel& channel = shared_.channels[frame.channel];
  bool is_allowed = is_placed || channel.granted_key.has_value();
  for (uint64_t number = first; number < first + frame.count; ++number) {
    if (!is_placed) {
      shared_.inbox.move_to_slot(frame.channel, number, frame.bytes, 0);
      continue;
    }
    std::byte* const told = channel.told.bytes > 0 ? channel.told.place(number, frame.bytes) : nullptr;
    if (told != nullptr && channel.told.on_device) shared_.inbox.put(frame.channel, number, told);
    is_allowed =
        is_allowed && told != nullptr && shared_.inbox.place(frame.channel, number, frame.bytes) == told;
  }
  if (is_allowed && !tcp::Outbox::is_packed(frame.bytes)) return Status::ok();
  return {Code::kPeerLost, format("%u messages of %u bytes written without a grant on channel %u",
                                  frame.count, frame.bytes, frame.channel)};
}

Status Lane::take_written(std::span<const std::byte> bytes, bool is_placed) {
  if (bytes.size() != tcp::kHeaderBytes)
    return {Code::kPeerLost, format("a header of %zu bytes", bytes.size())};
  auto frame = tcp::decode(bytes.data(), shared_.limits);
  TUTTI_TRY(frame.status());
  if (frame->channel % shared_.lane_count != index_)
    return {Code::kPeerLost, format("a frame of channel %u on lane %u", frame->channel, index_)};
  if (!shared_.outbox.accept_credit(frame->channel, frame->credit, false)) {
    return {Code::kPeerLost,
            format("a credit up to %u on channel %u, more than was sent", frame->credit, frame->channel)};
  }
  if (frame->kind == tcp::FrameKind::kCredit) return Status::ok();
  auto first = shared_.inbox.claim(*frame);
  TUTTI_TRY(first.status());
  TUTTI_TRY(check_written(*frame, *first, is_placed));
  for (uint64_t number = *first; number < *first + frame->count; ++number) {
    shared_.inbox.place(frame->channel, number, frame->bytes);
    shared_.inbox.publish(frame->channel, number, frame->signature, frame->bytes);
  }
  return Status::ok();
}

Status Lane::take_ask(std::span<const std::byte> bytes) {
  uint32_t index = 0;
  if (bytes.size() != sizeof(index))
    return {Code::kPeerLost, format("a question of %zu bytes", bytes.size())};
  std::memcpy(&index, bytes.data(), sizeof(index));
  if (index >= shared_.limits.channels || index % shared_.lane_count != index_ ||
      shared_.channels[index].granted_key)
    return {Code::kPeerLost, format("a question for channel %u", index)};
  const Rail* rail = bound_rail();
  if (rail == nullptr) return Status::ok();
  LaneShared::Channel& channel = shared_.channels[index];
  const Region* region = channel.incoming.on(shared_.verbs, rail->device(), shared_.budget);
  if (region == nullptr) return Status::ok();  // then the peer goes on without
  channel.granted_key = region->remote_key();
  channel.owes_grant = true;
  ++grants_owed_;
  return Status::ok();
}

Status Lane::take_grant(std::span<const std::byte> bytes) {
  LaneShared::Grant grant{};
  if (bytes.size() != sizeof(grant)) return {Code::kPeerLost, format("a grant of %zu bytes", bytes.size())};
  std::memcpy(&grant, bytes.data(), sizeof(grant));
  if (grant.channel >= shared_.limits.channels || grant.channel % shared_.lane_count != index_ ||
      !shared_.channels[grant.channel].has_asked || shared_.channels[grant.channel].grant)
    return {Code::kPeerLost, format("a grant for channel %u, where none was asked for", grant.channel)};
  const Rail* rail = bound_rail();
  if (rail == nullptr) return Status::ok();
  shared_.channels[grant.channel].grant = grant;
  return Status::ok();
}

Status Lane::take_receive(std::span<const std::byte> bytes) {
  LaneShared::Target target{};
  if (bytes.size() != sizeof(target))
    return {Code::kPeerLost, format("a posted receive of %zu bytes", bytes.size())};
  std::memcpy(&target, bytes.data(), sizeof(target));
  if (target.channel >= shared_.limits.channels || target.channel % shared_.lane_count != index_ ||
      target.bytes == 0 || target.slice_bytes == 0 || target.bytes > UINT64_MAX - target.slice_bytes)
    return {Code::kPeerLost, format("a posted receive of channel %u with %llu bytes", target.channel,
                                    static_cast<unsigned long long>(target.bytes))};
  if (bound_rail() != nullptr) shared_.channels[target.channel].target = target;
  return Status::ok();
}

/// Takes the pieces that came early over the rail with this key; `all`: over any.
Status Lane::take_deferred(uint32_t key, bool all) {
  std::vector<Deferred> waiting = std::move(deferred_);
  deferred_.clear();
  for (Deferred& one : waiting) {
    if (all || one.key == key) {
      TUTTI_TRY(take(one.word, one.bytes));
    } else {
      deferred_.push_back(std::move(one));
    }
  }
  return Status::ok();
}

void Lane::interrupt(uint32_t key) {
  if (bound_key_ != key || has_lost_rail_) return;
  has_lost_rail_ = true;
  ++generation_;
  theirs_.reset();
  phase_ = Phase::kSettling;
}

void Lane::plan() {
  if (phase_ != Phase::kRunning) return;
  ++generation_;
  theirs_.reset();
  phase_ = Phase::kSettling;
}

Status Lane::take_resume(uint32_t generation, const Resume& resume) {
  if (generation < generation_) return Status::ok();  // of a move that this rank has given up
  if (resume.has_lost_rail && !has_lost_rail_) {
    Rail* rail = bound_rail();
    if (rail == nullptr) return {Code::kPeerLost, "a lane on the socket has lost its rail"};
    // This rail's end: has_lost_rail_, and a generation of its own.
    shared_.break_rail(*rail, "the peer has given it up");
  }
  if (generation < generation_) return Status::ok();
  if (generation > generation_) {
    generation_ = generation;
    phase_ = Phase::kSettling;
  }
  theirs_ = resume;
  return Status::ok();
}

uint32_t Lane::usable_rails() const {
  uint32_t usable = 0;
  for (const auto& rail : shared_.rails) usable |= (rail->is_usable() ? 1u : 0u) << rail->index();
  return usable;
}

/// Whether the device has given back all that concerns the lane.
bool Lane::has_settled() const {
  if (!has_lost_rail_) return sent_.empty();
  return std::all_of(shared_.rails.begin(), shared_.rails.end(), [](const auto& rail) {
    return rail->state() != Rail::State::kOff || rail->is_drained();
  });
}

Status Lane::advance() {
  if (phase_ == Phase::kSettling && has_settled()) {
    // All that was sent to this rank before is here, so what came over a newer rail is next.
    if (has_lost_rail_) TUTTI_TRY(take_deferred(0, true));
    told_rails_ = usable_rails();
    pieces_reported_ = pieces_received_;
    const auto bytes = encode(Resume{.sent = pieces_sent_,
                                     .received = pieces_received_ & kCountMask,
                                     .usable_rails = told_rails_,
                                     .has_lost_rail = has_lost_rail_});
    shared_.socket.send({.kind = ControlKind::kResume, .index = index_, .turn = generation_}, bytes);
    phase_ = Phase::kWaiting;
  }
  if (phase_ != Phase::kWaiting || !theirs_) return Status::ok();
  if (theirs_->has_lost_rail != has_lost_rail_) {
    theirs_.reset();  // the peer learns of the lost rail, and begins a new generation
    return Status::ok();
  }
  if (!has_lost_rail_ && theirs_->sent != (pieces_received_ & kCountMask)) return Status::ok();
  return join_peer();
}

/// Both ranks have told each other where they stand.
Status Lane::join_peer() {
  const uint32_t before = bound_;
  if (has_lost_rail_) {
    const uint32_t first = pieces_sent_ - static_cast<uint32_t>(sent_.size());
    const uint32_t arrived = (theirs_->received - first) & kCountMask;
    if (arrived > sent_.size())
      return {Code::kPeerLost,
              format("it resumes a lane at piece %u, which was not sent", theirs_->received)};
    for (uint32_t i = 0; i < arrived; ++i) complete_one();
    pieces_sent_ = theirs_->received;
  }
  pieces_confirmed_ = theirs_->received;
  go_on(best_rail(index_, told_rails_ & theirs_->usable_rails, static_cast<uint32_t>(shared_.rails.size())));
  if (bound_ != before || bound_ != index_) {
    tell(before);
    shared_.note_move();
  }
  return take_deferred(bound_key_, false);
}

void Lane::go_on(uint32_t rail) {
  // What concerned the old rail is void: the new one has other keys.
  std::deque<Sent> again;
  for (const Sent& one : sent_) {
    if (one.kind == Piece::kAsk || one.kind == Piece::kGrant || one.kind == Piece::kWindow ||
        one.kind == Piece::kReceive) {
      complete(one);
    } else {
      again.push_back(one);
      // Its header goes as the beginning of the frame.
      if (one.frame && one.buffer >= 0) shared_.free_buffers.push_back(one.buffer);
      if (one.frame) again.back().buffer = -1;
    }
  }
  sent_.clear();
  std::move(again_.begin(), again_.end(), std::back_inserter(again));
  again_ = std::move(again);
  for (uint32_t index = index_; index < shared_.limits.channels; index += shared_.lane_count) {
    LaneShared::Channel& channel = shared_.channels[index];
    channel.grant.reset();
    channel.target.reset();
    channel.told = {};
    channel.into_slots_end = 0;
    channel.granted_key.reset();
    channel.has_asked = channel.owes_grant = false;
  }
  grants_owed_ = 0;
  bound_ = rail;
  bound_key_ = rail == kSocket ? kSocketKey : shared_.rails[rail]->key();
  phase_ = Phase::kRunning;
  has_lost_rail_ = false;
  theirs_.reset();
  // The new rail may have failed meanwhile.
  if (rail != kSocket && shared_.rails[rail]->state() == Rail::State::kOff) interrupt(bound_key_);
}

/// A line for each move, in words.
void Lane::tell(uint32_t before) const {
  const std::string to = bound_ == kSocket ? "TCP" : shared_.rails[bound_]->describe();
  std::string why;
  if (before != kSocket && bound_ != index_ && !shared_.rails[before]->why_off().empty())
    why = format("; %s: %s", shared_.rails[before]->describe().c_str(),
                 shared_.rails[before]->why_off().c_str());
  log_line(format("rank %u: data of rank %u, part %u of %u, %s over %s%s", shared_.rank, shared_.peer,
                  index_ + 1, shared_.lane_count, bound_ == index_ ? "goes again" : "goes on", to.c_str(),
                  why.c_str()));
}

}  // namespace tutti::rdma
