// ControlPlane: what the ranks of different hosts tell each other beside their data: that one has failed, or
// goes; what each is doing, when another waits long for it; and that they are alive. One connection to every
// rank of another host, served by the process's control thread, so also while the application computes.
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
  /// Called on the control thread; none may block.
  struct Handlers {
    /// Rank `from` says why the communicator has failed.
    std::function<void(uint32_t from, const Status& why)> on_alert;
    /// `peer` will make no further call.
    std::function<void(uint32_t peer)> on_left;
    /// `peer` is lost: its connection has ended without a word, or (`is_silent`) it gives no sign of life.
    std::function<void(uint32_t peer, bool is_silent, const Status& why)> on_lost;
    /// `peer` asks what this rank is doing.
    std::function<StatusCopy(uint32_t peer)> report;
    /// `peer` has decided who makes up the next communicator: packed Members, from a rank but to be checked.
    std::function<void(uint32_t peer, std::span<const std::byte> members)> on_members;
  };
  /// What is known of a peer's doing.
  struct View {
    StatusCopy copy;
    uint64_t answers = 0;  ///< how often it has answered
  };

  /// `heartbeat_ms`: how long a peer may give no sign of life; 0: for ever. Errors: kSystemError.
  static Result<std::shared_ptr<ControlPlane>> open(ControlThread& control, std::vector<Peer> peers,
                                                    uint64_t heartbeat_ms, Handlers handlers);
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  // Any thread, none blocks for long:

  /// All peers are there: from now on they must not be silent. Until then a rank may have reasons to be, as
  /// in its set-up; this one shows from the start that it lives.
  void expect_beats();
  /// Tells all peers why the communicator has failed. `from`: the rank that found out.
  void raise(uint32_t from, Code code, std::string_view text);
  /// Tells all peers that this rank makes no further call, once.
  void leave();
  /// Asks what `peer` is doing; the answer comes into its View. View::answers is at least what this returns
  /// when it has come; never, if the peer is lost.
  uint64_t ask(uint32_t peer);
  View view(uint32_t peer);
  /// Tells all peers what this rank has decided.
  void send_members(std::span<const std::byte> members);
  /// The process exits: waits a moment for what this rank has sent, then leaves.
  void leave_at_exit();
  /// No handler runs any more when this has returned.
  void close();

 private:
  struct Link {
    std::unique_ptr<FrameSocket> socket;  ///< null: lost
    int fd = -1;                          ///< of the socket
    View view;
    uint64_t questions = 0;  ///< asked; answered in their order
    uint64_t heard_ns = 0;
    bool has_left = false;
  };

  ControlPlane(ControlThread& control, uint64_t heartbeat_ms, Handlers handlers)
      : control_(control), handlers_(std::move(handlers)), clock_(heartbeat_ms) {}
  Status connect(Peer peer);
  void handle(uint32_t peer, const Frame& frame);
  void answer(uint32_t peer, uint32_t number);
  void lose(uint32_t peer, bool is_silent, const Status& why);
  void broadcast(const FrameHeader& header, const FrameSocket::Body& body);
  void beat();
  void schedule_beat();

  ControlThread& control_;
  Handlers handlers_;
  // All below is touched while the control thread is held only.
  std::unique_ptr<EventLoop> loop_;  ///< null: closed
  std::map<uint32_t, Link> links_;   ///< by rank
  EventLoop::Timer beat_;
  HeartbeatClock clock_;
  bool expects_beats_ = false;
  bool left_ = false;
};

}  // namespace tutti
