// RankLinks: the ends of one rank's links. The rings lie in the host's segments, or, for other hosts, in
// local memory that connections serve.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "comm/network_connections.h"
#include "engine/links.h"
#include "transports/shm/segment.h"

namespace tutti {

/// The links of one stripe, or those by short rings.
class RankLinks final : public LinkTable {
 public:
  /// `peers` (by rank) and `remote` outlive the links. `remote` serves stripe 0 only, and is null if all
  /// ranks are on one host.
  void connect(const SegmentShape& shape, uint32_t rank, uint32_t stripe,
               const std::vector<PeerSegment>& peers, NetworkConnections* remote);
  /// The links of plans by short rings, for ranks of one host. They publish in the last published ring.
  void connect_short(const SegmentShape& shape, uint32_t rank, const std::vector<PeerSegment>& peers);
  SendLink* send_link(uint32_t peer, uint32_t channel) override;
  RecvLink* recv_link(uint32_t peer, uint32_t channel) override;
  SendLink* publish_link() override;
  RecvLink* published_by(uint32_t peer) override;
  PeerExposedBuffer exposed_buffer(uint32_t peer) override;

  /// A peer whose message in an open link, or in the message channel, has not been received.
  std::optional<uint32_t> unread() const;
  /// Tells the writers of open links about every message that has been received.
  void release_all();
  /// A peer that has released all it received (release_all), and not all sends to it.
  std::optional<uint32_t> unread_by(const std::function<bool(uint32_t peer)>& has_released_all) const;

 private:
  using Bounce = std::vector<std::byte>;

  /// The ring that `writer` writes for `reader`, and its shape.
  std::pair<std::byte*, RingShape> ring(uint32_t writer, uint32_t channel, uint32_t reader) const;
  std::unique_ptr<RecvLink> open_recv(uint32_t peer, RecvLink link);
  PassedSlots* passed_slots(uint32_t peer, uint32_t channel);

  SegmentShape shape_;
  uint32_t rank_ = 0;
  uint32_t stripe_ = 0;  ///< also the number of the published ring
  bool short_rings_ = false;
  std::span<const PeerSegment> peers_;
  NetworkConnections* remote_ = nullptr;
  std::vector<std::unique_ptr<Bounce>> bounces_;
  std::vector<std::unique_ptr<MessageVotes>> message_votes_;
  std::unique_ptr<SendLink> publish_;
  std::unordered_map<uint64_t, std::unique_ptr<SendLink>> send_;  ///< key: channel, peer
  std::unordered_map<uint64_t, std::unique_ptr<RecvLink>> recv_;
  std::unordered_map<uint32_t, std::unique_ptr<RecvLink>> published_;
  std::unordered_map<uint64_t, std::unique_ptr<PassedSlots>> passed_;  ///< key as of send_
};

}  // namespace tutti
