// ControlPlane: the connections to ranks of other hosts beside the data: failures, leaving, status on
// request, heartbeats. The process's control thread serves them, even while the application computes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/file_descriptor.h"
#include "core/result.h"
#include "health/heartbeat_clock.h"
#include "health/status_copy.h"
#include "net/control_thread.h"
#include "net/event_loop.h"
#include "net/frame_socket.h"

namespace tutti {

class ControlPlane {
 public:
  /// A rank on another host, and the connected, authenticated socket to it.
  struct Peer {
    uint32_t rank = 0;
    FileDescriptor socket;
  };
  /// The control thread calls these; they must not block. Where memory is short, all but on_lost may throw,
  /// and are called again.
  struct Handlers {
    /// Rank `from` reports why the communicator has failed.
    std::function<void(uint32_t from, const Status& why)> on_alert;
    /// `peer` will make no further call.
    std::function<void(uint32_t peer)> on_left;
    /// `peer` is lost: its connection ended without notice, or (`is_silent`) it shows no sign of life.
    std::function<void(uint32_t peer, bool is_silent, const Status& why)> on_lost;
    /// `peer` asks what this rank is doing.
    std::function<StatusCopy(uint32_t peer)> report;
    /// `peer` has decided the ranks of the next communicator: packed Members, still to be checked.
    std::function<void(uint32_t peer, std::span<const std::byte> members)> on_members;
    /// A data socket to `peer` is torn: a kRenew frame, still to be checked.
    std::function<void(uint32_t peer, const Frame& frame)> on_renew = [](uint32_t, const Frame&) {};
  };
  struct View {
    StatusCopy copy;
    uint64_t answers = 0;  ///< number of answers so far
  };

  /// `heartbeat_ms`: how long a peer may be silent; 0: for ever. Errors: kSystemError.
  static Result<std::shared_ptr<ControlPlane>> open(ControlThread& control, std::vector<Peer> peers,
                                                    uint64_t heartbeat_ms, Handlers handlers);
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  // Any thread; none blocks for long:

  /// All peers are connected: their silence counts from now on. Before, a rank may be silent in its set-up.
  /// This rank beats from the start.
  void expect_beats();
  /// Tells all peers why the communicator has failed. `from`: the rank that noticed.
  void raise(uint32_t from, Code code, std::string_view text);
  /// Tells all peers, once, that this rank makes no further call.
  void leave();
  /// Asks what `peer` is doing. The answer has come once View::answers reaches the returned number. A lost
  /// peer never answers.
  uint64_t ask(uint32_t peer);
  View view(uint32_t peer);
  /// Sends one peer a frame, for a kRenew.
  void send(uint32_t peer, const FrameHeader& header, std::span<const std::byte> body);
  /// Tells all peers the decision of this rank.
  void send_members(std::span<const std::byte> members);
  /// At process exit: waits briefly until peers have what this rank sent, then leaves.
  void leave_at_exit();
  /// After the return, no handler runs any more.
  void close();

 private:
  struct Link {
    std::unique_ptr<FrameSocket> socket;  ///< null: lost
    View view;
    uint64_t questions = 0;  ///< questions asked; answers come in order
    uint64_t heard_ns = 0;
    bool has_left = false;
  };

  ControlPlane(ControlThread& control, uint64_t heartbeat_ms, Handlers handlers)
      : control_(control), handlers_(std::move(handlers)), clock_(heartbeat_ms) {}
  Status connect(Peer peer);
  void handle(uint32_t peer, const Frame& frame);
  void answer(uint32_t peer, uint32_t number);
  void lose(uint32_t peer, bool is_silent, const Status& why);
  void lose_silent(uint32_t peer, uint64_t silent_ns);
  void broadcast(const FrameHeader& header, const FrameSocket::Body& body);
  template <class Send>
  void send_or_close(Send&& send);
  void beat();
  void schedule_beat();

  ControlThread& control_;
  Handlers handlers_;
  // The fields below are used only while the control thread is held.
  std::unique_ptr<EventLoop> loop_;  ///< null: closed
  std::map<uint32_t, Link> links_;   ///< by rank
  EventLoop::Timer beat_;
  HeartbeatClock clock_;
  bool expects_beats_ = false;
  bool left_ = false;
};

}  // namespace tutti
