// Peers: what one rank knows of the other ranks of its communicator, and what it tells them.
//
// src/health answers one question: how are the ranks?
//   Peers            every rank's status page and presence, the alert that ends a communicator
//   ControlPlane     alerts, leaving, status and heartbeats between hosts
//   Heartbeat        signs of life between processes of one host
//   StatusCopy       a snapshot of a status page, for other hosts
//   Loss             the errors for ranks that are lost
//   StallDiagnosis   why a call makes no progress: dead, late, another call, a circle
//   Inspector, InspectorServer   tell people and tutti-inspect what the ranks do
// All works beside the data path. A rank writes its page with plain stores, and reads other pages only after
// 20 ms of waiting. The control thread (net/control_thread.h) runs every handler.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "health/control_plane.h"
#include "health/status_copy.h"
#include "transports/shm/segment.h"

namespace tutti {

struct PeerSnapshot {
  StatusCopy page;
  bool has_answered = true;  ///< false: a peer on another host has not answered yet, and `page` is empty
  bool is_settled = true;    ///< all bytes that the peer sent before the snapshot have reached this host
  bool is_current = true;    ///< false: an earlier answer of a peer on another host
};

/// "rank 3 is in collective 17, ...", or says that the rank does not answer.
std::string describe_snapshot(uint32_t peer, const PeerSnapshot& snapshot);

class Peers {
 public:
  Peers(uint32_t rank, uint32_t rank_count) : rank_(rank), rank_count_(rank_count) {}

  uint32_t rank() const { return rank_; }
  uint32_t rank_count() const { return rank_count_; }
  uint32_t host_count() const { return host_count_; }
  const std::vector<uint32_t>& host_of() const { return host_of_; }
  /// Whether all ranks are threads of this process.
  bool is_one_process() const { return one_process_; }
  bool shares_no_host() const { return rank_count_ > 1 && host_count_ == rank_count_; }

  // During set-up, in this order:

  /// `host_of`: host number by rank. Hosts count from 0 in the order of their lowest ranks.
  void set_hosts(std::vector<uint32_t> host_of);
  /// The page of a rank alone in its communicator.
  void set_own_page(SegmentHeader& own) { own_ = &own; }
  /// How this rank reaches each rank's memory, by rank; its own too.
  void set_memory(std::vector<PeerSegment> memory);
  void set_control_plane(std::shared_ptr<ControlPlane> plane) { plane_ = std::move(plane); }
  /// `detour`: what is out of order on the way to a peer on another host; "": nothing. Any thread may call
  /// it.
  void set_detours(std::function<std::string(uint32_t peer)> detour) { detour_ = std::move(detour); }

  /// By rank; empty before set_memory and in a communicator of one rank.
  const std::vector<PeerSegment>& memory() const { return memory_; }
  bool is_remote(uint32_t rank) const { return !memory_.empty() && memory_[rank].is_remote; }
  /// Null if all ranks are on one host.
  ControlPlane* control_plane() const { return plane_.get(); }

  SegmentHeader& own() const { return *own_; }
  /// This rank's view of another rank's header. For a rank on another host: what this rank was told.
  SegmentHeader& header(uint32_t rank) const {
    return rank == rank_ ? *own_ : memory_[rank].segment->header();
  }
  const StatusPage& page(uint32_t rank) const { return header(rank).status; }
  /// A StatusPage::Presence.
  uint32_t presence(uint32_t rank) const { return page(rank).presence.load(std::memory_order_acquire); }

  /// What is known of a peer now. For a peer on another host: its last answer; each call also asks again.
  PeerSnapshot snapshot(uint32_t peer) const;
  /// What a peer is doing now. Waits up to 2 s for a peer on another host.
  PeerSnapshot ask(uint32_t peer) const;

  // The error state. Any thread:

  /// The communicator's error, or ok.
  Status error() const { return alert_status(own_->alert); }
  bool has_error() const { return own_->alert.state.load(std::memory_order_acquire) == Alert::kRaised; }
  /// Puts the communicator in error on all ranks. If this rank already knows an error, passes that on in
  /// place of `own_reason`.
  void raise(const Status& own_reason) const;
  /// After `raise`: the error of all calls of this rank, the first that arrived, or `why` if a peer died
  /// while writing its alert.
  Status settle_alert(const Status& why) const;
  /// `raise`, then `settle_alert`.
  Status fail(const Status& why) const {
    raise(why);
    return settle_alert(why);
  }
  /// Whether the peer of this host knows an error.
  bool has_error_of(uint32_t peer) const {
    return header(peer).alert.state.load(std::memory_order_acquire) == Alert::kRaised;
  }
  /// Waits for the text of an alert that a peer has begun to raise.
  void await_alert() const;

  /// Rank `rank` is lost because of `why`. Raises the alert before marking the page: a rank that sees the
  /// mark also finds the reason. Replaces this rank's alert if the lost rank has left it half-written. False:
  /// the rank had left in good order.
  bool lose(uint32_t rank, StatusPage::Presence presence, const Status& why) const;
  void mark_lost(uint32_t rank, StatusPage::Presence presence) const;
  /// No call of this rank will follow.
  void show_left() const;

  /// Whether a peer on this host is in a call and may use this rank's buffers.
  bool may_use_buffers() const;
  /// What the ranks are doing, one line each. On the control thread.
  std::string report() const;

 private:
  void pass_on_error() const;
  void tell_peers(Code code, std::string_view text) const;

  uint32_t rank_;
  uint32_t rank_count_;
  std::vector<uint32_t> host_of_;
  uint32_t host_count_ = 1;
  bool one_process_ = true;
  SegmentHeader* own_ = nullptr;
  std::vector<PeerSegment> memory_;
  std::shared_ptr<ControlPlane> plane_;
  std::function<std::string(uint32_t peer)> detour_ = [](uint32_t /*peer*/) { return std::string(); };
};

}  // namespace tutti
