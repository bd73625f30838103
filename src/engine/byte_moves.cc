#include "engine/byte_moves.h"

#include <utility>

#include "core/types.h"

namespace tutti {
namespace {

/// Collects the messages of one rank.
class Messages {
 public:
  Messages(const Call& call, uint32_t rank, uint32_t rank_count)
      : call_(call), rank_(rank), rank_count_(rank_count) {}

  /// Of equal blocks, or of the call's table.
  Extent block(uint32_t rank) const {
    if (call_.blocks != nullptr) return call_.blocks->output[rank];
    const uint64_t bytes = call_.shape.count * type_bytes(call_.shape.type);
    return {rank * bytes, bytes};
  }
  Extent whole() const { return {0, block(rank_).bytes}; }

  void send(uint32_t peer, const Extent& part) {
    auto* const buffer = const_cast<std::byte*>(static_cast<const std::byte*>(call_.send)) + part.offset;
    messages_.push_back({.buffer = buffer, .bytes = part.bytes, .peer = peer, .sending = true});
  }
  void receive(uint32_t peer, const Extent& part) {
    auto* const buffer = static_cast<std::byte*>(call_.recv) + part.offset;
    messages_.push_back({.buffer = buffer, .bytes = part.bytes, .peer = peer, .sending = false});
  }
  /// Each rank begins with another peer, so that not all send to the same one.
  uint32_t to(uint32_t turn) const { return (rank_ + turn) % rank_count_; }
  uint32_t from(uint32_t turn) const { return (rank_ + rank_count_ - turn) % rank_count_; }
  /// The first turn is the rank's own block, which is there already in place.
  uint32_t first_turn() const { return call_.shape.in_place ? 1 : 0; }

  std::vector<Message> take() { return std::move(messages_); }

 private:
  const Call& call_;
  uint32_t rank_;
  uint32_t rank_count_;
  std::vector<Message> messages_;
};

}  // namespace

bool moves_bytes(const CallShape& shape, uint32_t rank_count) {
  if (rank_count < 2 || shape.purpose != CallPurpose::kUsers) return false;
  // Of variable counts, ranks may know the sum only.
  const uint64_t bytes = shape.count * type_bytes(shape.type) / (shape.variable ? rank_count : 1);
  if (bytes < kLeastDirectBytes) return false;
  switch (shape.collective) {
    case Collective::kAllGather:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter: return true;
    case Collective::kBroadcast: return rank_count <= kMostBroadcastRanks;
    default: return false;
  }
}

MessageCall as_messages(const Call& call, uint32_t rank, uint32_t rank_count) {
  Messages messages(call, rank, rank_count);
  const uint32_t root = call.shape.root;
  switch (call.shape.collective) {
    case Collective::kAllGather:
      for (uint32_t turn = messages.first_turn(); turn < rank_count; ++turn) {
        messages.send(messages.to(turn), messages.whole());
        messages.receive(messages.from(turn), messages.block(messages.from(turn)));
      }
      break;
    case Collective::kAllToAll:
      for (uint32_t turn = 0; turn < rank_count; ++turn) {
        messages.send(messages.to(turn), messages.block(messages.to(turn)));
        messages.receive(messages.from(turn), messages.block(messages.from(turn)));
      }
      break;
    case Collective::kGather:
      if (rank != root || messages.first_turn() == 0) messages.send(root, messages.whole());
      for (uint32_t turn = messages.first_turn(); rank == root && turn < rank_count; ++turn)
        messages.receive(messages.from(turn), messages.block(messages.from(turn)));
      break;
    case Collective::kScatter:
      for (uint32_t turn = messages.first_turn(); rank == root && turn < rank_count; ++turn)
        messages.send(messages.to(turn), messages.block(messages.to(turn)));
      if (rank != root || messages.first_turn() == 0) messages.receive(root, messages.whole());
      break;
    default:  // broadcast
      for (uint32_t turn = messages.first_turn(); rank == root && turn < rank_count; ++turn)
        messages.send(messages.to(turn), messages.whole());
      if (rank != root || messages.first_turn() == 0) messages.receive(root, messages.whole());
  }
  return {.messages = messages.take(), .collective = true, .shape = call.shape};
}

}  // namespace tutti
