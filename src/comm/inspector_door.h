// InspectorDoor: tutti-inspect from anywhere: a port at which who proves the job's key gets the report of
// this process. Driven by the control thread; at most so many visitors at once, each for so long.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "comm/control.h"
#include "core/config.h"
#include "core/result.h"
#include "meet/endpoint.h"
#include "meet/event_loop.h"
#include "meet/frame_socket.h"
#include "meet/gate.h"
#include "meet/unique_id.h"

namespace tutti {

/// What both sides prove to each other: the key of `config` where it has one, else that of the unique id by
/// which the process first joined a communicator.
Credentials inspection_credentials(const Config& config, const UniqueId& id);

class InspectorDoor {
 public:
  /// Listens. `report` is called on the control thread. Errors: kInvalidArgument (interfaces), kSystemError
  /// (ports).
  static Result<std::unique_ptr<InspectorDoor>> open(ControlThread& control, const ListenOptions& listen,
                                                     const Credentials& credentials,
                                                     std::function<std::string()> report);
  ~InspectorDoor();
  InspectorDoor(const InspectorDoor&) = delete;
  InspectorDoor& operator=(const InspectorDoor&) = delete;

  /// Where it listens, the best address.
  const Endpoint& endpoint() const { return endpoint_; }

 private:
  struct Visitor {
    std::unique_ptr<FrameSocket> socket;
    EventLoop::Timer deadline;
  };
  using Place = std::list<Visitor>::iterator;

  InspectorDoor(ControlThread& control, std::function<std::string()> report)
      : control_(control), report_(std::move(report)) {}
  void admit(FileDescriptor socket);
  void dismiss(Place place);

  ControlThread& control_;
  std::function<std::string()> report_;
  int listener_fd_ = -1;  ///< of gate_
  Endpoint endpoint_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Gate> gate_;
  std::list<Visitor> visitors_;  ///< oldest first
};

/// The report of a process that listens at `where`, of the ranks of the job that `credentials` are of. Blocks
/// at most until the deadline. Errors: kPeerLost (nobody listens there, each address with its reason),
/// kInvalidArgument (the key is refused, or not known there), kVersionMismatch, kTimeout, kSystemError.
Result<std::string> inspect(const HostPort& where, const Credentials& credentials, uint64_t deadline_ns);

}  // namespace tutti
