// RdmaConnection: the links to one peer. Lanes (lane.h) carry the channels over rails (rail.h). A socket
// beside them carries what both ends agree on (control.h), stands in for rails when none is usable, and tells
// by its end that the peer is gone.
//
// Rails: one for each near port of the rank that has more of them, at most kMostRails. Each lane has a rail
// at home. Two ranks with a single rail have a further one in reserve, over other ports.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "transports/connection.h"
#include "transports/rdma/lane.h"
#include "transports/rdma/rail.h"

namespace tutti::rdma {

/// A pair of ports, as indices in the ports of both ranks.
struct RailPorts {
  size_t here = 0;
  size_t there = 0;
};
struct Rails {
  std::vector<RailPorts> ports;  ///< the same on both ranks, in the same order; empty: none reaches another
  uint32_t lane_count = 0;       ///< the first ones carry a lane each; others serve when those fail
};
Rails choose_rails(std::span<const PortAddress> here, std::span<const PortAddress> there, uint32_t rank,
                   uint32_t peer);

struct RdmaOptions {
  const UserMemory& user_memory;  ///< of the rank
  HeapMemory& heap_memory;        ///< of the rank
  DeviceRegions& device_regions;  ///< of the rank
  uint32_t rank = 0;
  uint32_t peer = 0;
  RingShape shape;  ///< of all rings on both sides
  uint16_t epoch = 0;
  uint32_t number = 0;      ///< of this connection, in its work requests
  uint32_t lane_count = 1;  ///< as Rails::lane_count
  QueuePairOptions queue_pair = {};
  bool needs_rail = false;  ///< set-up fails if no rail is usable
};

class RdmaConnection final : public Connection {
 public:
  struct Path {
    const Device& device;
    const Port& port;  ///< stays where it is; its owner keeps it up to date
    PortAddress peer;
  };
  /// `poll` takes all completions of the rank's devices. Errors: kSystemError, kOutOfMemory.
  static Result<std::unique_ptr<RdmaConnection>> make(const Verbs& verbs, std::span<const Path> paths,
                                                      std::span<const ChannelRings> channels,
                                                      FileDescriptor socket, PinBudget& budget,
                                                      std::function<bool()> poll, const RdmaOptions& options);
  ~RdmaConnection() override;

  /// Every rail is usable, or known not to be.
  bool is_set_up() const { return is_set_up_; }
  /// Set-up goes on as far as the peer allows. Errors: kPeerLost, kSystemError.
  Status greet();
  int socket() const { return shared_.socket.descriptor(); }
  bool has_unsent() const { return shared_.socket.has_unsent(); }
  uint32_t peer() const { return options_.peer; }

  bool advance() override;
  void advance_fully() override;
  bool drained() const override;
  uint64_t unconfirmed_bytes() const override {
    return shared_.unconfirmed_bytes.load(std::memory_order_relaxed);
  }
  PeerState state() const override { return state_; }
  const Status& status() const override { return failure_; }
  std::string route() const override;
  std::string detour() const override;
  void withdraw() override;
  void finish() override;

  /// Takes a completion of one of this connection's queue pairs.
  void complete(const ibv_wc& completion);
  /// Reads the socket, and lets rails and lanes go on. Returns whether anything moved.
  bool look_at_socket();
  /// Something is under way that needs look_at_socket() in every turn.
  bool is_moving() const { return is_moving_; }
  /// The port has come up or gone down.
  void port_changed(const Port& port, const std::string& what);
  /// The device has failed.
  void device_failed(const Device& device, const std::string& what);
  /// Sends what it can.
  bool send();

 private:
  RdmaConnection(const Verbs& verbs, std::span<const ChannelRings> channels, FileDescriptor socket,
                 PinBudget& budget, std::function<bool()> poll, const RdmaOptions& options);
  Status prepare(std::span<const Path> paths);
  Status take_message(const Control& control, std::span<const std::byte> payload);
  Status take_lane_message(Lane& lane, const Control& control, std::span<const std::byte> payload);
  Status take_hello(Rail& rail, const Control& control, std::span<const std::byte> payload);
  void take_broken(Rail& rail, uint32_t attempt);
  void tell_rail(ControlKind kind, const Rail& rail, uint32_t attempt);
  void advance_rail(Rail& rail);
  void start_rail(Rail& rail);
  void break_rail(Rail& rail, const std::string& why, bool is_told = false);
  std::string route_of(const Lane& lane) const;
  void note_move();
  void try_again(Rail& rail, uint64_t now);
  void seek_better_rails();
  void receive(Rail& rail, const ibv_wc& completion);
  Status go_on();
  bool needs_turns() const;
  void confirm_socket();
  void notice_end();
  void end(PeerState state, const std::string& what);

  const Verbs& verbs_;
  RdmaOptions options_;
  std::function<bool()> poll_;
  LaneShared shared_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  bool is_set_up_ = false;
  bool is_moving_ = true;
  uint32_t vain_turns_ = 0;
  bool wants_end_ = false;
  PeerState state_ = PeerState::kOpen;
  Status failure_;
  mutable std::mutex detour_mutex_;
  std::string detour_;
};

}  // namespace tutti::rdma
