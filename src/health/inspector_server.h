// InspectorServer: serves tutti-inspect over the network. A visitor that proves the job's key gets the report
// of this process. The control thread drives it, with bounds on visitors and their time.
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

/// What both sides prove: the key of `config` or, without one, that of the unique id of the process's first
/// communicator.
Credentials inspection_credentials(const Config& config, const UniqueId& id);

class InspectorServer {
 public:
  /// Listens. The control thread calls `report`. Errors: kInvalidArgument (interfaces), kSystemError (ports).
  static Result<std::unique_ptr<InspectorServer>> open(ControlThread& control, const ListenOptions& listen,
                                                       const Credentials& credentials,
                                                       std::function<std::string()> report);
  ~InspectorServer();
  InspectorServer(const InspectorServer&) = delete;
  InspectorServer& operator=(const InspectorServer&) = delete;

  /// The best address at which the server listens.
  const Endpoint& endpoint() const { return endpoint_; }

 private:
  struct Visitor {
    std::unique_ptr<FrameSocket> socket;
    EventLoop::Timer deadline;
  };
  using VisitorEntry = std::list<Visitor>::iterator;

  InspectorServer(ControlThread& control, std::function<std::string()> report)
      : control_(control), report_(std::move(report)) {}
  void admit(FileDescriptor socket);
  Status serve(VisitorEntry visitor, FileDescriptor socket);
  void dismiss(VisitorEntry visitor);

  ControlThread& control_;
  std::function<std::string()> report_;
  int listener_fd_ = -1;  ///< of acceptor_
  Endpoint endpoint_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Acceptor> acceptor_;
  std::list<Visitor> visitors_;  ///< oldest first
};

/// The report of the process at `where`. Blocks until the deadline at most. Errors: kPeerLost (no process
/// listens; a reason per address), kInvalidArgument (the key is refused or unknown), kVersionMismatch,
/// kTimeout, kSystemError.
Result<std::string> inspect(const HostPort& where, const Credentials& credentials, uint64_t deadline_ns);

}  // namespace tutti
