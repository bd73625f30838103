#include "comm/rank_links.h"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

// Data that is pulled and then reduced should fit the L2 cache. Its copy takes ten times as long as the
// system call (1 us).
constexpr uint32_t kBounceSlots = 4;

}  // namespace

void RankLinks::connect(const SegmentShape& shape, uint32_t rank, uint32_t stripe,
                        const std::vector<PeerSegment>& peers, NetworkConnections* remote) {
  shape_ = shape;
  rank_ = rank;
  stripe_ = stripe;
  peers_ = peers;
  remote_ = remote;
}

void RankLinks::connect_short(const SegmentShape& shape, uint32_t rank,
                              const std::vector<PeerSegment>& peers) {
  connect(shape, rank, shape.published - 1, peers, nullptr);
  short_rings_ = true;
}

std::pair<std::byte*, RingShape> RankLinks::ring(uint32_t writer, uint32_t channel, uint32_t reader) const {
  const Segment& segment = *peers_[writer].segment;
  if (short_rings_) return {segment.short_ring(channel, reader), segment.shape().short_ring()};
  return {segment.peer_ring(channel_of_stripe(stripe_, channel), reader), segment.shape().peer_ring()};
}

SendLink* RankLinks::send_link(uint32_t peer, uint32_t channel) {
  if (peers_[peer].is_remote) return &remote_->send_link(peer, channel);
  const uint64_t key = uint64_t{channel} << 32 | peer;
  if (const auto found = send_.find(key); found != send_.end()) return found->second.get();
  // A link is kept when it is whole: memory may run out before, and the call may be made again.
  const auto [memory, shape] = ring(rank_, channel, peer);
  auto link = std::make_unique<SendLink>(SendLink::at(memory, shape));
  link->peer = peer;
  link->same_process = peers_[peer].same_process;
  link->may_stream = true;
  link->pass_slots(passed_slots(peer, channel));
  return send_.emplace(key, std::move(link)).first->second.get();
}

/// Of both links between this rank and `peer`; null if the ring of the lower rank has none.
PassedSlots* RankLinks::passed_slots(uint32_t peer, uint32_t channel) {
  if (peer == rank_) return nullptr;
  const auto [memory, shape] = ring(std::min(rank_, peer), channel, std::max(rank_, peer));
  if (shape.passed_slots == 0) return nullptr;
  const uint64_t key = uint64_t{channel} << 32 | peer;
  if (const auto found = passed_.find(key); found != passed_.end()) return found->second.get();
  auto made = std::make_unique<PassedSlots>(memory + shape.passed_offset(), shape.slot_bytes,
                                            shape.passed_slots, rank_ < peer, shape.least_passed_bytes);
  return passed_.emplace(key, std::move(made)).first->second.get();
}

RecvLink* RankLinks::recv_link(uint32_t peer, uint32_t channel) {
  if (peers_[peer].is_remote) return &remote_->recv_link(peer, channel);
  const uint64_t key = uint64_t{channel} << 32 | peer;
  if (const auto found = recv_.find(key); found != recv_.end()) return found->second.get();
  const auto [memory, shape] = ring(peer, channel, rank_);
  auto link = open_recv(peer, RecvLink::at(memory, shape, 0));
  link->pass_slots(passed_slots(peer, channel));
  if (channel == kMessageChannel && link->pull_pid != 0)
    link->votes = message_votes_.emplace_back(std::make_unique<MessageVotes>()).get();
  return recv_.emplace(key, std::move(link)).first->second.get();
}

/// Completes a reading end, and tells the writer whether this rank can pull.
std::unique_ptr<RecvLink> RankLinks::open_recv(uint32_t peer, RecvLink link) {
  link.peer = peer;
  link.judges = true;
  link.reference_offset = peers_[peer].reference_offset;
  if (peers_[peer].pull_pid != 0) {
    link.pull_pid = peers_[peer].pull_pid;
    const size_t bounce_bytes = std::max<size_t>(size_t{kBounceSlots} * shape_.slot_bytes, kWideSlotBytes);
    bounces_.push_back(std::make_unique<Bounce>(bounce_bytes));
    link.bounce = bounces_.back()->data();
    link.bounce_bytes = bounces_.back()->size();
    store_shared(link.credit->can_pull, 1, std::memory_order_relaxed);
  }
  return std::make_unique<RecvLink>(link);
}

SendLink* RankLinks::publish_link() {
  if (publish_ == nullptr) {
    publish_ = std::make_unique<SendLink>(SendLink::at(peers_[rank_].segment->publish_ring(stripe_),
                                                       peers_[rank_].segment->shape().publish_ring()));
    publish_->peer = rank_;
    publish_->self_reader = rank_;
    publish_->may_stream = true;
    publish_->same_process =
        std::all_of(peers_.begin(), peers_.end(), [](const PeerSegment& peer) { return peer.same_process; });
  }
  return publish_.get();
}

RecvLink* RankLinks::published_by(uint32_t peer) {
  if (const auto found = published_.find(peer); found != published_.end()) return found->second.get();
  const Segment& theirs = *peers_[peer].segment;
  auto link =
      open_recv(peer, RecvLink::at(theirs.publish_ring(stripe_), theirs.shape().publish_ring(), rank_));
  return published_.emplace(peer, std::move(link)).first->second.get();
}

std::optional<uint32_t> RankLinks::unread() const {
  for (const auto& [key, link] : recv_) {
    if (link->has_arrived()) return link->peer;
  }
  for (const auto& [peer, link] : published_) {
    if (link->has_arrived()) return peer;
  }
  return std::nullopt;
}

void RankLinks::release_all() {
  for (const auto& [key, link] : recv_)
    store_shared(link->credit->released, link->next, std::memory_order_release);
}

std::optional<uint32_t> RankLinks::unread_by(
    const std::function<bool(uint32_t peer)>& has_released_all) const {
  for (const auto& [key, link] : send_) {
    if (has_released_all(link->peer) && link->released() < link->next) return link->peer;
  }
  return std::nullopt;
}

PeerExposedBuffer RankLinks::exposed_buffer(uint32_t peer) {
  const PeerSegment& at = peers_[peer];
  if (at.is_remote) return {};
  return {.buffer = &at.segment->header().exposed,
          .reference_offset = at.reference_offset,
          .same_process = at.same_process};
}

}  // namespace tutti
