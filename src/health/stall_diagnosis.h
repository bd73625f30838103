// StallDiagnosis: why a long wait makes no progress.
//
// After 20 ms, and every 20 ms from then on, a waiting rank reads its peer's status page. The peer may be
// dead or gone, have passed this call or made another one, or wait for this rank; or the deadline has passed.
// The resulting Status names ranks, calls and what to do, and the caller ends the call with it
// (Peers::raise). The diagnosis itself changes only this rank's page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/operation.h"
#include "health/peers.h"

namespace tutti {

/// A waiting call, as the diagnosis sees it. Each executor has one.
class StalledCall {
 public:
  virtual ~StalledCall() = default;

  /// The number of this rank's collectives, with the current one.
  virtual uint64_t sequence() const = 0;
  /// What the call waits for: a message, room for one, or the network to take the last bytes.
  virtual Obstacle obstacle() const = 0;
  virtual bool in_collective() const = 0;
  virtual bool in_messages() const = 0;
  /// The messages of the current group, if in_messages().
  virtual const std::vector<Message>& messages() const = 0;
  virtual SliceLimits message_limits() const = 0;
  /// Only the network still has bytes to take. What peers do no longer matters.
  virtual bool is_draining() const = 0;
  /// All bytes that `peer` sent are on this host: tries once more. True: the call still waits for `peer`.
  virtual bool still_waits_for(uint32_t peer) = 0;
  /// The peer may still come: drops earlier suspicion.
  virtual void peer_may_come() = 0;
  /// Whether the network still reads this call's buffers, to send them to `peer`.
  virtual bool lends_to_network(uint32_t peer) const = 0;
  /// Bytes to `peer` that its host has not confirmed; 0 on this host.
  virtual uint64_t unconfirmed_bytes(uint32_t peer) const = 0;
  /// Ok, or why the connection to a rank of another host is broken, though that rank is there. Messages are
  /// lost: the call cannot count on its own, nor on those that other ranks wait for.
  virtual Status torn_way() const = 0;
};

class StallDiagnosis {
 public:
  /// Both outlive the diagnosis.
  StallDiagnosis(const Peers& peers, StalledCall& call) : peers_(peers), call_(call) {}

  /// How often a waiting rank checks, and the length of the wait before the first check.
  static constexpr uint64_t kCheckEveryNs = 20'000'000;

  bool is_due(uint64_t waited_ns);
  /// Checks, and shows on this rank's page what it waits for. Ok: the peer may still come. Else kPeerLost,
  /// kMismatch or kTimeout.
  Status look(uint64_t waited_ns, uint64_t timeout_ms);
  /// Shows on this rank's page what it waits for, and that it still does.
  void show_wait(const Obstacle& obstacle, uint64_t waited_ns);
  /// Of look(), only whether the connection to a rank of another host is broken; that rank may live.
  Status check_way();
  /// How this rank's call differs from that of `peer`, after a mismatched message.
  Status mismatch_with(uint32_t peer) const;
  /// After the last call: `peer` has made other collectives.
  Status differs(uint32_t peer) const;
  /// After the last call: rank `to` has not received a message from rank `from`. One of them is this rank.
  Status unread(uint32_t from, uint32_t to) const;

 private:
  Status check_peer(uint32_t peer);
  Status left(uint32_t peer, uint32_t presence) const;
  bool waits_crossed(uint32_t peer, const PeerSnapshot& snapshot);
  Status crossed_with(uint32_t peer) const;
  Status check_circle(uint32_t first);
  /// A rank in a circle of ranks that wait for each other.
  struct Member {
    uint32_t rank = 0;
    uint32_t beat = 0;
  };
  std::vector<Member> circle_from(uint32_t first) const;
  Status circle_of(const std::vector<Member>& members) const;
  std::string first_difference(uint32_t peer, const StatusCopy& theirs, uint64_t end) const;
  std::string message_difference(uint32_t peer) const;
  Status deadline_passed(uint64_t waited_ns) const;
  /// "all_reduce(float32, sum, count 8)", from this rank's page.
  std::string own_call() const;

  const Peers& peers_;
  StalledCall& call_;
  uint64_t last_look_ns_ = 0;
  /// The peer's beat when both ranks were first seen waiting for each other.
  std::optional<uint32_t> crossed_beat_;
  std::vector<Member> circle_;  ///< as first seen; empty: the last check saw none
  uint32_t torn_looks_ = 0;     ///< checks of a broken connection without a reason yet
};

}  // namespace tutti
