// StallDiagnosis: why a call that has waited for long makes no progress.
//
// A rank that has waited for 20 ms looks at the page of the peer that it waits for, and again every 20 ms. It
// can learn that the peer is dead or gone, that the peer has passed this call or made another one, that the
// two wait for each other, or that the deadline has passed. The diagnosis is a Status whose text names ranks,
// calls and what to do. The caller ends the call with it (Peers::raise); the diagnosis changes nothing but
// the rank's own page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/operation.h"
#include "health/peers.h"

namespace tutti {

/// A call that waits, as the diagnosis sees it. Each executor has one.
class StalledCall {
 public:
  virtual ~StalledCall() = default;

  /// Collectives of this rank so far, the one under way included.
  virtual uint64_t sequence() const = 0;
  /// What the call waits for: a message, room for one, or the network to take the last of it.
  virtual Obstacle obstacle() const = 0;
  virtual bool in_collective() const = 0;
  virtual bool in_messages() const = 0;
  /// The messages of the group under way, when in_messages().
  virtual const std::vector<Message>& messages() const = 0;
  /// The limits by which messages are cut.
  virtual SliceLimits message_limits() const = 0;
  /// Only the network still has something to take: what peers do matters no more.
  virtual bool is_draining() const = 0;
  /// Everything that `peer` had sent is on this host. Looks once more whether the call can go on. True: it
  /// still waits for that peer.
  virtual bool still_waits_for(uint32_t peer) = 0;
  /// The peer was seen to be able to come: doubts about it are over.
  virtual void peer_may_come() = 0;
  /// Whether the network still reads buffers of this call that it was referred to, to be sent to `peer`.
  virtual bool lends_to_network(uint32_t peer) const = 0;
  /// Bytes for `peer` that its host has not confirmed; 0 for a peer of this host.
  virtual uint64_t unconfirmed_bytes(uint32_t peer) const = 0;
  /// Ok, or why the way to a peer on another host is torn.
  virtual Status way_to(uint32_t peer) const = 0;
};

class StallDiagnosis {
 public:
  /// Both outlive the diagnosis.
  StallDiagnosis(const Peers& peers, StalledCall& call) : peers_(peers), call_(call) {}

  /// How often a waiting rank looks; also how long a wait must last before the first look.
  static constexpr uint64_t kCheckEveryNs = 20'000'000;

  /// Whether a wait of so long is due for a look.
  bool is_due(uint64_t waited_ns);
  /// Looks, and shows on this rank's page what it waits for. Ok: the peer may still come. Else kPeerLost,
  /// kMismatch or kTimeout.
  Status look(uint64_t waited_ns, uint64_t timeout_ms);
  /// The difference between this rank's call and that of `peer`, whose message does not match.
  Status mismatch_with(uint32_t peer) const;

 private:
  Status check_way(uint32_t peer);
  Status check_peer(uint32_t peer);
  Status left(uint32_t peer, uint32_t presence) const;
  bool waits_crossed(uint32_t peer, const PeerSnapshot& snapshot);
  Status crossed_with(uint32_t peer) const;
  std::string message_difference(uint32_t peer) const;
  Status deadline_passed(uint64_t waited_ns) const;
  /// "all_reduce(float32, sum, count 8)", as this rank's page says.
  std::string own_call() const;

  const Peers& peers_;
  StalledCall& call_;
  uint64_t last_look_ns_ = 0;
  /// The peer's beat, when the two ranks were first seen to wait for each other.
  std::optional<uint32_t> crossed_beat_;
  uint32_t torn_looks_ = 0;  ///< at a way that is torn, while nobody has said why
};

}  // namespace tutti
