// InspectorServer: tutti-inspect from anywhere: a port at which who proves the job's key gets the report of
// this process. Driven by the control thread; at most so many visitors at once, each for so long.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "bootstrap/unique_id.h"
#include "core/config.h"
#include "core/result.h"
#include "net/acceptor.h"
#include "net/control_thread.h"
#include "net/endpoint.h"
#include "net/event_loop.h"
#include "net/frame_socket.h"

namespace tutti {

/// What both sides prove to each other: the key of `config` where it has one, else that of the unique id by
/// which the process first joined a communicator.
Credentials inspection_credentials(const Config& config, const UniqueId& id);

class InspectorServer {
 public:
  /// Listens. `report` is called on the control thread. Errors: kInvalidArgument (interfaces), kSystemError
  /// (ports).
  static Result<std::unique_ptr<InspectorServer>> open(ControlThread& control, const ListenOptions& listen,
                                                       const Credentials& credentials,
                                                       std::function<std::string()> report);
  ~InspectorServer();
  InspectorServer(const InspectorServer&) = delete;
  InspectorServer& operator=(const InspectorServer&) = delete;

  /// Where it listens, the best address.
  const Endpoint& endpoint() const { return endpoint_; }

 private:
  struct Visitor {
    std::unique_ptr<FrameSocket> socket;
    EventLoop::Timer deadline;
  };
  using Locality = std::list<Visitor>::iterator;

  InspectorServer(ControlThread& control, std::function<std::string()> report)
      : control_(control), report_(std::move(report)) {}
  void admit(FileDescriptor socket);
  void dismiss(Locality place);

  ControlThread& control_;
  std::function<std::string()> report_;
  int listener_fd_ = -1;  ///< of acceptor_
  Endpoint endpoint_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Acceptor> acceptor_;
  std::list<Visitor> visitors_;  ///< oldest first
};

/// The report of a process that listens at `where`, of the ranks of the job that `credentials` are of. Blocks
/// at most until the deadline. Errors: kPeerLost (nobody listens there, each address with its reason),
/// kInvalidArgument (the key is refused, or not known there), kVersionMismatch, kTimeout, kSystemError.
Result<std::string> inspect(const HostPort& where, const Credentials& credentials, uint64_t deadline_ns);

}  // namespace tutti
